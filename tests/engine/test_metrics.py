"""The catalogue: what each case contributes, and how contributions become one number."""

from __future__ import annotations

import json
from array import array
from math import inf, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from pytest_taguru.engine.blocks import CaseBlock
from pytest_taguru.engine.metrics import (
    CASE_METRICS,
    CATALOGUE,
    Aggregation,
    case_value,
    definitions,
    distribution,
    nearest_rank,
)
from tests.support.runs import GOLDEN


def case(**members: Any) -> CaseBlock:
    """A block as it stands in an artifact, a plain search of 7 ms unless given."""
    plain = {
        "case_id": "c",
        "query": "q",
        "limit": 10,
        "passage": {"outcome": "searched", "hits": [], "latency_ms": 7},
        "missed": [],
        "missed_truncated": 0,
    }
    return msgspec.convert({**plain, **members}, CaseBlock)


def aggregated(*blocks: CaseBlock, rerank_asked: bool = False) -> dict[str, Any]:
    aggregation = Aggregation(rerank_asked=rerank_asked)
    for block in blocks:
        aggregation.feed(block)
    results: dict[str, Any] = msgspec.to_builtins(aggregation.results())
    return results


EMPTY_DISTRIBUTION = {
    "n": 0,
    "min": None,
    "p50": None,
    "p90": None,
    "p99": None,
    "max": None,
    "mean": None,
    "sum": None,
}
EMPTY_RATIO = {"value": None, "n": 0, "numerator": None}


def ratio(numerator: int, n: int) -> dict[str, Any]:
    return {"value": numerator / n, "n": n, "numerator": numerator}


# -- statistics ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "percent", "rank"),
    [
        # ceil(p * n / 100), counted from 1.
        (1, 50, 1),
        (1, 99, 1),
        (2, 50, 1),
        (2, 90, 2),
        (3, 50, 2),
        (4, 50, 2),
        (5, 50, 3),
        (10, 50, 5),
        (10, 90, 9),
        (10, 99, 10),
        (11, 90, 10),
        (100, 99, 99),
        (101, 99, 100),
        (200, 99, 198),
        (1000, 90, 900),
    ],
)
def test_nearest_rank(n: int, percent: int, rank: int) -> None:
    assert nearest_rank(array("d", range(1, n + 1)), percent) == rank


def test_a_distribution() -> None:
    found = distribution(array("d", [4, 1, 3, 2, 10]))
    assert msgspec.to_builtins(found) == {
        "n": 5,
        "min": 1.0,
        "p50": 3.0,
        "p90": 10.0,
        "p99": 10.0,
        "max": 10.0,
        "mean": 4.0,
        "sum": 20.0,
    }
    assert found.scalar == 4.0


def test_without_samples_everything_is_null() -> None:
    found = distribution(array("d"))
    assert msgspec.to_builtins(found) == EMPTY_DISTRIBUTION
    assert found.scalar is None
    assert list(msgspec.to_builtins(found)) == list(EMPTY_DISTRIBUTION)


def test_a_sum_is_taken_in_order() -> None:
    """Left to right in doubles: compensated summation (Python 3.12's sum) would give 2.0."""
    assert distribution(array("d", [1.0, 1e100, 1.0, -1e100])).sum == 0.0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_percentiles_are_samples_in_order(samples: list[float]) -> None:
    found = distribution(array("d", samples))
    ordered = [found.min, found.p50, found.p90, found.p99, found.max]
    assert all(value in samples for value in ordered)
    assert ordered == sorted(ordered, key=lambda value: value or 0.0)


# -- the catalogue ---------------------------------------------------------------------------


def test_the_catalogue_has_all_that_was_recorded() -> None:
    artifact = json.loads((GOLDEN / "sake/runs/baseline/evaluation.json").read_text("utf-8"))
    recorded = {
        name: (entry["unit"], entry["statistic"], entry["scopes"])
        for name, entry in artifact["definitions"].items()
    }
    ours = {
        name: (entry.unit, entry.statistic, entry.scopes) for name, entry in definitions().items()
    }
    # What is added is named where artifacts are compared: see tests/engine/test_twins.py.
    assert {name: ours.get(name) for name in recorded} == recorded
    assert list(ours) == sorted(ours)
    assert len({entry.description for entry in definitions().values()}) == len(ours)


def test_a_run_without_cases() -> None:
    for name, found in aggregated().items():
        is_ratio = definitions()[name].statistic == "ratio"
        assert found == (EMPTY_RATIO if is_ratio else EMPTY_DISTRIBUTION), name


def test_one_plain_case_touches_nothing_else() -> None:
    found = aggregated(case(diversity_sources=3))
    touched = {
        name: value
        for name, value in found.items()
        if value not in (EMPTY_DISTRIBUTION, EMPTY_RATIO)
    }
    assert touched.keys() == {
        "diversity.sources",
        "latency.passage_ms",
        "passage.failure_rate",
        "structural.case_rate",
    }
    assert touched["passage.failure_rate"] == ratio(0, 1)
    assert touched["structural.case_rate"] == ratio(0, 1)
    assert touched["latency.passage_ms"]["sum"] == 7.0
    assert list(found) == list(CATALOGUE)


def test_a_failed_passage_lane_has_a_latency() -> None:
    failed = case(passage={"outcome": "failed", "message": "gone", "latency_ms": 35000})
    found = aggregated(failed, case())
    assert found["passage.failure_rate"] == ratio(1, 2)
    assert (found["latency.passage_ms"]["n"], found["latency.passage_ms"]["max"]) == (2, 35000)


def recall(recall_at_k: float, mrr: float, ndcg: float) -> dict[str, Any]:
    return {
        "recall_at_k": recall_at_k,
        "mrr": mrr,
        "ndcg": ndcg,
        "expected_total": 2,
        "matched": 1,
    }


def test_recall_is_over_the_cases_that_have_it() -> None:
    found = aggregated(case(recall=recall(0.5, 1, 0.25)), case(), case(recall=recall(0, 0, 0.5)))
    assert [found[f"recall.{name}"]["mean"] for name in ("recall_at_k", "mrr", "ndcg")] == [
        0.25,
        0.5,
        0.375,
    ]
    assert {found[f"recall.{name}"]["n"] for name in ("recall_at_k", "mrr", "ndcg")} == {2}


def test_samples_that_are_not_finite_are_dropped() -> None:
    found = aggregated(
        case(recall=recall(nan, inf, 0.5)),
        case(recall=recall(1.0, -inf, 1.0)),
    )
    assert (found["recall.recall_at_k"]["n"], found["recall.recall_at_k"]["mean"]) == (1, 1.0)
    assert found["recall.mrr"] == EMPTY_DISTRIBUTION
    assert found["recall.ndcg"]["n"] == 2


def test_coverage_is_over_the_cases_that_expect_the_kind() -> None:
    half, none = ({"expected": 2, "matched": n, "value": n / 2} for n in (1, 0))
    found = aggregated(
        case(coverage={"concepts": half, "labels": none}), case(coverage={"concepts": none}), case()
    )
    assert (found["coverage.concepts"]["n"], found["coverage.concepts"]["mean"]) == (2, 0.25)
    assert (found["coverage.labels"]["n"], found["coverage.labels"]["mean"]) == (1, 0.0)
    assert found["coverage.associations"] == EMPTY_DISTRIBUTION


def test_the_structural_lane_and_its_latencies() -> None:
    cue = {"cue": "a", "kind": "concept", "resolved_names": [], "limit": 5, "latency_ms": 2}
    missing = {"outcome": "not_found", "latency_ms": 3}
    pinned = {"outcome": "resolved", "name": "n", "tier": "lexical", "latency_ms": 4}
    cues = {"subject_cue": "s", "label_cue": "l", "object_cue": "o"}
    unasked = {**cues, "subject": pinned, "label": missing, "object": pinned}
    asked = {
        **cues,
        "subject": pinned,
        "label": pinned,
        "object": pinned,
        "query": {"outcome": "queried", "total": 0, "matches": 0, "latency_ms": 11},
    }
    errored = {**asked, "query": {"outcome": "errored", "message": "busy", "latency_ms": 13}}
    found = aggregated(
        case(structural={"cues": [cue, cue], "associations": [unasked, asked, errored]}), case()
    )
    assert found["structural.case_rate"] == ratio(1, 2)
    # Two cues of 2 ms, nine positions of which one took 3 ms and the others 4 ms.
    assert found["latency.resolve_ms"]["n"] == 11
    assert found["latency.resolve_ms"]["sum"] == 2 * 2 + 8 * 4 + 3
    assert (found["latency.query_ms"]["n"], found["latency.query_ms"]["sum"]) == (2, 24.0)


def check(outcome: str = "resolved", **members: Any) -> dict[str, Any]:
    section = {} if outcome == "unresolved" else {"section": {"check": "not_checked"}}
    plain = {"source": "s", "paragraph": 0, "served": False, "outcome": outcome, "latency_ms": 1}
    return {**plain, **section, **members}


def unresolved(code: str | None) -> dict[str, Any]:
    return check("unresolved", code=code, message="…")


def citations(*checks: dict[str, Any], served: int = 0, valid: int = 0) -> dict[str, Any]:
    total = len(checks)
    return {
        "recall": {"expected_total": total, "matched": served, "value": served / total},
        "validity": {"expected_total": total, "valid": valid, "value": valid / total},
        "checks": list(checks),
    }


def test_citation_outcomes_add_up() -> None:
    found = aggregated(
        case(citations=citations(check(), unresolved("no_source"), served=1, valid=1)),
        case(
            citations=citations(
                unresolved("no_paragraph"), unresolved("no_such_code"), unresolved(None), check()
            )
        ),
        case(),
    )
    assert found["citations.resolved"] == ratio(2, 6)
    assert found["citations.no_source"] == ratio(1, 6)
    assert found["citations.no_paragraph"] == ratio(1, 6)
    assert found["citations.other"] == ratio(2, 6)
    assert (found["citations.recall"]["n"], found["citations.recall"]["mean"]) == (2, 0.25)
    assert found["citations.locator_validity"]["mean"] == 0.25
    assert found["latency.citation_ms"]["n"] == 6


def test_sections_and_quotes_count_where_declared() -> None:
    matched: Any = {"section": {"check": "matched", "expected": "S"}}
    mismatched: Any = {"section": {"check": "mismatched", "expected": None}}
    quoted: Any = {"quote": {"declared": "q", "matched": True}}
    misquoted: Any = {"quote": {"declared": "q", "matched": False}}
    found = aggregated(
        case(
            citations=citations(
                check(**matched, **quoted),
                check(**matched),
                check(**mismatched, **misquoted),
                check(**quoted),
                check(),
                unresolved("no_source"),
            )
        )
    )
    assert found["citations.section_match"] == ratio(2, 3)
    assert found["citations.quote_match"] == ratio(2, 3)


def test_lane_crosses() -> None:
    crosses = [(True, True), (True, False), (True, False), (False, True), (False, False)]
    found = aggregated(
        case(),
        *(
            case(lane_cross={"structural_hit": structural, "passage_hit": passage})
            for structural, passage in crosses
        ),
    )
    assert found["lanes.structural_hit"] == ratio(3, 5)
    assert found["lanes.passage_hit"] == ratio(2, 5)
    assert found["lanes.both"] == ratio(1, 5)
    assert found["lanes.neither"] == ratio(1, 5)


def budget(items: int, omitted: int) -> dict[str, Any]:
    limits = {"max_items": 3, "max_bytes": 1500, "max_tokens": 300}
    return {
        "items_used": items,
        "bytes_used": 100 * items,
        "tokens_used": 10 * items,
        "limits": limits,
        "omitted_total": omitted,
    }


def evidence(**members: Any) -> dict[str, Any]:
    return {
        "outcome": "assembled",
        "latency_ms": 21,
        "items": [],
        "selection": {},
        "reranker": {"configured": False, "ran": False},
        **members,
    }


def test_budgets_of_plain_searches() -> None:
    found = aggregated(case(budget=budget(2, 0)), case(budget=budget(1, 3)), case())
    assert found["budget.items_used"]["sum"] == 3.0
    assert found["budget.bytes_used"]["sum"] == 300.0
    assert (found["budget.tokens_used"]["n"], found["budget.tokens_used"]["sum"]) == (2, 30.0)
    assert found["budget.omitted_rate"] == ratio(3, 6)


def test_budgets_of_assembled_packages() -> None:
    """Of eight that were left out, five were for the budget."""
    reasons = {"budget_exceeded": 3, "contradiction_group_exceeds_budget": 2, "duplicate": 3}
    found = aggregated(
        case(budget=budget(2, 8), evidence=evidence(omitted_by_reason=reasons)),
        case(budget=budget(3, 0), evidence=evidence()),
    )
    assert found["budget.omitted_rate"] == ratio(5, 13)
    assert found["latency.evidence_ms"]["n"] == 2
    assert found["latency.evidence_ms"]["sum"] == 42.0


def test_a_failed_evidence_call_has_a_latency_and_no_budget() -> None:
    failed = {"outcome": "failed", "message": "boom", "latency_ms": 5}
    found = aggregated(case(passage=failed, evidence=failed), rerank_asked=True)
    assert (found["latency.evidence_ms"]["n"], found["latency.passage_ms"]["n"]) == (1, 1)
    assert found["budget.omitted_rate"] == EMPTY_RATIO
    assert found["rerank.ran"] == EMPTY_RATIO


def test_rerank_ran() -> None:
    rerankers = [
        {"configured": True, "ran": True, "model": "m"},
        {"configured": True, "ran": False, "reason": "empty_pool"},
        {"configured": True, "ran": False, "reason": "provider_error"},
        {"configured": False, "ran": False},
    ]
    blocks = [case(evidence=evidence(reranker=reranker)) for reranker in rerankers]
    assert aggregated(*blocks, rerank_asked=True)["rerank.ran"] == ratio(1, 3)
    assert aggregated(*blocks, rerank_asked=False)["rerank.ran"] == EMPTY_RATIO


# -- a case's own values ---------------------------------------------------------------------


def test_what_a_case_comes_to_by_itself() -> None:
    share = {"expected": 4, "matched": 3, "value": 0.75}
    block = case(
        recall=recall(0.5, 0.25, 0.125),
        coverage={"concepts": share, "labels": {**share, "value": 0.5}, "associations": share},
        citations=citations(check(), check(), served=1, valid=2),
        diversity_sources=4,
    )
    assert {metric: case_value(metric, block) for metric in CASE_METRICS} == {
        "citations.locator_validity": 1.0,
        "citations.recall": 0.5,
        "coverage.associations": 0.75,
        "coverage.concepts": 0.75,
        "coverage.labels": 0.5,
        "diversity.sources": 4.0,
        "latency.passage_ms": 7.0,
        "recall.mrr": 0.25,
        "recall.ndcg": 0.125,
        "recall.recall_at_k": 0.5,
    }
    plain = {metric: case_value(metric, case()) for metric in CASE_METRICS}
    assert {name: value for name, value in plain.items() if value is not None} == {
        "latency.passage_ms": 7.0
    }


# -- failed calls ----------------------------------------------------------------------------


def test_what_counts_as_a_failed_call() -> None:
    failed = {"outcome": "failed", "message": "P", "latency_ms": 1}
    errored = {"outcome": "errored", "message": "A", "latency_ms": 1}
    pinned = {"outcome": "resolved", "name": "n", "tier": "lexical", "latency_ms": 1}
    cue = {"cue": "a", "kind": "label", "resolved_names": [], "limit": 5, "latency_ms": 1}
    cues = {"subject_cue": "s", "label_cue": "l", "object_cue": "o"}
    block = case(
        passage=failed,
        structural={
            "cues": [cue, {**cue, "error": "C"}],
            "associations": [
                {**cues, "subject": pinned, "label": errored, "object": pinned},
                {
                    **cues,
                    "subject": pinned,
                    "label": pinned,
                    "object": pinned,
                    "query": {**errored, "message": "Q"},
                },
            ],
        },
        citations=citations(
            unresolved("no_source"),
            unresolved("no_paragraph"),
            {**unresolved("other"), "message": "X"},
            {**unresolved(None), "message": "Y"},
        ),
    )
    assert [(call.lane, call.message) for call in block.failed_calls()] == [
        ("passage", "P"),
        ("resolve", "C"),
        ("resolve", "A"),
        ("query", "Q"),
        ("citation", "X"),
        ("citation", "Y"),
    ]
    assert block.is_unmet


def test_the_evidence_lane_is_named_in_assembly() -> None:
    failed = {"outcome": "failed", "message": "boom", "latency_ms": 5}
    block = case(passage=failed, evidence=failed)
    assert [(call.lane, call.message) for call in block.failed_calls()] == [("evidence", "boom")]


def test_a_case_is_unmet_if_anything_was_missed() -> None:
    assert not case().is_unmet
    assert case(missed=["expected_concepts: 'x' not resolved"]).is_unmet
    absent = case(citations=citations(unresolved("no_source")))
    assert absent.failed_calls() == []
    assert absent.coverage is UNSET
