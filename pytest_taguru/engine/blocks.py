"""The shape of one case in evaluation.json, key by key and in order.

What there are many of in a case is not followed by the garbage collector: values, and no cycles.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from .dataset import Paragraph

Tier = Literal["lexical", "semantic"]
Lane = Literal["passage", "evidence", "resolve", "query", "citation"]


class Locator(Struct, frozen=True, gc=False):
    """A paragraph of a source; an attribution may name the source alone."""

    source: str
    paragraph: Paragraph | None = None


# -- passage ---------------------------------------------------------------------------------


class LaneScore(Struct, frozen=True, gc=False):
    """Where one search lane ranked a hit, and the lane's own score (never used for scoring)."""

    rank: int
    score: float


class HitLanes(Struct, frozen=True, gc=False, omit_defaults=True):
    """The lanes that served a hit."""

    bm25: LaneScore | None = None
    vector: LaneScore | None = None


class Hit(Struct, frozen=True, gc=False):
    """One passage that was served, without its text."""

    source: str
    paragraph: Paragraph
    score: float
    lanes: HitLanes


class PlanLane(Struct, frozen=True, omit_defaults=True):
    """Whether a search lane ran, and why not."""

    ran: bool
    reason: str | None = None
    floor: float | None = None


class PlanLanes(Struct, frozen=True):
    """The two search lanes."""

    bm25: PlanLane
    vector: PlanLane


class PlanFilter(Struct, frozen=True):
    """What tags and dates left to search."""

    eligible_sources: int
    total_sources: int


class Plan(Struct, frozen=True, omit_defaults=True):
    """What the server did for one context."""

    context: str
    lanes: PlanLanes
    filter: PlanFilter | None = None


class Searched(Struct, frozen=True, kw_only=True, tag_field="outcome", tag="searched"):
    """A passage lane that answered."""

    plan: Plan | UnsetType = UNSET
    hits: list[Hit]
    latency_ms: int


class Failed(Struct, frozen=True, kw_only=True, tag_field="outcome", tag="failed"):
    """A lane whose call failed."""

    message: str
    latency_ms: int


# -- structural ------------------------------------------------------------------------------


class CueResolution(Struct, frozen=True, kw_only=True):
    """One cue and the names it resolved to, in one tier."""

    cue: str
    kind: Literal["concept", "label"]
    resolved_names: list[str]
    tier: Tier | UnsetType = UNSET
    limit: int
    latency_ms: int
    error: str | UnsetType = UNSET


class Resolved(Struct, frozen=True, kw_only=True, tag_field="outcome", tag="resolved"):
    """A position with exactly one candidate."""

    name: str
    tier: Tier
    latency_ms: int


class NotFound(Struct, frozen=True, kw_only=True, tag_field="outcome", tag="not_found"):
    """A position without a candidate."""

    latency_ms: int


class Ambiguous(Struct, frozen=True, kw_only=True, tag_field="outcome", tag="ambiguous"):
    """A position with several candidates."""

    tier: Tier
    candidates: list[str]
    latency_ms: int


class Errored(Struct, frozen=True, kw_only=True, tag_field="outcome", tag="errored"):
    """A position or a query whose call failed."""

    message: str
    latency_ms: int


Position = Resolved | NotFound | Ambiguous | Errored


class Queried(Struct, frozen=True, kw_only=True, tag_field="outcome", tag="queried"):
    """A query that ran: how many associations there are, and where the first is attested."""

    total: int
    matches: int
    attributions: list[Locator] | UnsetType = UNSET
    latency_ms: int


class AssociationCheck(Struct, frozen=True, kw_only=True):
    """An expected association: its three positions and, if all resolved, the query."""

    subject_cue: str
    label_cue: str
    object_cue: str
    subject: Position
    label: Position
    object: Position
    query: Queried | Errored | UnsetType = UNSET

    @property
    def positions(self) -> dict[str, Position]:
        """The three positions by name, in the order they were resolved."""
        return {"subject": self.subject, "label": self.label, "object": self.object}

    @property
    def is_matched(self) -> bool:
        """Whether the graph holds the association."""
        return isinstance(self.query, Queried) and self.query.total >= 1


class Structural(Struct, frozen=True, kw_only=True):
    """The structural lane."""

    cues: list[CueResolution]
    associations: list[AssociationCheck]


# -- scores ----------------------------------------------------------------------------------


class RecallScores(Struct, frozen=True, kw_only=True):
    """How well the hits answer the expected sources."""

    recall_at_k: float
    mrr: float
    ndcg: float
    expected_total: int
    matched: int


class Share(Struct, frozen=True, kw_only=True):
    """How many of the expected names were found."""

    expected: int
    matched: int
    value: float


class Coverage(Struct, frozen=True, kw_only=True):
    """Shares per kind; a kind that the case does not expect is absent."""

    concepts: Share | UnsetType = UNSET
    labels: Share | UnsetType = UNSET
    associations: Share | UnsetType = UNSET


class LaneCross(Struct, frozen=True, kw_only=True):
    """Which lanes found something, for a case that expects something of both."""

    structural_hit: bool
    passage_hit: bool


class SectionCheck(Struct, frozen=True, kw_only=True):
    """Whether a citation lies in the declared section (null: outside every section)."""

    check: Literal["not_checked", "matched", "mismatched"]
    expected: str | UnsetType | None = UNSET


class QuoteCheck(Struct, frozen=True, kw_only=True):
    """Whether the cited paragraph holds the declared quote."""

    declared: str
    matched: bool


class CitationCheck(Struct, frozen=True, kw_only=True):
    """One expected citation: was it served, and does its locator hold."""

    source: str
    paragraph: int
    served: bool
    outcome: Literal["resolved", "unresolved"]
    section: SectionCheck | UnsetType = UNSET
    quote: QuoteCheck | UnsetType = UNSET
    code: str | UnsetType | None = UNSET
    message: str | UnsetType = UNSET
    latency_ms: int

    @property
    def is_valid(self) -> bool:
        """Whether it resolved, in the declared section, with the declared quote."""
        if self.outcome == "unresolved":
            return False
        if isinstance(self.section, SectionCheck) and self.section.check == "mismatched":
            return False
        return not isinstance(self.quote, QuoteCheck) or self.quote.matched


class ServedShare(Struct, frozen=True, kw_only=True):
    """Citation recall: served checks / checks."""

    expected_total: int
    matched: int
    value: float


class ValidShare(Struct, frozen=True, kw_only=True):
    """Locator validity: valid checks / checks."""

    expected_total: int
    valid: int
    value: float


class Citations(Struct, frozen=True, kw_only=True):
    """The citation lane."""

    recall: ServedShare
    validity: ValidShare
    checks: list[CitationCheck]


# -- assembly and budgets --------------------------------------------------------------------


class EvidenceItem(Struct, frozen=True, kw_only=True):
    """One item of an assembled package, without its text."""

    candidate_id: str
    kind: str
    fused_rank: int
    source: str | UnsetType = UNSET
    paragraph: int | UnsetType = UNSET
    citation_refs: list[Locator]


class Assembled(Struct, frozen=True, kw_only=True, tag_field="outcome", tag="assembled"):
    """An evidence package."""

    latency_ms: int
    items: list[EvidenceItem]
    omitted_by_reason: dict[str, int] | UnsetType = UNSET
    selection: Any
    reranker: Any


class Limits(Struct, frozen=True, kw_only=True):
    """The three ceilings of a budget: items, UTF-8 bytes, estimated tokens."""

    max_items: int
    max_bytes: int
    max_tokens: int


class BudgetUse(Struct, frozen=True, kw_only=True):
    """What a case's answer took of its budget."""

    items_used: int
    bytes_used: int
    tokens_used: int
    limits: Limits
    omitted_total: int


class CaseBlock(Struct, frozen=True, kw_only=True):
    """Everything that is recorded of one case."""

    case_id: str
    query: str
    cues: list[str] | UnsetType = UNSET
    limit: int
    passage: Searched | Failed
    structural: Structural | UnsetType = UNSET
    recall: RecallScores | UnsetType = UNSET
    coverage: Coverage | UnsetType = UNSET
    lane_cross: LaneCross | UnsetType = UNSET
    citations: Citations | UnsetType = UNSET
    missed: list[str]
    missed_truncated: int
    evidence: Assembled | Failed | UnsetType = UNSET
    budget: BudgetUse | UnsetType = UNSET
    diversity_sources: int | UnsetType = UNSET

    @property
    def is_unmet(self) -> bool:
        """Whether anything that the case expects was not found, or could not be looked for."""
        return bool(self.missed or self.failed_calls())

    def failed_calls(self) -> list[FailedCall]:
        """Every call that brought no answer, in the order they were made.

        A citation that the server knows not to exist is an answer.
        """
        found: list[FailedCall] = []
        if isinstance(self.passage, Failed):
            lane: Lane = "passage" if self.evidence is UNSET else "evidence"
            found.append(FailedCall(lane, self.passage.message))
        if isinstance(self.structural, Structural):
            for cue in self.structural.cues:
                if isinstance(cue.error, str):
                    found.append(FailedCall("resolve", cue.error))
            for check in self.structural.associations:
                for position in check.positions.values():
                    if isinstance(position, Errored):
                        found.append(FailedCall("resolve", position.message))
                if isinstance(check.query, Errored):
                    found.append(FailedCall("query", check.query.message))
        if isinstance(self.citations, Citations):
            for citation in self.citations.checks:
                if citation.outcome == "unresolved" and citation.code not in ABSENT_CODES:
                    found.append(FailedCall("citation", str(citation.message)))
        return found


class FailedCall(Struct, frozen=True):
    """A lane's call that failed, and why."""

    lane: Lane
    message: str


#: The codes of a 404 by which the server says that a locator points nowhere.
ABSENT_CODES = ("no_source", "no_paragraph")
