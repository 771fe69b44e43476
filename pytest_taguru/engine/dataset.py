"""eval.jsonl: the labelled questions, read strictly, every problem with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from .errors import InputError
from .strict import WHITE_SPACE, Fault, FaultsError, NonBlank, decode

#: How many problems of one file are shown; the rest is counted.
SHOWN_PROBLEMS = 20
#: Hits asked of a passage search when the case does not say.
DEFAULT_LIMIT = 10

_EPOCH_MAX = 2**64 - 1
Paragraph = Annotated[int, Meta(ge=0, le=2**32 - 1, description="an integer from 0 to 4294967295")]
Relevance = Annotated[int, Meta(ge=0, le=3, description="an integer from 0 to 3")]
Limit = Annotated[int, Meta(ge=1, le=1000, description="an integer from 1 to 1000")]
# The bounds are those of the 32-bit value: half a unit in the last place still rounds inside.
Floor = Annotated[float, Meta(ge=-(2.0**-150), le=1 + 2.0**-24, description="a number from 0 to 1")]
# msgspec has no upper bound past 63 bits; _past_types checks it.
Epoch = Annotated[
    int,
    Meta(
        ge=0,
        description="an integer from 0 to 18446744073709551615",
        extra_json_schema={"maximum": _EPOCH_MAX},
    ),
]


class Header(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of eval.jsonl."""

    taguru_eval: Literal[1]
    name: str | None = None
    default_target: Any = None

    @property
    def default_context(self) -> str | None:
        """`default_target.context`, when that is a string that is not blank."""
        if isinstance(self.default_target, dict):
            context = self.default_target.get("context")
            if isinstance(context, str) and context.strip(WHITE_SPACE):
                return context
        return None


class ExpectedSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A source that should be among the hits; no paragraphs means any paragraph of it."""

    source: NonBlank
    paragraphs: list[Paragraph] = []
    relevance: Relevance = 1

    def matches(self, source: str, paragraph: int | None) -> bool:
        """Whether a hit is one of these; a hit without a paragraph matches only a whole source."""
        return source == self.source and (not self.paragraphs or paragraph in self.paragraphs)


class ExpectedAssociation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An edge of the graph, by the cues that should resolve to its three positions."""

    subject: NonBlank
    label: NonBlank
    object: NonBlank


class ExpectedCitation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A locator to check. `section` is three-valued: absent, null (outside every section), name."""

    source: NonBlank
    paragraph: Paragraph
    section: str | UnsetType | None = UNSET
    quote: NonBlank | None = None


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the passage search is asked for, beside the query."""

    limit: Limit | None = None
    floor: Floor | None = None
    tags: list[str] | None = None
    since: Epoch | None = None
    until: Epoch | None = None


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One labelled question: every line of eval.jsonl but the first."""

    case_id: NonBlank
    query: NonBlank
    cues: list[str] = []
    expected_sources: list[ExpectedSource] = []
    expected_concepts: list[str] = []
    expected_labels: list[NonBlank] | None = None
    expected_associations: list[ExpectedAssociation] | None = None
    expected_citations: list[ExpectedCitation] | None = None
    options: Options = Options()

    @property
    def limit(self) -> int:
        """How many hits this case asks for."""
        return DEFAULT_LIMIT if self.options.limit is None else self.options.limit

    @property
    def effective_cues(self) -> list[str]:
        """The declared cues, else the query."""
        return self.cues or [self.query]

    @property
    def relevant_sources(self) -> list[ExpectedSource]:
        """The expected sources that count as evidence: relevance 1 or more."""
        return [item for item in self.expected_sources if item.relevance >= 1]

    @property
    def is_structural(self) -> bool:
        """Whether the case expects anything of the graph."""
        return bool(self.expected_concepts or self.expected_labels or self.expected_associations)


class Dataset(Struct, frozen=True, kw_only=True):
    """A whole eval.jsonl. `lines[i]` is the 1-based line of `cases[i]`."""

    path: str
    header: Header
    header_line: int
    cases: tuple[Case, ...]
    lines: tuple[int, ...]


_HEADER = msgspec.json.Decoder(Header)
_CASE = msgspec.json.Decoder(Case)


def load_dataset(file: Path, shown: str) -> Dataset:
    """Read eval.jsonl; `shown` is the path as the user gave it, for messages and the artifact.

    Raises InputError with a line per problem (the first SHOWN_PROBLEMS, then a count).
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        place = "" if Path(shown).is_absolute() else f" ({file})"
        raise InputError(f"{shown}: cannot be read: {error.strerror or error}{place}") from None
    return parse_dataset(content, shown)


def parse_dataset(content: bytes, shown: str) -> Dataset:
    """The same from the file's bytes."""
    header: Header | None = None
    header_line = 1
    cases: list[Case] = []
    lines: list[int] = []
    problems: list[str] = []
    first_seen: dict[str, int] = {}
    is_first = True
    for number, raw in enumerate(content.split(b"\n"), start=1):
        try:
            text = raw.decode("utf-8").strip(WHITE_SPACE)
        except UnicodeDecodeError:
            problems.append(f"{shown}: line {number}: not UTF-8")
            is_first = False
            continue
        if not text:
            continue
        where = f"{shown}: line {number}"
        begins, is_first = is_first, False
        try:
            if begins:
                header, header_line = decode(text, _HEADER), number
                continue
            case = decode(text, _CASE)
        except FaultsError as error:
            if begins and _looks_like_a_case(error.value):
                problems.append(
                    f'{where}: expected the header, like {{"taguru_eval": 1}}, but this has a'
                    " case_id: it is a case"
                )
                continue
            where += _named(error.value)
            problems += (f"{where}: {fault}" for fault in error.faults)
            continue
        where += f": case {case.case_id!r}"
        problems += (f"{where}: {fault}" for fault in _past_types(case))
        earlier = first_seen.setdefault(case.case_id, number)
        if earlier != number:
            problems.append(f"{where}: case_id: already used in line {earlier}")
        cases.append(case)
        lines.append(number)
    if not problems:
        if header is None:
            problems.append(f"{shown}: empty: a header line and at least one case are needed")
        elif not cases:
            problems.append(f"{shown}: no case after the header")
    if problems or header is None:
        raise InputError(*_bounded(problems, shown))
    return Dataset(
        path=shown,
        header=header,
        header_line=header_line,
        cases=tuple(cases),
        lines=tuple(lines),
    )


def _looks_like_a_case(value: object) -> bool:
    return isinstance(value, dict) and "case_id" in value and "taguru_eval" not in value


def _named(value: object) -> str:
    case_id = value.get("case_id") if isinstance(value, dict) else getattr(value, "case_id", None)
    named = isinstance(case_id, str) and case_id.strip(WHITE_SPACE)
    return f": case {case_id!r}" if named else ""


def _past_types(case: Case) -> list[Fault]:
    """What the types cannot say."""
    return [
        Fault(f"options.{name}", f"expected an integer from 0 to {_EPOCH_MAX}")
        for name in ("since", "until")
        if (getattr(case.options, name) or 0) > _EPOCH_MAX
    ]


def _bounded(problems: list[str], shown: str) -> list[str]:
    more = len(problems) - SHOWN_PROBLEMS
    if more <= 0:
        return problems
    return [*problems[:SHOWN_PROBLEMS], f"{shown}: {more} more problem{'s' if more > 1 else ''}"]
