"""A run against one context: opened, asked case by case, closed; and what it comes to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from .artifact import StrictViolation
from .aside import aside
from .blocks import CitationCheck, Citations
from .cases import run_case
from .client import Answer, Client, Transport, TransportError
from .corpus import Bracket, open_corpus, read_context_after
from .lanes import Lanes, Route
from .lookahead import LookAhead
from .metrics import Aggregation, Statistic
from .thresholds import Gate, Judgement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .blocks import CaseBlock
    from .corpus import Opening
    from .dataset import Dataset


T = TypeVar("T")


class _Stoppable:
    """A transport that sends nothing more once it is stopped."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.stopped = threading.Event()

    def send(self, method: str, route: str, body: bytes | None, seconds: float) -> Answer:
        """Send one request; see `Transport`."""
        if self.stopped.is_set():
            raise TransportError("the run has ended")
        return self._inner.send(method, route, body, seconds)


class Run:
    """Opened when it is made: health, revision, sources and preflight (see `open_corpus`)."""

    def __init__(
        self, transport: Transport, *, base: str, masked: str, route: Route, dataset: Dataset
    ) -> None:
        __tracebackhide__ = True
        self._cases_transport = _Stoppable(transport)
        self._client = Client(transport, base)
        self._base = base
        self._route = route
        self._dataset = dataset
        self._context = route.context
        self._ahead: LookAhead[int, CaseBlock] | None = None
        #: What the cases under way send through.
        self._under_way: dict[int, _Stoppable] = {}
        self._bracket: Bracket | None = None
        self.masked = masked
        opening = _Stoppable(transport)
        try:
            self.opening: Opening = aside(
                lambda: open_corpus(Client(opening, base), masked, route.context, dataset)
            )
        finally:
            opening.stopped.set()

    def look_ahead(self, indices: Sequence[int], width: int) -> None:
        """Begin to work on cases in this order, `width` at a time; 1 means not to."""
        if width > 1:
            self._ahead = LookAhead(indices, self._work, width, self._work_aside)

    def block(self, index: int) -> CaseBlock:
        """The scored block of a case of the dataset; asked again, it is fetched again."""
        __tracebackhide__ = True
        return self._work_aside(index) if self._ahead is None else self._ahead.take(index)

    def give_up(self, index: int) -> None:
        """Send no further request for a case, unless it is asked for again."""
        under_way = self._under_way.get(index)
        if under_way is not None:
            under_way.stopped.set()
        if self._ahead is not None:
            self._ahead.forget(index)

    def _work(self, index: int) -> CaseBlock:
        transport = self._under_way[index] = _Stoppable(self._cases_transport)
        try:
            lanes = Lanes(Client(transport, self._base), self._route)
            return run_case(self._dataset.cases[index], lanes)
        finally:
            if self._under_way.get(index) is transport:  # else it is fetched again already
                del self._under_way[index]

    def _work_aside(self, index: int) -> CaseBlock:
        __tracebackhide__ = True
        return aside(lambda: self._work(index))

    def stop_ahead(self) -> None:
        """Begin on no further case before it is asked for."""
        if self._ahead is not None:
            self._ahead.stop()

    def stop(self) -> None:
        """Send no further request for cases."""
        self._cases_transport.stopped.set()
        self.stop_ahead()

    def close(self) -> Bracket:
        """Stop, and read the revision after. Raises RunError; idempotent."""
        __tracebackhide__ = True
        self.stop()
        if self._bracket is None:
            after = aside(lambda: read_context_after(self._client, self._context))
            self._bracket = Bracket(opening=self.opening, after=after)
        return self._bracket


class Sighting(Generic[T]):
    """The first few of many, and how many there were."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self.first: list[T] = []
        self.count = 0

    def add(self, one: T) -> None:
        """See one more."""
        self.count += 1
        if len(self.first) < self._kept:
            self.first.append(one)

    @property
    def more(self) -> int:
        """How many are not among the first."""
        return self.count - len(self.first)


class Tally(Struct, frozen=True, kw_only=True):
    """What the blocks of a run come to. Its size does not grow with the number of cases,
    but for what is violated or skipped.
    """

    metrics: dict[str, Statistic]
    judgement: Judgement | None
    strict: list[StrictViolation]
    failed_lanes: dict[str, Sighting[str]]
    #: The message of the first failed call, and how many cases had any.
    first_failure: list[str]
    unjudged: Sighting[str]
    #: Cases with an unmet expectation.
    unmet: Sighting[str]
    invalid_locators: Sighting[CitationCheck]


def tally(
    blocks: Iterable[CaseBlock], gate: Gate | None, *, strict: bool, rerank_asked: bool
) -> Tally:
    """Aggregate and judge blocks, each fed once, in the order of the dataset."""
    aggregation = Aggregation(rerank_asked=rerank_asked)
    result = Tally(
        metrics={},
        judgement=Judgement(gate) if gate else None,
        strict=[],
        failed_lanes={},
        first_failure=[],
        unjudged=Sighting(0),
        unmet=Sighting(10),
        invalid_locators=Sighting(10),
    )
    for block in blocks:
        aggregation.feed(block)
        if result.judgement:
            result.judgement.case(block)
        reason = strict_reason(block) if strict else None
        if reason:
            result.strict.append(StrictViolation(case_id=block.case_id, reason=reason))
        failed = block.failed_calls()
        for lane in dict.fromkeys(call.lane for call in failed):
            result.failed_lanes.setdefault(lane, Sighting(3)).add(block.case_id)
        if failed:
            result.first_failure.extend([failed[0].message][: not result.first_failure])
            result.unjudged.add(block.case_id)
        if block.missed:
            result.unmet.add(block.case_id)
        for check in block.citations.checks if isinstance(block.citations, Citations) else []:
            if not check.is_valid:
                result.invalid_locators.add(check)
    result.metrics.update(aggregation.results())
    return result


def strict_reason(block: CaseBlock) -> str | None:
    """Why strict judging fails a case, or None: anything missed, any call that failed."""
    missed = len(block.missed) + block.missed_truncated
    lanes = list(dict.fromkeys(call.lane for call in block.failed_calls()))
    parts = [f"{missed} unmet expectation{'s' if missed > 1 else ''}"] if missed else []
    parts += [f"{lane} call failed" for lane in lanes]
    return ", ".join(parts) or None
