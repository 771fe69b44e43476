"""Two evaluation.json files: reading them leniently, and what changed between them.

Leniently about absence only: every field has a default and unknown ones are passed over, but a
field that is there must have its type. Only what a comparison looks at is read at all.
"""

from __future__ import annotations

import mmap
import re
from codecs import getincrementaldecoder
from contextlib import contextmanager
from math import isfinite
from operator import attrgetter, itemgetter
from pathlib import Path  # noqa: TC003 - msgspec resolves the annotations at run time
from time import gmtime, strftime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from .errors import InputError
from .statistics import TOLERANCE, PairedStatistics, paired_statistics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

#: Where a case holds its value of each metric that makes it better or worse, in the order in which
#: a change lists them.
_PLACES = {
    "recall.recall_at_k": "recall.recall_at_k",
    "recall.mrr": "recall.mrr",
    "recall.ndcg": "recall.ndcg",
    "coverage.concepts": "coverage.concepts.value",
    "coverage.labels": "coverage.labels.value",
    "coverage.associations": "coverage.associations.value",
    "citations.recall": "citations.recall.value",
    "citations.locator_validity": "citations.validity.value",
    "diversity.sources": "diversity_sources",
}
DECIDING = tuple(_PLACES)
STAMP = 1
FAIL_ON = ("regressed", "removed", "warnings")

_CHUNK = 1 << 15  # small enough for the decoded text to stay in the cache
_MOST_NAMED = 5
#: No score differs by as much; the statistics leave such a pair out, as its powers overflow.
_ABSURD = 1e60

_Natural = Annotated[int, Meta(ge=0)]

# -- what is read ----------------------------------------------------------------------------


def _check_width(*numbers: int) -> None:
    if max(numbers) >> 64:
        raise ValueError("a number is out of range")


class Revision(Struct, frozen=True, kw_only=True):
    """The three counters of a corpus."""

    graph: _Natural = 0
    passages: _Natural = 0
    config: _Natural = 0

    def __post_init__(self) -> None:
        _check_width(self.graph, self.passages, self.config)


class _Budget(Struct, frozen=True, kw_only=True):
    max_items: _Natural = 0
    max_bytes: _Natural = 0
    max_tokens: _Natural = 0

    def __post_init__(self) -> None:
        _check_width(self.max_items, self.max_bytes, self.max_tokens)

    def __str__(self) -> str:
        return (
            f"max_items {self.max_items}, max_bytes {self.max_bytes}, max_tokens {self.max_tokens}"
        )


class Selection(Struct, frozen=True, kw_only=True):
    """How many of the dataset's cases were asked for, in a run that left some out."""

    selected: _Natural = 0
    total: _Natural = 0


class _EvalInput(Struct, frozen=True, kw_only=True):
    name: str | None = None


class _Inputs(Struct, frozen=True, kw_only=True):
    eval: _EvalInput = _EvalInput()
    context: str = ""
    budget: _Budget | None = None
    selection: Selection | None = None


class _Corpus(Struct, frozen=True, kw_only=True):
    revision_after: Revision = Revision()
    stable: bool = False


class _Thresholds(Struct, frozen=True, kw_only=True):
    sha256: str = ""


class _Definition(Struct, frozen=True, kw_only=True):
    statistic: str = ""


# Absent is a shared empty block and only a written null is None: see _rows.


class _Recall(Struct, frozen=True, gc=False):
    recall_at_k: float | None = None
    mrr: float | None = None
    ndcg: float | None = None


class _Valued(Struct, frozen=True, gc=False):
    value: float | None = None


class _Coverage(Struct, frozen=True, gc=False):
    concepts: _Valued | None = _Valued()
    labels: _Valued | None = _Valued()
    associations: _Valued | None = _Valued()


class _Citations(Struct, frozen=True, gc=False):
    recall: _Valued = _Valued()
    validity: _Valued = _Valued()


class _Case(Struct, frozen=True, gc=False):
    case_id: str = ""
    recall: _Recall | None = _Recall()
    coverage: _Coverage | None = _Coverage()
    citations: _Citations | None = _Citations()
    diversity_sources: float | None = None


class _Document(Struct, frozen=True, kw_only=True):
    taguru_evaluation: _Natural
    generated_at: str = ""
    inputs: _Inputs = _Inputs()
    corpus: _Corpus = _Corpus()
    thresholds: _Thresholds | None = None
    definitions: dict[str, _Definition] = {}
    cases: list[_Case] = []
    metrics: dict[str, Any] = {}


class _Distribution(Struct, frozen=True, kw_only=True):
    n: _Natural = 0
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None
    mean: float | None = None
    sum: float | None = None

    @property
    def scalar(self) -> float | None:
        return self.mean


class _Count(Struct, frozen=True, kw_only=True):
    n: _Natural = 0
    value: float | None = None

    @property
    def scalar(self) -> float | None:
        return self.value


class _Ratio(_Count, frozen=True, kw_only=True):
    numerator: _Natural | None = None


_SHAPES: dict[str, type[_Distribution | _Count]] = {
    "distribution": _Distribution,
    "ratio": _Ratio,
    "count": _Count,
}
_DECODER = msgspec.json.Decoder(_Document)
_CASE_DECODER = msgspec.json.Decoder(_Case)


class Artifact(Struct, frozen=True, kw_only=True):
    """One side of a comparison; `shown` is its path as the user gave it."""

    shown: str
    document: _Document


def read_artifact(file: Path, shown: str) -> Artifact:
    """Read what a comparison needs of an evaluation.json.

    Raises InputError naming the file and the place: unreadable, not UTF-8, not JSON, a field of
    the wrong type, or a stamp other than 1.
    """
    with opened(file, shown) as content:
        document: _Document = decode(content, shown, _DECODER)
        check_stamp(document.taguru_evaluation, shown)
    return Artifact(shown=shown, document=document)


def check_stamp(stamp: int, shown: str) -> None:
    """Raise InputError if an artifact is of another version of the format."""
    if stamp != STAMP:
        raise InputError(
            f"{shown}: taguru_evaluation is {stamp}, and this version reads {STAMP} only"
        )


def artifact_of(shown: str, document: Mapping[str, Any], cases: Iterable[bytes]) -> Artifact:
    """The same of a run that is not written yet: its keys but `cases`, and its encoded blocks."""
    read = msgspec.convert(document, _Document)
    return Artifact(shown=shown, document=replace(read, cases=[*map(_CASE_DECODER.decode, cases)]))


@contextmanager
def opened(file: Path, shown: str) -> Iterator[bytes | mmap.mmap]:
    """The bytes of a file, mapped where that is possible: a copy costs as much as parsing it."""
    mapped: mmap.mmap | None = None
    try:
        with file.open("rb") as stream:
            try:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError):  # a pipe, or nothing in it
                content = stream.read()
    except OSError as error:
        raise InputError(f"{shown}: cannot be read: {error.strerror or error}") from None
    if mapped is None:
        yield content
        return
    with mapped:
        yield mapped


def decode(content: bytes | mmap.mmap, shown: str, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Parse an artifact with a decoder, or raise InputError with the place of the fault."""
    _check_encoding(content, shown)
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as error:
        raise InputError(f"{shown}: {_fault(str(error))}") from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InputError(f"{shown}: {_malformed(str(error), content)}") from None
    except RecursionError:
        raise InputError(f"{shown}: nested too deeply to be an evaluation.json") from None


def _check_encoding(content: bytes | mmap.mmap, shown: str) -> None:
    # msgspec does not look at the text that it passes over.
    decoder = getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), _CHUNK):
            decoder.decode(content[start : start + _CHUNK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise InputError(f"{shown}: not UTF-8") from None


_PLACE = re.compile(r"(?P<fault>.*) - at `\$\.?(?P<place>.*)`", re.S)
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`")
_BYTE = re.compile(r" \(byte (\d+)\)")
_WORDS = {
    "int": "an integer",
    "int | null": "an integer or null",
    "float": "a number",
    "float | null": "a number or null",
    "str": "a string",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "object | null": "an object or null",
    "null": "null",
    "int >= 0": "a whole number from 0",
}


def _fault(reason: str) -> str:
    """Msgspec's reason as `place: what is wrong`."""
    located = _PLACE.fullmatch(reason)
    fault, place = (located["fault"], located["place"]) if located else (reason, "")
    expected = _EXPECTED.fullmatch(fault)
    if expected:
        wanted, got = (_WORDS.get(kind, kind) for kind in (expected["wanted"], expected["got"]))
        fault = f"expected {wanted}, got {got}"
    elif "missing required field" in fault:
        place, fault = "taguru_evaluation", "required, but missing: not an evaluation.json"
    elif fault.startswith("Expected `int` >= 0"):
        fault = "expected a whole number from 0, got a negative one"
    else:
        fault = fault[:1].lower() + fault[1:]
    place = re.sub(r"\[\.\.\.\]", ".(any)", place)
    return f"{place}: {fault}" if place else fault


def _malformed(reason: str, content: bytes | mmap.mmap) -> str:
    if not len(content):
        return "the file is empty"
    if content[:3] == b"\xef\xbb\xbf":
        return "malformed JSON: starts with a byte order mark"
    if "truncated" in reason:
        return "malformed JSON: it ends too early, or has a broken escape"
    position = _BYTE.search(reason)
    where = ""
    if position:
        before = content[: int(position[1])]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        where = f" at line {line}, byte {column}"
    wording = _BYTE.sub("", reason).removeprefix("JSON is malformed: ")
    return f"malformed JSON{where}: {wording[:1].lower()}{wording[1:]}"


# -- what is found ---------------------------------------------------------------------------


class Sides(Struct, frozen=True, gc=False):
    """A value in both runs; null where a run has none."""

    base: float | None
    head: float | None


class Side(Struct, frozen=True, kw_only=True):
    """What identifies one of the two runs."""

    path: str
    context: str
    taguru_evaluation: int
    generated_at: str
    corpus_revision_after: Revision
    corpus_stable: bool
    thresholds_sha256: str | None


class Counts(Struct, frozen=True, kw_only=True):
    """How many cases went which way; the last two count ids, not records."""

    improved: int
    regressed: int
    added: int
    removed: int
    unchanged: int
    cases_base: int
    cases_head: int


class AggregateChange(Struct, frozen=True, kw_only=True):
    """An aggregate metric of both runs, moved or not."""

    metric: str
    statistic: str | None
    sides: Sides
    delta: float | None


Direction = Literal["improved", "regressed", "not_comparable"]


class MetricChange(Struct, frozen=True, gc=False):
    """A metric of a case that moved, or that only one run could have."""

    metric: str
    sides: Sides
    delta: float | None
    direction: Direction


class CaseChange(Struct, frozen=True, gc=False):
    """A case that is not as it was: one line of changes.jsonl."""

    kind: Literal["improved", "regressed", "added", "removed"]
    case_id: str
    metrics: list[MetricChange]


class Header(Struct, frozen=True, kw_only=True):
    """The first line of changes.jsonl; `statistics` is an addition of this project."""

    kind: Literal["header"] = "header"
    taguru_evaluation_changes: int = 1
    generated_at: str
    base: Side
    head: Side
    counts: Counts
    metrics: list[AggregateChange]
    statistics: list[PairedStatistics]
    warnings: list[str] | UnsetType = UNSET


class Comparison(Struct, frozen=True, kw_only=True):
    """All that is known of two runs side by side.

    `samples` has, per deciding metric, the n of the aggregate in BASE and in HEAD.
    """

    header: Header
    changes: list[CaseChange]
    samples: dict[str, tuple[int | None, int | None]]

    @property
    def warnings(self) -> list[str]:
        """What makes the two runs less comparable, none included."""
        return [] if isinstance(self.header.warnings, UnsetType) else self.header.warnings

    @property
    def counts(self) -> Counts:
        """How many cases went which way."""
        return self.header.counts

    @property
    def statistics(self) -> dict[str, PairedStatistics]:
        """The paired statistics by deciding metric."""
        return {entry.metric: entry for entry in self.header.statistics}

    def lines(self) -> bytes:
        """The content of changes.jsonl."""
        return msgspec.json.Encoder().encode_lines([self.header, *self.changes])


def compare(base: Artifact, head: Artifact) -> Comparison:
    """Set two runs against each other; any two artifacts can be compared."""
    warnings = [*_identity_warnings(base, head)]
    before, after = _Cases(base.document.cases), _Cases(head.document.cases)
    for name, side in (("BASE", before), ("HEAD", after)):
        warnings += (
            f"{name}: case_id {case_id!r} is repeated; its last case counts"
            for case_id in side.repeated()
        )
    pairs = _Pairs(before, after)
    changes = [*pairs.changes, *_one_sided("removed", before, after)]
    changes += _one_sided("added", after, before)
    changes.sort(key=attrgetter("case_id"))
    warnings += pairs.warnings()
    aggregates, samples = _aggregates(base.document, head.document, warnings)
    header = Header(
        generated_at=now(),
        base=_side(base),
        head=_side(head),
        counts=_counts(changes, before, after),
        metrics=aggregates,
        statistics=paired_statistics(pairs.differences),
        warnings=warnings or UNSET,
    )
    return Comparison(header=header, changes=changes, samples=samples)


def now() -> str:
    """The current time as artifacts and changes have it: UTC, to the second."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())


def _side(artifact: Artifact) -> Side:
    document = artifact.document
    return Side(
        path=artifact.shown,
        context=document.inputs.context,
        taguru_evaluation=document.taguru_evaluation,
        generated_at=document.generated_at,
        corpus_revision_after=document.corpus.revision_after,
        corpus_stable=document.corpus.stable,
        thresholds_sha256=_hash(document),
    )


def _counts(changes: list[CaseChange], before: _Cases, after: _Cases) -> Counts:
    kinds = [change.kind for change in changes]
    removed = kinds.count("removed")
    improved, regressed = kinds.count("improved"), kinds.count("regressed")
    return Counts(
        improved=improved,
        regressed=regressed,
        added=kinds.count("added"),
        removed=removed,
        unchanged=len(before.places) - removed - improved - regressed,
        cases_base=len(before.places),
        cases_head=len(after.places),
    )


def _hash(document: _Document) -> str | None:
    return None if document.thresholds is None else document.thresholds.sha256


def _identity_warnings(base: Artifact, head: Artifact) -> Iterator[str]:
    one, other = base.document, head.document
    if one.inputs.context != other.inputs.context:
        yield f"the contexts differ: BASE {one.inputs.context!r}, HEAD {other.inputs.context!r}"
    if one.corpus.revision_after != other.corpus.revision_after:
        yield "corpus.revision_after differs: the two runs did not see the same corpus"
    for name, side in (("BASE", base), ("HEAD", head)):
        if not side.document.corpus.stable:
            yield f"{name} {side.shown}: the corpus was written to during the run"
    hashes = [_hash(side) for side in (one, other)]
    if hashes[0] != hashes[1]:
        shown = ["none" if it is None else it[:12] for it in hashes]
        yield f"the thresholds files differ: BASE {shown[0]}, HEAD {shown[1]}"
    if one.inputs.budget != other.inputs.budget:
        budgets = [side.inputs.budget or "none" for side in (one, other)]
        yield f"the budgets differ: BASE {budgets[0]}; HEAD {budgets[1]}"
    for name, document in (("BASE", one), ("HEAD", other)):
        part = document.inputs.selection
        if part:
            yield f"{name}: only {part.selected} of {part.total} cases were selected for this run"


# -- case by case ----------------------------------------------------------------------------


#: A case's values of the deciding metrics, in their order.
_Row: TypeAlias = "tuple[float | None, ...]"
_row_of = attrgetter(*_PLACES.values())


def _rows(cases: list[_Case]) -> list[_Row]:
    try:
        return list(map(_row_of, cases))  # twice as fast as a loop, and this is where time goes
    except AttributeError:  # a null on the way to a value
        return [_row_of(_without_nulls(case)) for case in cases]


def _without_nulls(case: _Case) -> _Case:
    coverage, empty = case.coverage or _Coverage(), _Valued()
    return _Case(
        recall=case.recall or _Recall(),
        coverage=_Coverage(
            concepts=coverage.concepts or empty,
            labels=coverage.labels or empty,
            associations=coverage.associations or empty,
        ),
        citations=case.citations or _Citations(),
        diversity_sources=case.diversity_sources,
    )


class _Cases:
    """The cases of one side: `places` has where each id stands, its last case if repeated."""

    def __init__(self, cases: list[_Case]) -> None:
        self.ids = [case.case_id for case in cases]
        self.rows = _rows(cases)
        self.places = {case_id: place for place, case_id in enumerate(self.ids)}

    def repeated(self) -> Iterator[str]:
        """Each id as often as it comes again."""
        if len(self.places) == len(self.ids):
            return
        seen: set[str] = set()
        for case_id in self.ids:
            if case_id in seen:
                yield case_id
            seen.add(case_id)


class _Pairs:
    """The cases of both sides, and where they differ.

    `differences` has per metric the number of pairs with a value on both sides, and HEAD minus
    BASE of those that moved; `changes` the cases in which a metric moved.
    """

    def __init__(self, before: _Cases, after: _Cases) -> None:
        ids, base, head = before.ids, before.rows, after.rows
        if ids != after.ids or len(before.places) < len(ids):
            ids = [case_id for case_id in before.places if case_id in after.places]
            base = [base[before.places[case_id]] for case_id in ids]
            head = [head[after.places[case_id]] for case_id in ids]
        self.changes: list[CaseChange] = []
        self._alone: list[tuple[str, str]] = []
        self._moved: dict[str, list[float]] = {name: [] for name in DECIDING}
        self._unpaired = dict.fromkeys(DECIDING, 0)
        for case_id, one, other in zip(ids, base, head, strict=True):
            if one != other:
                self._look_at(case_id, one, other)
        columns = zip(*base, strict=True) if base else [()] * len(DECIDING)
        self.differences = {
            name: (len(ids) - values.count(None) - self._unpaired[name], self._moved[name])
            for name, values in zip(DECIDING, columns, strict=True)
        }

    def _look_at(self, case_id: str, before: _Row, after: _Row) -> None:
        moved: list[MetricChange] = []
        kind: Literal["improved", "regressed"] = "improved"
        for name, base, head in zip(DECIDING, before, after, strict=True):
            if base == head:
                continue
            if base is None or head is None:
                self._alone.append((case_id, name))
                self._unpaired[name] += base is not None
                continue
            delta = head - base
            if abs(delta) <= TOLERANCE:
                continue
            if delta < 0:
                kind = "regressed"  # outweighs all that got better
            direction: Direction = "regressed" if delta < 0 else "improved"
            moved.append(MetricChange(name, Sides(base, head), delta, direction))
            if abs(delta) < _ABSURD:
                self._moved[name].append(delta)
            else:
                self._unpaired[name] += 1
        if moved:
            self.changes.append(CaseChange(kind, case_id, moved))

    def warnings(self) -> list[str]:
        """A line for each metric of a pair that only one side has, sorted by case."""
        return [
            f"case {case_id!r}: {name} has a value on one side only and decides nothing"
            for case_id, name in sorted(self._alone, key=itemgetter(0))
        ]


def _one_sided(
    kind: Literal["added", "removed"], side: _Cases, other: _Cases
) -> Iterator[CaseChange]:
    if side.places.keys() == other.places.keys():
        return
    for case_id, place in side.places.items():
        if case_id in other.places:
            continue
        yield CaseChange(
            kind,
            case_id,
            [
                MetricChange(
                    name,
                    Sides(value, None) if kind == "removed" else Sides(None, value),
                    None,
                    "not_comparable",
                )
                for name, value in zip(DECIDING, side.rows[place], strict=True)
                if value is not None
            ],
        )


class Earlier:
    """The cases of an earlier run, to set single cases of a later one against."""

    def __init__(self, artifact: Artifact) -> None:
        self._cases = _Cases(artifact.document.cases)

    def regressions(self, case_id: str, values: Mapping[str, float]) -> list[MetricChange]:
        """The deciding metrics in which a case got worse; `values` has those that it computed."""
        place = self._cases.places.get(case_id)
        if place is None:
            return []
        return [
            MetricChange(name, Sides(before, values[name]), values[name] - before, "regressed")
            for name, before in zip(DECIDING, self._cases.rows[place], strict=True)
            if before is not None and name in values and values[name] - before < -TOLERANCE
        ]


# -- aggregates ------------------------------------------------------------------------------


def _aggregates(
    base: _Document, head: _Document, warnings: list[str]
) -> tuple[list[AggregateChange], dict[str, tuple[int | None, int | None]]]:
    found: list[AggregateChange] = []
    samples: dict[str, tuple[int | None, int | None]] = {}
    for name in sorted({*base.metrics, *head.metrics}):
        one = _aggregate("BASE", base, name, warnings)
        other = _aggregate("HEAD", head, name, warnings)
        if name in DECIDING:
            samples[name] = one.n if one else None, other.n if other else None
        before, after = one.scalar if one else None, other.scalar if other else None
        if before is None and after is None:
            continue
        definition = head.definitions.get(name) or base.definitions.get(name)
        found.append(
            AggregateChange(
                metric=name,
                statistic=definition.statistic if definition else None,
                sides=Sides(before, after),
                delta=None if before is None or after is None else after - before,
            )
        )
    return found, samples


def _aggregate(
    label: str, document: _Document, name: str, warnings: list[str]
) -> _Distribution | _Count | None:
    """An aggregate in the shape that its own side defines; else a warning and None."""
    if name not in document.metrics:
        return None
    definition = document.definitions.get(name)
    if definition is None:
        warnings.append(f"{label}: metric {name!r} is not among the definitions and is left out")
        return None
    shape = _SHAPES.get(definition.statistic)
    if shape is None:
        warnings.append(
            f"{label}: metric {name!r} is defined by {definition.statistic!r}, which is not one of"
            f" {', '.join(_SHAPES)}; it is left out"
        )
        return None
    try:
        return msgspec.convert(document.metrics[name], shape)
    except msgspec.ValidationError as error:
        warnings.append(
            f"{label}: metric {name!r} is no {definition.statistic}: {_fault(str(error))}"
        )
        return None


# -- reasons to fail, for those who ask ------------------------------------------------------


def parse_max_drops(texts: Iterable[str], flag: str) -> dict[str, float]:
    """How far each metric may drop, from METRIC=VALUE; `flag` is what they were given with.

    Raises InputError with a line per problem.
    """
    found: dict[str, float] = {}
    problems: list[str] = []
    for text in texts:
        try:
            metric, drop = _parse_max_drop(text)
        except InputError as error:
            problems += (f"{flag}: {problem}" for problem in error.problems)
            continue
        if metric in found:
            problems.append(f"{flag}: {metric} is given twice")
        found[metric] = drop
    if problems:
        raise InputError(*problems)
    return found


def _parse_max_drop(text: str) -> tuple[str, float]:
    metric, equals, value = text.partition("=")
    metric = metric.strip()
    if not equals:
        raise InputError(f"{text!r}: expected METRIC=VALUE, like recall.ndcg=0.02")
    if metric not in DECIDING:
        raise InputError(f"{metric!r} is not a metric that can drop; one of: {', '.join(DECIDING)}")
    try:
        drop = float(value)
    except ValueError:
        drop = -1.0
    if not isfinite(drop) or drop < 0:
        raise InputError(f"{metric}: {value!r} is not a drop; give a number from 0, like 0.02")
    return metric, drop


def reasons(
    comparison: Comparison, fail_on: Collection[str], max_drop: Mapping[str, float]
) -> list[str]:
    """Why a comparison does not pass, one line each; empty if it does.

    `fail_on` holds names of FAIL_ON; `max_drop` says how far a deciding metric's mean over the
    paired cases may fall. A metric without a paired case cannot be judged, which is a reason.
    """
    found: list[str] = []
    for kind in ("regressed", "removed"):
        ids = [change.case_id for change in comparison.changes if change.kind == kind]
        if kind in fail_on and ids:
            found.append(f"{len(ids)} case(s) {kind}: {_named(ids)}")
    if "warnings" in fail_on and comparison.warnings:
        found.append(f"{len(comparison.warnings)} warning(s), first: {comparison.warnings[0]}")
    for metric in sorted(max_drop, key=DECIDING.index):
        entry = comparison.statistics[metric]
        if entry.mean_difference is None:
            found.append(f"{metric}: no paired case has it, so its drop cannot be judged")
        elif -entry.mean_difference > max_drop[metric] + TOLERANCE:
            found.append(
                f"{metric}: fell by {-entry.mean_difference:.6f} on average over {entry.n} paired"
                f" case(s), more than {max_drop[metric]:g}"
            )
    return found


def _named(ids: list[str]) -> str:
    more = f", and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return ", ".join(ids[:_MOST_NAMED]) + more
