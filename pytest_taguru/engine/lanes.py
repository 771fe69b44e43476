"""The lanes of one case: the requests, one after the other, and what their answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Struct

from . import scoring
from .blocks import (
    Ambiguous,
    Assembled,
    AssociationCheck,
    BudgetUse,
    CitationCheck,
    CueResolution,
    Errored,
    EvidenceItem,
    Failed,
    Hit,
    HitLanes,
    Limits,
    Locator,
    NotFound,
    Plan,
    Position,
    Queried,
    QuoteCheck,
    Resolved,
    Searched,
    SectionCheck,
    Structural,
    Tier,
)
from .budget import DEFAULT_LIMITS, Served, admit, float32
from .client import Client, Failure, Reply, clip, segment
from .dataset import Paragraph

if TYPE_CHECKING:
    from .dataset import Case, ExpectedAssociation, ExpectedCitation

RESOLVE_LIMIT = 5
_TIERS: tuple[Tier, ...] = ("lexical", "semantic")


# -- answers of the server -------------------------------------------------------------------


class _PlanEntries(Struct):
    contexts: list[Plan]


class _ServedHit(Struct, gc=False):
    source: str
    paragraph: Paragraph
    score: float
    text: str
    lanes: HitLanes


class _Search(Struct):
    plan: _PlanEntries
    hits: list[_ServedHit]


class _Candidate(Struct, gc=False):
    name: str
    score: float
    tier: str


class _Match(Struct):
    attributions: list[Locator] = []


class _Query(Struct):
    matches: list[_Match]
    total: int


class _Citation(Struct):
    text: str
    source: str
    section: str | None = None


class _PassageRef(Struct):
    source: str
    paragraph: Paragraph


class _CommunityRef(Struct):
    community: str | int
    paragraph: Paragraph


class _Item(Struct):
    candidate_id: str
    kind: str
    fused_rank: int
    citation_refs: list[_PassageRef]
    passage: _PassageRef | None = None
    community: _CommunityRef | None = None

    def locator(self) -> tuple[str, int] | None:
        """The item's own place; an association has none."""
        if self.passage is not None:
            return self.passage.source, self.passage.paragraph
        if self.community is not None:
            return f"community:{self.community.community}", self.community.paragraph
        return None


class _Budget(Struct):
    items_used: int
    bytes_used: int
    tokens_used: int
    limits: Limits


class _EvidencePlan(Struct):
    selection: Any
    reranker: Any


class _Evidence(Struct):
    items: list[_Item]
    citations: list[Any]
    omitted_total: int
    omitted_by_reason: dict[str, int]
    budget: _Budget
    plan: _EvidencePlan


_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_CANDIDATES = msgspec.json.Decoder(list[_Candidate])
_QUERIED = msgspec.json.Decoder(_Query)
_CITED = msgspec.json.Decoder(_Citation)
_ASSEMBLED = msgspec.json.Decoder(_Evidence)


# -- the lanes -------------------------------------------------------------------------------


class Route(Struct, frozen=True, kw_only=True):
    """How the cases of a run are asked."""

    context: str
    assembly: bool = False
    limits: Limits | None = None
    rerank: str | None = None

    @property
    def mode(self) -> Literal["baseline", "assembly"]:
        """As evaluation.json names it."""
        return "assembly" if self.assembly else "baseline"

    @property
    def budget(self) -> Limits | None:
        """The ceilings in force: assembly always has some."""
        return self.limits or (DEFAULT_LIMITS if self.assembly else None)


class PassageResult(Struct, frozen=True, kw_only=True):
    """What the passage or the evidence call brought."""

    passage: Searched | Failed
    evidence: Assembled | Failed | None = None
    budget: BudgetUse | None = None

    @property
    def ranking(self) -> list[scoring.Locator]:
        """The locators of the hits in order; none if the call failed."""
        if isinstance(self.passage, Failed):
            return []
        return [(hit.source, hit.paragraph) for hit in self.passage.hits]


class Lanes:
    """Runs the lanes of one case after the other against one context."""

    def __init__(self, client: Client, route: Route) -> None:
        self._client = client
        self._route = route
        self._path = f"/contexts/{segment(route.context)}"

    # -- passage -----------------------------------------------------------------------------

    def passage(self, case: Case) -> PassageResult:
        """The passage search, or the evidence assembly that takes its place."""
        return self._assemble(case) if self._route.assembly else self._search(case)

    def _search(self, case: Case) -> PassageResult:
        options = case.options
        payload = {
            "query": case.query,
            "limit": case.limit,
            "semantic_floor": _floor(case),
            "tags": options.tags or [],
            "since": options.since,
            "until": options.until,
        }
        reply = self._client.post(f"{self._path}/sources/search", payload, _ANY)
        if isinstance(reply, Failure):
            return PassageResult(passage=Failed(message=reply.message, latency_ms=reply.latency_ms))
        read = _read_search(reply.result)
        if isinstance(read, str):
            message = clip(f"the search's result has another shape: {read}")
            return PassageResult(passage=Failed(message=message, latency_ms=reply.latency_ms))
        plan, served = read
        hits, budget = [one.hit for one in served], None
        if self._route.limits is not None:
            hits, budget = admit(served, self._route.context, self._route.limits)
        passage = Searched(plan=plan or UNSET, hits=hits, latency_ms=reply.latency_ms)
        return PassageResult(passage=passage, budget=budget)

    def _assemble(self, case: Case) -> PassageResult:
        payload = {
            "origins": case.effective_cues,
            "text_fallback_query": case.query,
            "search_limit": case.limit,
            "semantic_floor": _floor(case),
            "budget": self._route.budget,
        }
        if self._route.rerank is not None:
            payload["rerank"] = {"model": self._route.rerank}
        reply = self._client.post(f"{self._path}/evidence", payload, _ASSEMBLED)
        if isinstance(reply, Failure):
            failed = Failed(message=reply.message, latency_ms=reply.latency_ms)
            return PassageResult(passage=failed, evidence=failed)
        return _read_evidence(reply, case.limit)

    # -- structural --------------------------------------------------------------------------

    def structural(self, case: Case) -> Structural | None:
        """Cues and associations, if the case expects anything of the graph."""
        if not case.is_structural:
            return None
        cues: list[CueResolution] = []
        if case.expected_concepts:
            cues += [self._cue(cue, "concept") for cue in case.effective_cues]
        if case.expected_labels:
            cues += [self._cue(cue, "label") for cue in case.effective_cues]
        associations = [self._association(wanted) for wanted in case.expected_associations or []]
        return Structural(cues=cues, associations=associations)

    def _resolve(
        self, cue: str, kind: Literal["concept", "label"]
    ) -> Reply[list[_Candidate]] | Failure:
        route = "resolve" if kind == "concept" else "resolve_label"
        payload = {"cue": cue, "limit": RESOLVE_LIMIT}
        return self._client.post(f"{self._path}/{route}", payload, _CANDIDATES)

    def _cue(self, cue: str, kind: Literal["concept", "label"]) -> CueResolution:
        reply = self._resolve(cue, kind)
        names: list[str] = []
        tier: Tier | None = None
        if isinstance(reply, Reply):
            tier, names = _top_tier(reply.result)
        return CueResolution(
            cue=cue,
            kind=kind,
            resolved_names=names,
            tier=tier or UNSET,
            limit=RESOLVE_LIMIT,
            latency_ms=reply.latency_ms,
            error=reply.message if isinstance(reply, Failure) else UNSET,
        )

    def _position(self, cue: str, kind: Literal["concept", "label"]) -> Position:
        reply = self._resolve(cue, kind)
        if isinstance(reply, Failure):
            return Errored(message=reply.message, latency_ms=reply.latency_ms)
        tier, names = _top_tier(reply.result)
        if tier is None:
            return NotFound(latency_ms=reply.latency_ms)
        if len(names) == 1:
            return Resolved(name=names[0], tier=tier, latency_ms=reply.latency_ms)
        return Ambiguous(tier=tier, candidates=names, latency_ms=reply.latency_ms)

    def _association(self, wanted: ExpectedAssociation) -> AssociationCheck:
        subject = self._position(wanted.subject, "concept")
        label = self._position(wanted.label, "label")
        object_ = self._position(wanted.object, "concept")
        query: Queried | Errored | None = None
        if (
            isinstance(subject, Resolved)
            and isinstance(label, Resolved)
            and isinstance(object_, Resolved)
        ):
            query = self._query(subject.name, label.name, object_.name)
        return AssociationCheck(
            subject_cue=wanted.subject,
            label_cue=wanted.label,
            object_cue=wanted.object,
            subject=subject,
            label=label,
            object=object_,
            query=query or UNSET,
        )

    def _query(self, subject: str, label: str, object_: str) -> Queried | Errored:
        payload = {"subject": subject, "label": label, "object": object_, "limit": 1}
        reply = self._client.post(f"{self._path}/query", payload, _QUERIED)
        if isinstance(reply, Failure):
            return Errored(message=reply.message, latency_ms=reply.latency_ms)
        found = reply.result
        attributions = [place for match in found.matches for place in match.attributions]
        return Queried(
            total=found.total,
            matches=len(found.matches),
            attributions=attributions or UNSET,
            latency_ms=reply.latency_ms,
        )

    # -- citations ---------------------------------------------------------------------------

    def citation(self, wanted: ExpectedCitation, *, served: bool) -> CitationCheck:
        """Resolve one locator and hold it against what was declared."""
        payload = {"source": wanted.source, "paragraph": wanted.paragraph}
        reply = self._client.post(f"{self._path}/citations", payload, _CITED)
        if isinstance(reply, Failure):
            return CitationCheck(
                source=wanted.source,
                paragraph=wanted.paragraph,
                served=served,
                outcome="unresolved",
                code=reply.code,
                message=reply.message,
                latency_ms=reply.latency_ms,
            )
        return CitationCheck(
            source=wanted.source,
            paragraph=wanted.paragraph,
            served=served,
            outcome="resolved",
            section=_section(wanted, reply.result.section),
            quote=UNSET
            if wanted.quote is None
            else QuoteCheck(
                declared=wanted.quote,
                matched=scoring.contains_quote(reply.result.text, wanted.quote),
            ),
            latency_ms=reply.latency_ms,
        )


def _floor(case: Case) -> float | None:
    return None if case.options.floor is None else float32(case.options.floor)


def _section(wanted: ExpectedCitation, found: str | None) -> SectionCheck:
    if wanted.section is UNSET:
        return SectionCheck(check="not_checked")
    check: Literal["matched", "mismatched"] = "matched" if wanted.section == found else "mismatched"
    return SectionCheck(check=check, expected=wanted.section)


def _top_tier(candidates: list[_Candidate]) -> tuple[Tier | None, list[str]]:
    """The names of the best tier that has any; tiers are never mixed, unknown ones ignored."""
    for tier in _TIERS:
        names = [candidate.name for candidate in candidates if candidate.tier == tier]
        if names:
            return tier, names
    return None, []


def _read_search(result: Any) -> tuple[Plan | None, list[Served]] | str:
    """The plan and the hits, or why the result cannot be read."""
    try:
        found = msgspec.convert(result, _Search)
    except msgspec.ValidationError:
        return _read_bare_hits(result)
    served = [
        Served(Hit(hit.source, hit.paragraph, hit.score, hit.lanes), hit.text) for hit in found.hits
    ]
    return (found.plan.contexts[0] if found.plan.contexts else None), served


def _read_bare_hits(result: Any) -> tuple[None, list[Served]] | str:
    """Hits without lanes and plan: a list of them, or an object that holds one."""
    hits = result.get("hits") if isinstance(result, dict) else result
    if not isinstance(hits, list):
        return "no list of hits"
    served: list[Served] = []
    for index, hit in enumerate(hits):
        try:
            place = msgspec.convert(hit, _PassageRef)
        except msgspec.ValidationError:
            return f"hit {index} has no source and paragraph"
        score, text = hit.get("score"), hit.get("text")
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        served.append(
            Served(
                Hit(place.source, place.paragraph, float(score) if is_number else 0.0, HitLanes()),
                text if isinstance(text, str) else "",
            )
        )
    return None, served


def _read_evidence(reply: Reply[_Evidence], limit: int) -> PassageResult:
    found = reply.result
    hits: list[Hit] = []
    items: list[EvidenceItem] = []
    for item in found.items:
        own = item.locator()
        places = [own] if own else []
        places += [(ref.source, ref.paragraph) for ref in item.citation_refs]
        hits += (Hit(source, paragraph, 0.0, HitLanes()) for source, paragraph in places)
        items.append(
            EvidenceItem(
                candidate_id=item.candidate_id,
                kind=item.kind,
                fused_rank=item.fused_rank,
                source=own[0] if own else UNSET,
                paragraph=own[1] if own else UNSET,
                citation_refs=[Locator(ref.source, ref.paragraph) for ref in item.citation_refs],
            )
        )
    return PassageResult(
        passage=Searched(hits=hits[:limit], latency_ms=reply.latency_ms),
        evidence=Assembled(
            latency_ms=reply.latency_ms,
            items=items,
            omitted_by_reason=dict(sorted(found.omitted_by_reason.items())) or UNSET,
            selection=found.plan.selection,
            reranker=found.plan.reranker,
        ),
        budget=BudgetUse(
            items_used=found.budget.items_used,
            bytes_used=found.budget.bytes_used,
            tokens_used=found.budget.tokens_used,
            limits=found.budget.limits,
            omitted_total=found.omitted_total,
        ),
    )
