"""thresholds.json: bounds on the whole set and on single cases, and how they are judged."""

from __future__ import annotations

import hashlib
from pathlib import Path  # noqa: TC003 - msgspec resolves the annotations at run time
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .errors import InputError
from .metrics import CASE_METRICS, CATALOGUE, Statistic, case_value
from .strict import FaultsError, decode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from .blocks import CaseBlock

STABILITY = "corpus.stable"
_ABSENT = (
    "is not among the artifact's metrics: another release may have written it, so evaluate again"
)


class Bound(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The range a metric's scalar must lie in, ends included; at least one end."""

    min: float | None = None
    max: float | None = None


class CaseBounds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on single cases; an override replaces the whole bound of its metric."""

    default: dict[str, Bound] = {}
    overrides: dict[str, dict[str, Bound]] = {}


class Thresholds(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The thresholds file."""

    taguru_evaluate_thresholds: Literal[1]
    aggregate: dict[str, Bound] = {}
    cases: CaseBounds = CaseBounds()
    allow_unstable_corpus: bool = False


class Violation(Struct, frozen=True, kw_only=True):
    """One broken bound. Without `bound` the metric could not be judged, which is a violation."""

    scope: Literal["aggregate", "case", "corpus"]
    case_id: str | UnsetType = UNSET
    metric: str
    bound: Literal["min", "max"] | UnsetType = UNSET
    threshold: float | UnsetType = UNSET
    actual: float | None
    reason: str

    def __str__(self) -> str:
        return f"{self.metric} {self.reason}"


class Report(Struct, frozen=True, kw_only=True):
    """The `thresholds` of evaluation.json."""

    sha256: str
    passed: bool
    allow_unstable_corpus: bool
    violations: list[Violation] | UnsetType = UNSET
    skipped: list[str] | UnsetType = UNSET

    @property
    def broken(self) -> list[Violation]:
        """The violations, none included."""
        return [] if isinstance(self.violations, UnsetType) else self.violations


_DECODER = msgspec.json.Decoder(Thresholds)


class Gate:
    """A thresholds file, ready to judge."""

    def __init__(self, thresholds: Thresholds, sha256: str) -> None:
        self.thresholds = thresholds
        self.sha256 = sha256
        self._default = dict(sorted(thresholds.cases.default.items()))

    @property
    def bounds_latency(self) -> bool:
        """Whether any bound is on a latency, which a loaded client would distort."""
        names = {*self.thresholds.aggregate, *self.thresholds.cases.default}
        names.update(*self.thresholds.cases.overrides.values())
        return any(name.startswith("latency.") for name in names)

    def judge_case(self, block: CaseBlock) -> tuple[list[Violation], list[str]]:
        """A case's violations, and a sentence for each bound it has no value for."""
        bounds = self._default
        overrides = self.thresholds.cases.overrides.get(block.case_id)
        if overrides:
            bounds = dict(sorted({**bounds, **overrides}.items()))
        violations: list[Violation] = []
        skipped: list[str] = []
        for metric, bound in bounds.items():
            actual = case_value(metric, block)
            if actual is None:
                skipped.append(
                    f"case '{block.case_id}': '{metric}' not applicable — the case did not declare"
                    " the matching expectation, or its lane did not complete"
                )
                continue
            broken = _broken(bound, actual)
            if broken:
                end, threshold, reason = broken
                violations.append(
                    Violation(
                        scope="case",
                        case_id=block.case_id,
                        metric=metric,
                        bound=end,
                        threshold=threshold,
                        actual=actual,
                        reason=reason,
                    )
                )
        return violations, skipped

    def judge_aggregate(self, metric: str, statistic: Statistic | None) -> Violation | None:
        """The violation of one aggregate bound, if any. No samples is one, no statistic another."""
        actual = None if statistic is None else statistic.scalar
        if actual is None:
            reason = _ABSENT if statistic is None else "no samples for this metric (n=0)"
            return Violation(scope="aggregate", metric=metric, actual=None, reason=reason)
        broken = _broken(self.thresholds.aggregate[metric], actual)
        if not broken:
            return None
        end, threshold, reason = broken
        return Violation(
            scope="aggregate",
            metric=metric,
            bound=end,
            threshold=threshold,
            actual=actual,
            reason=reason,
        )

    def judge_stability(self, *, stable: bool) -> Violation | None:
        """The violation of a corpus that changed under the run, unless that is allowed."""
        if stable or self.thresholds.allow_unstable_corpus:
            return None
        return Violation(
            scope="corpus",
            metric=STABILITY,
            actual=None,
            reason="the corpus was written to during the run, so its cases saw different corpora",
        )


class Judgement:
    """A gate applied to a run: cases as they come, in the order of the dataset, then the rest."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._violations: list[Violation] = []
        self._skipped: list[str] = []

    def case(self, block: CaseBlock) -> None:
        """Judge one case."""
        violations, skipped = self._gate.judge_case(block)
        self._violations += violations
        self._skipped += skipped

    @property
    def case_violations(self) -> tuple[Violation, ...]:
        """The violations of bounds on single cases so far."""
        return tuple(self._violations)

    def report(
        self, metrics: Mapping[str, Statistic], *, stable: bool, selection: tuple[int, int] | None
    ) -> Report:
        """The report. A run has all `metrics`, an artifact of another release perhaps not.

        `selection` is (selected, total) when only some cases were asked for: bounds on the whole
        set are then skipped.
        """
        gate, aggregate, skipped = self._gate, list[Violation](), self._skipped
        if selection is None:
            for metric in sorted(gate.thresholds.aggregate):
                violation = gate.judge_aggregate(metric, metrics.get(metric))
                if violation:
                    aggregate.append(violation)
        else:
            selected, total = selection
            skipped = [
                f"aggregate '{metric}' not judged — {selected} of {total} cases were selected,"
                " and the bound is meant for the whole set"
                for metric in sorted(gate.thresholds.aggregate)
            ] + skipped
        unstable = gate.judge_stability(stable=stable)
        violations = aggregate + self._violations + ([unstable] if unstable else [])
        return Report(
            sha256=gate.sha256,
            passed=not violations,
            allow_unstable_corpus=gate.thresholds.allow_unstable_corpus,
            violations=violations or UNSET,
            skipped=skipped or UNSET,
        )


def _broken(bound: Bound, actual: float) -> tuple[Literal["min", "max"], float, str] | None:
    if bound.min is not None and actual < bound.min:
        return "min", bound.min, f"{actual:.6f} < min {bound.min:.6f}"
    if bound.max is not None and actual > bound.max:
        return "max", bound.max, f"{actual:.6f} > max {bound.max:.6f}"
    return None


def load_gate(file: Path, shown: str, case_ids: Collection[str] | None) -> Gate:
    """Read a thresholds file; `shown` is its path as the user gave it.

    `case_ids` are those of the dataset, None if they are not known. Raises InputError with a line
    per problem.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{shown}: cannot be read: {error.strerror or error}") from None
    declared: object = None
    thresholds: Thresholds | None = None
    problems: list[str] = []
    try:
        declared = thresholds = decode(content.decode("utf-8"), _DECODER)
    except UnicodeDecodeError:
        problems.append("not UTF-8")
    except FaultsError as error:
        problems += map(str, error.faults)
        declared = error.value
    problems += _problems(msgspec.to_builtins(declared), case_ids)
    if problems or thresholds is None:
        raise InputError(*(f"{shown}: {problem}" for problem in problems))
    return Gate(thresholds, hashlib.sha256(content).hexdigest())


def _problems(declared: object, case_ids: Collection[str] | None) -> Iterator[str]:
    """What the types cannot say, as far as the file has their shape: the rest is told already."""
    file = _members(declared)
    cases = _members(file.get("cases"))
    for metric, bound in _members(file.get("aggregate")).items():
        if metric not in CATALOGUE:
            yield f"aggregate: unknown metric {metric!r}"
        yield from _bound_problems("aggregate", metric, bound)
    yield from _case_problems("cases.default", cases.get("default"))
    for case_id, bounds in _members(cases.get("overrides")).items():
        place = f"cases.overrides.{case_id}"
        if case_ids is not None and case_id not in case_ids:
            yield f"{place}: the dataset has no case {case_id!r}"
        yield from _case_problems(place, bounds)


def _case_problems(place: str, bounds: object) -> Iterator[str]:
    for metric, bound in _members(bounds).items():
        if metric not in CATALOGUE:
            yield f"{place}: unknown metric {metric!r}"
        elif metric not in CASE_METRICS:
            yield f"{place}: {metric!r} is not a metric of single cases; bound it under aggregate"
        yield from _bound_problems(place, metric, bound)


def _bound_problems(place: str, metric: str, declared: object) -> Iterator[str]:
    try:
        bound = msgspec.convert(declared, Bound)
    except msgspec.ValidationError:
        return
    if bound.min is None and bound.max is None:
        yield f"{place}: {metric}: needs min or max"
    elif bound.min is not None and bound.max is not None and bound.min > bound.max:
        yield f"{place}: {metric}: min {bound.min:g} is over max {bound.max:g}"


def _members(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
