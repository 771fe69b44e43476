"""The catalogue of metrics and how each is observed and aggregated, side by side.

A *distribution* collects samples, a *ratio* a numerator over n. Each entry says how one case
contributes; `Aggregation` is fed the cases one by one, in the order of the dataset.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from msgspec import Struct, UnsetType

from .blocks import (
    ABSENT_CODES,
    Assembled,
    BudgetUse,
    CaseBlock,
    CitationCheck,
    Citations,
    Coverage,
    Failed,
    LaneCross,
    QuoteCheck,
    RecallScores,
    SectionCheck,
    Share,
    Structural,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Reasons of the evidence route for leaving an item out that are about the budget.
BUDGET_REASONS = ("budget_exceeded", "contradiction_group_exceeds_budget")


class Definition(Struct, frozen=True, kw_only=True):
    """A metric as evaluation.json defines it."""

    unit: Literal["ms", "ratio", "source", "item", "byte", "token"]
    statistic: Literal["distribution", "ratio", "count"]
    scopes: list[Literal["case", "run"]]
    description: str
    source: str
    caveat: str | None = None


class Distribution(Struct, frozen=True, kw_only=True):
    """Order statistics by nearest rank, mean and sum; all null without samples."""

    n: int
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None
    mean: float | None = None
    sum: float | None = None

    @property
    def scalar(self) -> float | None:
        """The one number a bound looks at."""
        return self.mean


class Ratio(Struct, frozen=True, kw_only=True):
    """`numerator / n`; both null when n is 0."""

    value: float | None = None
    n: int
    numerator: int | None = None

    @property
    def scalar(self) -> float | None:
        """The one number a bound looks at."""
        return self.value


Statistic = Distribution | Ratio


class Collector(Protocol):
    """A metric over the cases fed so far."""

    def feed(self, block: CaseBlock, /) -> None:
        """Add one case."""

    def result(self) -> Statistic:
        """What the cases come to."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """A distribution: what one case adds to its samples, and whether a case may be bounded by it.

    One that bounds cases has at most one sample a case.
    """

    definition: Definition
    samples: Callable[[CaseBlock], Iterable[float]]
    bounds_cases: bool
    needs_rerank: ClassVar[bool] = False
    statistic: ClassVar[type[Distribution]] = Distribution

    def collector(self) -> Collector:
        """One that has seen no case yet."""
        return _Samples(self.samples)


@dataclass(frozen=True, kw_only=True)
class Tallied:
    """A ratio: what one case adds to its numerator and to n, and whether it has a meaning only
    if a reranker was asked for.
    """

    definition: Definition
    tally: Callable[[CaseBlock], tuple[int, int]]
    needs_rerank: bool
    statistic: ClassVar[type[Ratio]] = Ratio

    def collector(self) -> Collector:
        """One that has seen no case yet."""
        return _Sums(self.tally)


class _Samples:
    """Grows by eight bytes a sample."""

    def __init__(self, samples: Callable[[CaseBlock], Iterable[float]]) -> None:
        self._samples = samples
        self._collected = array("d")

    def feed(self, block: CaseBlock) -> None:
        self._collected.extend(sample for sample in self._samples(block) if isfinite(sample))

    def result(self) -> Distribution:
        return distribution(self._collected)


class _Sums:
    def __init__(self, tally: Callable[[CaseBlock], tuple[int, int]]) -> None:
        self._tally = tally
        self._numerator = self._n = 0

    def feed(self, block: CaseBlock) -> None:
        numerator, n = self._tally(block)
        self._numerator += numerator
        self._n += n

    def result(self) -> Ratio:
        if not self._n:
            return Ratio(n=0)
        return Ratio(value=self._numerator / self._n, n=self._n, numerator=self._numerator)


def nearest_rank(ordered: array[float], percent: int) -> float:
    """The percentile of sorted samples by nearest rank: the ceil(percent * n / 100)-th.

    No interpolation, so it is always one of the samples (Hyndman and Fan 1996, definition 1).
    """
    return ordered[(percent * len(ordered) + 99) // 100 - 1]


def distribution(samples: array[float]) -> Distribution:
    """Summarise samples; those that are not finite must have been dropped."""
    if not samples:
        return Distribution(n=0)
    total = 0.0
    for sample in samples:
        total += sample  # plainly, in order: sum() rounds differently from Python 3.12 on
    ordered = array("d", sorted(samples))
    return Distribution(
        n=len(ordered),
        min=ordered[0],
        p50=nearest_rank(ordered, 50),
        p90=nearest_rank(ordered, 90),
        p99=nearest_rank(ordered, 99),
        max=ordered[-1],
        mean=total / len(ordered),
        sum=total,
    )


# -- what a case contributes -----------------------------------------------------------------


def _recall(field: str) -> Callable[[CaseBlock], Iterator[float]]:
    def samples(block: CaseBlock) -> Iterator[float]:
        if isinstance(block.recall, RecallScores):
            yield getattr(block.recall, field)

    return samples


def _coverage(kind: str) -> Callable[[CaseBlock], Iterator[float]]:
    def samples(block: CaseBlock) -> Iterator[float]:
        if isinstance(block.coverage, Coverage):
            share: Share | UnsetType = getattr(block.coverage, kind)
            if isinstance(share, Share):
                yield share.value

    return samples


def _budget(field: str) -> Callable[[CaseBlock], Iterator[float]]:
    def samples(block: CaseBlock) -> Iterator[float]:
        if isinstance(block.budget, BudgetUse):
            yield getattr(block.budget, field)

    return samples


def _citation_recall(block: CaseBlock) -> Iterator[float]:
    if isinstance(block.citations, Citations):
        yield block.citations.recall.value


def _locator_validity(block: CaseBlock) -> Iterator[float]:
    if isinstance(block.citations, Citations):
        yield block.citations.validity.value


def _diversity(block: CaseBlock) -> Iterator[float]:
    if isinstance(block.diversity_sources, int):
        yield block.diversity_sources


def _passage_ms(block: CaseBlock) -> Iterator[float]:
    yield block.passage.latency_ms


def _resolve_ms(block: CaseBlock) -> Iterator[float]:
    if isinstance(block.structural, Structural):
        for cue in block.structural.cues:
            yield cue.latency_ms
        for check in block.structural.associations:
            for position in check.positions.values():
                yield position.latency_ms


def _query_ms(block: CaseBlock) -> Iterator[float]:
    if isinstance(block.structural, Structural):
        for check in block.structural.associations:
            if not isinstance(check.query, UnsetType):
                yield check.query.latency_ms


def _checks(block: CaseBlock) -> list[CitationCheck]:
    return block.citations.checks if isinstance(block.citations, Citations) else []


def _citation_ms(block: CaseBlock) -> Iterator[float]:
    for check in _checks(block):
        yield check.latency_ms


def _evidence_ms(block: CaseBlock) -> Iterator[float]:
    if not isinstance(block.evidence, UnsetType):
        yield block.evidence.latency_ms


def _passage_failed(block: CaseBlock) -> tuple[int, int]:
    return isinstance(block.passage, Failed), 1


def _structural_ran(block: CaseBlock) -> tuple[int, int]:
    return isinstance(block.structural, Structural), 1


def _citation_outcome(matches: Callable[[CitationCheck], bool]) -> Callable[..., tuple[int, int]]:
    def tally(block: CaseBlock) -> tuple[int, int]:
        checks = _checks(block)
        return sum(map(matches, checks)), len(checks)

    return tally


def _unresolved_as(code: str) -> Callable[[CitationCheck], bool]:
    return lambda check: check.outcome == "unresolved" and check.code == code


def _unresolved_otherwise(check: CitationCheck) -> bool:
    return check.outcome == "unresolved" and check.code not in ABSENT_CODES


def _section_match(block: CaseBlock) -> tuple[int, int]:
    sections = [c.section for c in _checks(block) if isinstance(c.section, SectionCheck)]
    declared = [section for section in sections if section.check != "not_checked"]
    return sum(section.check == "matched" for section in declared), len(declared)


def _quote_match(block: CaseBlock) -> tuple[int, int]:
    quotes = [check.quote for check in _checks(block) if isinstance(check.quote, QuoteCheck)]
    return sum(quote.matched for quote in quotes), len(quotes)


def _lanes(matches: Callable[[LaneCross], bool]) -> Callable[[CaseBlock], tuple[int, int]]:
    def tally(block: CaseBlock) -> tuple[int, int]:
        if not isinstance(block.lane_cross, LaneCross):
            return 0, 0
        return matches(block.lane_cross), 1

    return tally


def _omitted(block: CaseBlock) -> tuple[int, int]:
    if not isinstance(block.budget, BudgetUse):
        return 0, 0
    omitted = block.budget.omitted_total
    if isinstance(block.evidence, Assembled):
        reasons = block.evidence.omitted_by_reason
        by_reason = {} if isinstance(reasons, UnsetType) else reasons
        omitted = sum(by_reason.get(reason, 0) for reason in BUDGET_REASONS)
    return omitted, block.budget.omitted_total + block.budget.items_used


def _reranked(block: CaseBlock) -> tuple[int, int]:
    if not isinstance(block.evidence, Assembled) or not isinstance(block.evidence.reranker, dict):
        return 0, 0
    if block.evidence.reranker.get("reason") == "empty_pool":
        return 0, 0
    return block.evidence.reranker.get("ran") is True, 1


# -- the catalogue ---------------------------------------------------------------------------

_PASSAGE = "POST /contexts/{name}/sources/search, or /evidence in assembly mode"
_RESOLVE = "POST /contexts/{name}/resolve and /resolve_label"
_QUERY = "POST /contexts/{name}/query"
_CITATION = "POST /contexts/{name}/citations"
_EVIDENCE = "POST /contexts/{name}/evidence"
_UNDER_LOAD = "Depends on machine, network and load; comparable only between like runs."
_NO_ITEMS = "Only cases with an expected source of relevance 1 or more whose search answered."
_SHARED_HIT = "One hit may satisfy several items, so the quotient is capped at 1."


def _sampled(
    unit: Literal["ms", "ratio", "source", "item", "byte", "token"],
    samples: Callable[[CaseBlock], Iterable[float]],
    description: str,
    source: str,
    caveat: str | None = None,
    *,
    bounds_cases: bool = False,
) -> Sampled:
    definition = Definition(
        unit=unit,
        statistic="distribution",
        scopes=["case"],
        description=description,
        source=source,
        caveat=caveat,
    )
    return Sampled(definition=definition, samples=samples, bounds_cases=bounds_cases)


def _tallied(
    tally: Callable[[CaseBlock], tuple[int, int]],
    description: str,
    source: str,
    caveat: str | None = None,
    *,
    needs_rerank: bool = False,
) -> Tallied:
    definition = Definition(
        unit="ratio",
        statistic="ratio",
        scopes=["run"],
        description=description,
        source=source,
        caveat=caveat,
    )
    return Tallied(definition=definition, tally=tally, needs_rerank=needs_rerank)


#: Every metric by name, names sorted.
CATALOGUE: dict[str, Sampled | Tallied] = {
    "budget.bytes_used": _sampled(
        "byte",
        _budget("bytes_used"),
        "UTF-8 bytes that a case's admitted hits or evidence items take.",
        _PASSAGE,
        "Only cases with a budget block.",
    ),
    "budget.items_used": _sampled(
        "item",
        _budget("items_used"),
        "Hits or evidence items that a case's budget admitted.",
        _PASSAGE,
        "Only cases with a budget block.",
    ),
    "budget.omitted_rate": _tallied(
        _omitted,
        "Share of all candidates that were left out for the budget.",
        _PASSAGE,
        "In assembly mode other reasons for leaving an item out count in n alone.",
    ),
    "budget.tokens_used": _sampled(
        "token",
        _budget("tokens_used"),
        "Estimated tokens that a case's admitted hits or evidence items take.",
        _PASSAGE,
        "An estimate: a quarter token per ASCII character, one per other character.",
    ),
    "citations.locator_validity": _sampled(
        "ratio",
        _locator_validity,
        "Share of a case's citations that resolve, in the declared section, with the quote.",
        _CITATION,
        "Says nothing about whether the citation was served.",
        bounds_cases=True,
    ),
    "citations.no_paragraph": _tallied(
        _citation_outcome(_unresolved_as("no_paragraph")),
        "Share of citations whose source exists but not the paragraph.",
        _CITATION,
    ),
    "citations.no_source": _tallied(
        _citation_outcome(_unresolved_as("no_source")),
        "Share of citations whose source does not exist.",
        _CITATION,
    ),
    "citations.other": _tallied(
        _citation_outcome(_unresolved_otherwise),
        "Share of citations that could not be resolved for another reason.",
        _CITATION,
        "Mostly failed calls: look at the messages before the corpus.",
    ),
    "citations.quote_match": _tallied(
        _quote_match,
        "Share of resolved citations with a declared quote whose paragraph holds it.",
        _CITATION,
        "Both sides are folded first.",
    ),
    "citations.recall": _sampled(
        "ratio",
        _citation_recall,
        "Share of a case's citations that its hits or attributions served.",
        f"{_PASSAGE}; {_QUERY}",
        "Says nothing about whether the locator holds.",
        bounds_cases=True,
    ),
    "citations.resolved": _tallied(
        _citation_outcome(lambda check: check.outcome == "resolved"),
        "Share of citations that the server could resolve.",
        _CITATION,
    ),
    "citations.section_match": _tallied(
        _section_match,
        "Share of resolved citations with a declared section that lie in it.",
        _CITATION,
        "A declared null means: outside every section.",
    ),
    "coverage.associations": _sampled(
        "ratio",
        _coverage("associations"),
        "Share of a case's expected associations that the graph holds.",
        f"{_RESOLVE}; {_QUERY}",
        "An association whose positions do not each pin to one name is never queried.",
        bounds_cases=True,
    ),
    "coverage.concepts": _sampled(
        "ratio",
        _coverage("concepts"),
        "Share of a case's expected concepts among the names its cues resolve to.",
        _RESOLVE,
        "Names are folded before they are compared.",
        bounds_cases=True,
    ),
    "coverage.labels": _sampled(
        "ratio",
        _coverage("labels"),
        "Share of a case's expected labels among the names its cues resolve to.",
        _RESOLVE,
        "Names are folded before they are compared.",
        bounds_cases=True,
    ),
    "diversity.sources": _sampled(
        "source",
        _diversity,
        "Distinct sources among a case's hits.",
        _PASSAGE,
        "Not a quality by itself: a narrow question has few sources.",
        bounds_cases=True,
    ),
    "lanes.both": _tallied(
        _lanes(lambda cross: cross.structural_hit and cross.passage_hit),
        "Share of two-lane cases in which both lanes found something expected.",
        f"{_PASSAGE}; {_RESOLVE}; {_QUERY}",
    ),
    "lanes.neither": _tallied(
        _lanes(lambda cross: not cross.structural_hit and not cross.passage_hit),
        "Share of two-lane cases in which neither lane found anything expected.",
        f"{_PASSAGE}; {_RESOLVE}; {_QUERY}",
    ),
    "lanes.passage_hit": _tallied(
        _lanes(lambda cross: cross.passage_hit),
        "Share of two-lane cases in which the passage lane found an expected source.",
        _PASSAGE,
        "Only cases that expect something of both lanes.",
    ),
    "lanes.structural_hit": _tallied(
        _lanes(lambda cross: cross.structural_hit),
        "Share of two-lane cases in which the structural lane found something expected.",
        f"{_RESOLVE}; {_QUERY}",
        "Only cases that expect something of both lanes.",
    ),
    "latency.citation_ms": _sampled(
        "ms",
        _citation_ms,
        "Whole milliseconds of a citation call.",
        _CITATION,
        _UNDER_LOAD,
    ),
    "latency.evidence_ms": _sampled(
        "ms",
        _evidence_ms,
        "Whole milliseconds of an evidence call; none in baseline mode.",
        _EVIDENCE,
        _UNDER_LOAD,
    ),
    "latency.passage_ms": _sampled(
        "ms",
        _passage_ms,
        "Whole milliseconds of a case's passage call, failed ones too.",
        _PASSAGE,
        _UNDER_LOAD,
        bounds_cases=True,
    ),
    "latency.query_ms": _sampled(
        "ms",
        _query_ms,
        "Whole milliseconds of a query call.",
        _QUERY,
        _UNDER_LOAD,
    ),
    "latency.resolve_ms": _sampled(
        "ms",
        _resolve_ms,
        "Whole milliseconds of a resolve or resolve_label call, of cues and of positions.",
        _RESOLVE,
        _UNDER_LOAD,
    ),
    "passage.failure_rate": _tallied(
        _passage_failed,
        "Share of cases whose passage call failed.",
        _PASSAGE,
    ),
    "recall.mrr": _sampled(
        "ratio",
        _recall("mrr"),
        "Reciprocal rank of a case's first hit that matches an expected source, else 0.",
        _PASSAGE,
        _NO_ITEMS,
        bounds_cases=True,
    ),
    "recall.ndcg": _sampled(
        "ratio",
        _recall("ndcg"),
        "Normalised discounted cumulative gain of a case's hits, linear gain, log2 discount.",
        _PASSAGE,
        f"{_NO_ITEMS} {_SHARED_HIT}",
        bounds_cases=True,
    ),
    "recall.recall_at_k": _sampled(
        "ratio",
        _recall("recall_at_k"),
        "Share of a case's expected sources among its first k hits, k being its limit.",
        _PASSAGE,
        _NO_ITEMS,
        bounds_cases=True,
    ),
    "rerank.ran": _tallied(
        _reranked,
        "Share of assembled cases with a pool to order in which the asked reranker ran.",
        _EVIDENCE,
        "Only when a rerank model was asked for.",
        needs_rerank=True,
    ),
    "structural.case_rate": _tallied(
        _structural_ran,
        "Share of cases with a structural lane.",
        "the dataset",
        "Describes the dataset, not the server.",
    ),
}

#: The metrics that a bound on a single case may name, names sorted.
CASE_METRICS: dict[str, Sampled] = {
    name: metric
    for name, metric in CATALOGUE.items()
    if isinstance(metric, Sampled) and metric.bounds_cases
}


def definitions() -> dict[str, Definition]:
    """The `definitions` of evaluation.json."""
    return {name: metric.definition for name, metric in CATALOGUE.items()}


def case_value(metric: str, block: CaseBlock) -> float | None:
    """A case's own value of one of CASE_METRICS, or None if the case did not compute it."""
    return next((float(sample) for sample in CASE_METRICS[metric].samples(block)), None)


class Aggregation:
    """Aggregates over the cases fed so far.

    Without a reranker, what needs one is there with n = 0: the server says how the reranker fared
    even if none was asked for.
    """

    def __init__(self, *, rerank_asked: bool) -> None:
        self._collectors = {name: metric.collector() for name, metric in CATALOGUE.items()}
        self._fed = [
            self._collectors[name]
            for name, metric in CATALOGUE.items()
            if rerank_asked or not metric.needs_rerank
        ]

    def feed(self, block: CaseBlock) -> None:
        """Add one case."""
        for collector in self._fed:
            collector.feed(block)

    def results(self) -> dict[str, Statistic]:
        """One entry per definition, names sorted."""
        return {name: collector.result() for name, collector in self._collectors.items()}
