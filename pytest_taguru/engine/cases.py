"""One case from question to block: run its lanes, score them, say what was missed."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec import UNSET

from . import scoring
from .blocks import (
    AssociationCheck,
    CaseBlock,
    CitationCheck,
    Citations,
    Coverage,
    Errored,
    Failed,
    LaneCross,
    Queried,
    RecallScores,
    ServedShare,
    Share,
    Structural,
    ValidShare,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .dataset import Case
    from .lanes import Lanes

#: How many misses a block spells out; the rest is counted.
KEPT_MISSES = 3


def run_case(case: Case, lanes: Lanes) -> CaseBlock:
    """Send all requests of a case and score the answers. Failed calls are part of the block."""
    asked = lanes.passage(case)
    structural = lanes.structural(case)
    served = _served_locators(asked.ranking, structural)
    checks = [
        lanes.citation(wanted, served=(wanted.source, wanted.paragraph) in served)
        for wanted in case.expected_citations or []
    ]
    failed = isinstance(asked.passage, Failed)
    items = [] if failed else case.relevant_sources
    ranks = scoring.first_ranks(items, asked.ranking)
    covered = _Covered(case, structural)
    coverage = covered.shares()
    missed = list(_missed(case, ranks, covered, checks, failed=failed))
    recall = _recall([item.relevance for item in items], ranks) if items else None
    return CaseBlock(
        case_id=case.case_id,
        query=case.query,
        cues=case.cues or UNSET,
        limit=case.limit,
        passage=asked.passage,
        structural=structural or UNSET,
        recall=recall or UNSET,
        coverage=coverage or UNSET,
        lane_cross=UNSET
        if coverage is None or recall is None
        else LaneCross(structural_hit=covered.any, passage_hit=recall.matched >= 1),
        citations=_citations(checks) if checks else UNSET,
        missed=list(islice(missed, KEPT_MISSES)),
        missed_truncated=max(len(missed) - KEPT_MISSES, 0),
        evidence=asked.evidence or UNSET,
        budget=asked.budget or UNSET,
        diversity_sources=UNSET if failed else len({source for source, _ in asked.ranking}),
    )


def assembly_warning(case: Case) -> str | None:
    """What assembly cannot pass on of a case's options."""
    options = case.options
    if not options.tags and options.since is None and options.until is None:
        return None
    return (
        f"case '{case.case_id}': options.tags/since/until are not applied under --assembly"
        " (POST /contexts/{name}/evidence has no such request fields)"
    )


def _served_locators(
    ranking: list[scoring.Locator], structural: Structural | None
) -> set[scoring.Locator]:
    served = set(ranking)
    for check in structural.associations if structural else []:
        if isinstance(check.query, Queried) and isinstance(check.query.attributions, list):
            served.update(
                (place.source, place.paragraph)
                for place in check.query.attributions
                if place.paragraph is not None
            )
    return served


class _Covered:
    """Which of a case's structural expectations were found."""

    def __init__(self, case: Case, structural: Structural | None) -> None:
        cues = structural.cues if structural else []
        names = {
            kind: [name for cue in cues if cue.kind == kind for name in cue.resolved_names]
            for kind in ("concept", "label")
        }
        self.concepts = scoring.covered(case.expected_concepts, names["concept"])
        self.labels = scoring.covered(case.expected_labels or [], names["label"])
        self.associations = structural.associations if structural else []

    @property
    def any(self) -> bool:
        """Whether anything expected of the graph was found."""
        found = [check.is_matched for check in self.associations]
        return any((*self.concepts, *self.labels, *found))

    def shares(self) -> Coverage | None:
        """The `coverage` of the block, if the case expects anything of the graph."""
        associations = [check.is_matched for check in self.associations]
        if not (self.concepts or self.labels or associations):
            return None
        return Coverage(
            concepts=_share(self.concepts) or UNSET,
            labels=_share(self.labels) or UNSET,
            associations=_share(associations) or UNSET,
        )


def _share(found: list[bool]) -> Share | None:
    if not found:
        return None
    return Share(expected=len(found), matched=sum(found), value=sum(found) / len(found))


def _recall(relevances: list[int], ranks: list[int | None]) -> RecallScores:
    return RecallScores(
        recall_at_k=scoring.recall_at_k(ranks),
        mrr=scoring.reciprocal_rank(ranks),
        ndcg=scoring.ndcg(relevances, ranks),
        expected_total=len(ranks),
        matched=sum(rank is not None for rank in ranks),
    )


def _citations(checks: list[CitationCheck]) -> Citations:
    total = len(checks)
    served = sum(check.served for check in checks)
    valid = sum(check.is_valid for check in checks)
    return Citations(
        recall=ServedShare(expected_total=total, matched=served, value=served / total),
        validity=ValidShare(expected_total=total, valid=valid, value=valid / total),
        checks=checks,
    )


def _missed(
    case: Case,
    ranks: list[int | None],
    covered: _Covered,
    checks: list[CitationCheck],
    *,
    failed: bool,
) -> Iterator[str]:
    """Every unmet expectation as a sentence, names raw between the quotes."""
    if not failed:
        for item, rank in zip(case.relevant_sources, ranks, strict=True):
            if rank is None:
                yield f"expected_sources: '{item.source}' not found among passage hits"
    for name, found in zip(case.expected_concepts, covered.concepts, strict=True):
        if not found:
            yield f"expected_concepts: '{name}' not resolved"
    for name, found in zip(case.expected_labels or [], covered.labels, strict=True):
        if not found:
            yield f"expected_labels: '{name}' not resolved"
    for check in covered.associations:
        reason = _association_miss(check)
        if reason:
            triple = f"({check.subject_cue}, {check.label_cue}, {check.object_cue})"
            yield f"expected_associations: {triple} {reason}"
    for citation in checks:
        place = f"({citation.source}, {citation.paragraph})"
        if not citation.served:
            yield f"expected_citations: {place} not found among served results"
        if not citation.is_valid:
            yield f"expected_citations: {place} failed locator validity"


def _association_miss(check: AssociationCheck) -> str | None:
    errors = [
        f"{name}: {position.message}"
        for name, position in check.positions.items()
        if isinstance(position, Errored)
    ]
    if errors:
        return "a position could not be resolved due to a transport error: " + "; ".join(errors)
    if check.query is UNSET:
        return "query never ran (a position did not pin)"
    if isinstance(check.query, Errored):
        return "query errored"
    return None if check.is_matched else "query returned no association"
