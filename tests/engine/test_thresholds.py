"""thresholds.json: reading it, and judging by it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import UNSET

from pytest_taguru.engine.blocks import (
    CaseBlock,
    Citations,
    Coverage,
    Failed,
    RecallScores,
    Searched,
    ServedShare,
    Share,
    ValidShare,
)
from pytest_taguru.engine.errors import InputError
from pytest_taguru.engine.metrics import Distribution, Ratio
from pytest_taguru.engine.thresholds import Gate, Judgement, load_gate

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_taguru.engine.metrics import Statistic


@pytest.fixture
def gate(tmp_path: Path) -> Any:
    """Reads bounds for the cases c1 and c2."""

    def read(**members: Any) -> Gate:
        file = tmp_path / "thresholds.json"
        file.write_text(json.dumps({"taguru_evaluate_thresholds": 1, **members}))
        return load_gate(file, "some/t.json", ["c1", "c2"])

    return read


def block(
    case_id: str = "c1",
    *,
    recall: float | None = None,
    concepts: float | None = None,
    served: float | None = None,
    latency_ms: int = 5,
    failed: bool = False,
    sources: int = 2,
) -> CaseBlock:
    """A block with just these values."""
    passage = (
        Failed(message="gone", latency_ms=latency_ms)
        if failed
        else Searched(hits=[], latency_ms=latency_ms)
    )
    return CaseBlock(
        case_id=case_id,
        query="q",
        limit=10,
        passage=passage,
        recall=UNSET
        if recall is None
        else RecallScores(recall_at_k=recall, mrr=0.25, ndcg=0.5, expected_total=2, matched=1),
        coverage=UNSET
        if concepts is None
        else Coverage(concepts=Share(expected=2, matched=1, value=concepts)),
        citations=UNSET
        if served is None
        else Citations(
            recall=ServedShare(expected_total=2, matched=1, value=served),
            validity=ValidShare(expected_total=2, valid=2, value=1.0),
            checks=[],
        ),
        missed=[],
        missed_truncated=0,
        diversity_sources=UNSET if failed else sources,
    )


def mean(value: float | None) -> Distribution:
    return Distribution(n=0) if value is None else Distribution(n=2, mean=value)


def report(gate: Gate, *blocks: CaseBlock, stable: bool = True, **metrics: Statistic) -> Any:
    judgement = Judgement(gate)
    for one in blocks:
        judgement.case(one)
    named = {name.replace("__", "."): value for name, value in metrics.items()}
    return msgspec.to_builtins(judgement.report(named, stable=stable, selection=None))


# -- reading ---------------------------------------------------------------------------------


def test_the_hash_is_of_the_bytes(tmp_path: Path) -> None:
    content = b'{ "taguru_evaluate_thresholds" : 1 }\r\n'
    (tmp_path / "t.json").write_bytes(content)
    gate = load_gate(tmp_path / "t.json", "t.json", [])
    assert gate.sha256 == hashlib.sha256(content).hexdigest()


def problems(gate: Any, **members: Any) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        gate(**members)
    assert caught.value.status == 2
    found: tuple[str, ...] = caught.value.problems
    assert all(problem.startswith("some/t.json: ") for problem in found)
    return found


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"aggregate": {"recall.map": {"min": 0}}}, ["aggregate", "recall.map"]),
        ({"aggregate": {"recall.mrr": {}}}, ["aggregate", "recall.mrr", "min or max"]),
        ({"aggregate": {"recall.mrr": {"min": 1, "max": 0.5}}}, ["recall.mrr", "min 1", "0.5"]),
        ({"cases": {"default": {"passage.failure_rate": {"max": 0}}}}, ["cases.default"]),
        ({"cases": {"overrides": {"c3": {}}}}, ["cases.overrides.c3"]),
        (
            {"cases": {"overrides": {"c2": {"latency.query_ms": {"max": 9}}}}},
            ["cases.overrides.c2", "latency.query_ms"],
        ),
        ({"aggregate": {"recall.mrr": {"min": None, "max": None}}}, ["recall.mrr"]),
        ({"aggregate": {"recall.mrr": {"mim": 1}}}, ["aggregate.recall.mrr.mim"]),
        ({"cases": {"overrides": {"c1": {"recall.mrr": 1}}}}, ["cases.overrides.c1.recall.mrr"]),
        ({"allow_unstable_corpus": None}, ["allow_unstable_corpus"]),
    ],
)
def test_a_refusal_names_the_place(gate: Any, members: dict[str, Any], words: list[str]) -> None:
    (problem,) = problems(gate, **members)
    assert all(word in problem for word in words), problem


def test_problems_of_the_right_shape_are_reported_together(gate: Any) -> None:
    found = problems(
        gate,
        aggregate={"x": {"min": 2, "max": 1}, "recall.mrr": {}},
        cases={"default": {"rerank.ran": {"max": 1}}, "overrides": {"ghost": {"y": {}}}},
    )
    assert [problem.removeprefix("some/t.json: ").split(":")[0] for problem in found] == [
        "aggregate",
        "aggregate",
        "aggregate",
        "cases.default",
        "cases.overrides.ghost",
        "cases.overrides.ghost",
        "cases.overrides.ghost",
    ]


def test_wrong_shapes_hide_no_wrong_names(gate: Any) -> None:
    found = problems(
        gate,
        aggregate={"x": {"min": "1"}, "recall.mrr": {"min": 2, "max": 1}},
        cases={
            "default": {"rerank.ran": 1},
            "overrides": {"ghost": [], "c1": {"recall.ndcg": {}, "recall.mrr": {"max": True}}},
        },
        strict=True,
    )
    assert [problem.removeprefix("some/t.json: ") for problem in found] == [
        "aggregate.x.min: expected a number, got a string",
        "cases.default.rerank.ran: expected an object, got 1",
        "cases.overrides.ghost: expected an object, got an array",
        "cases.overrides.c1.recall.mrr.max: expected a number, got true",
        "strict: unknown field (known: taguru_evaluate_thresholds, aggregate, cases,"
        " allow_unstable_corpus)",
        "aggregate: unknown metric 'x'",
        "aggregate: recall.mrr: min 2 is over max 1",
        "cases.default: 'rerank.ran' is not a metric of single cases; bound it under aggregate",
        "cases.overrides.ghost: the dataset has no case 'ghost'",
        "cases.overrides.c1: recall.ndcg: needs min or max",
    ]


def test_a_repeated_key_hides_no_wrong_names(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(
        '{"taguru_evaluate_thresholds": 1, "aggregate": {"x": {"min": 0}, "x": {"min": 1}}}'
    )
    with pytest.raises(InputError) as caught:
        load_gate(file, "t.json", [])
    assert caught.value.problems == (
        "t.json: x: this key is given twice in one object",
        "t.json: aggregate: unknown metric 'x'",
    )


@pytest.mark.parametrize("content", [b"", b"{", b"\xef\xbb\xbf{}", b"\xff", b"null", b"[]"])
def test_a_file_that_is_no_object(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(InputError, match=r"^t\.json: "):
        load_gate(tmp_path / "t.json", "t.json", [])


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^t\.json: cannot be read: No such file"):
        load_gate(tmp_path / "t.json", "t.json", [])


@pytest.mark.parametrize(
    ("members", "bounds"),
    [
        ({}, False),
        ({"aggregate": {"recall.mrr": {"min": 0}}}, False),
        ({"aggregate": {"latency.query_ms": {"max": 9}}}, True),
        ({"cases": {"default": {"latency.passage_ms": {"max": 9}}}}, True),
        ({"cases": {"overrides": {"c2": {"latency.passage_ms": {"max": 9}}}}}, True),
        ({"cases": {"overrides": {"c2": {"recall.mrr": {"max": 9}}}}}, False),
    ],
)
def test_whether_latency_is_bounded(gate: Any, members: dict[str, Any], bounds: bool) -> None:
    assert gate(**members).bounds_latency is bounds


# -- judging cases ---------------------------------------------------------------------------


def test_bounds_include_their_ends(gate: Any) -> None:
    bounds = gate(cases={"default": {"recall.recall_at_k": {"min": 0.5, "max": 0.5}}})
    assert bounds.judge_case(block(recall=0.5)) == ([], [])
    assert len(bounds.judge_case(block(recall=0.49999999))[0]) == 1
    assert len(bounds.judge_case(block(recall=0.50000001))[0]) == 1


@pytest.mark.parametrize(
    ("bound", "end", "threshold", "reason"),
    [
        ({"min": 0.9}, "min", 0.9, "0.500000 < min 0.900000"),
        ({"max": 0.1}, "max", 0.1, "0.500000 > max 0.100000"),
        ({"min": 0.6, "max": 0.7}, "min", 0.6, "0.500000 < min 0.600000"),
        ({"min": None, "max": 0}, "max", 0.0, "0.500000 > max 0.000000"),
    ],
)
def test_a_violation(
    gate: Any, bound: dict[str, float], end: str, threshold: float, reason: str
) -> None:
    found, skipped = gate(cases={"default": {"recall.recall_at_k": bound}}).judge_case(
        block(recall=0.5)
    )
    assert msgspec.to_builtins(found) == [
        {
            "scope": "case",
            "case_id": "c1",
            "metric": "recall.recall_at_k",
            "bound": end,
            "threshold": threshold,
            "actual": 0.5,
            "reason": reason,
        }
    ]
    assert skipped == []
    assert str(found[0]) == f"recall.recall_at_k {reason}"


def test_an_override_replaces_the_whole_bound_of_its_metric(gate: Any) -> None:
    bounds = gate(
        cases={
            "default": {
                "recall.recall_at_k": {"min": 0.9, "max": 0.95},
                "recall.mrr": {"min": 0.9},
            },
            "overrides": {"c1": {"recall.recall_at_k": {"max": 0.8}}},
        }
    )
    # 0.1 is below the default's minimum, which the override took away; the other metric stays.
    assert [v.metric for v in bounds.judge_case(block(recall=0.1))[0]] == ["recall.mrr"]
    first, second = bounds.judge_case(block(recall=0.85))[0]
    assert (first.metric, second.metric) == ("recall.mrr", "recall.recall_at_k")
    assert (second.bound, second.threshold) == ("max", 0.8)
    assert [v.bound for v in bounds.judge_case(block("c2", recall=0.85))[0]] == ["min", "min"]


def test_an_override_may_add_a_metric(gate: Any) -> None:
    bounds = gate(cases={"overrides": {"c2": {"diversity.sources": {"min": 3}}}})
    assert bounds.judge_case(block("c1")) == ([], [])
    (violation,) = bounds.judge_case(block("c2"))[0]
    assert violation.reason == "2.000000 < min 3.000000"


def test_metrics_are_judged_by_name(gate: Any) -> None:
    bounds = gate(
        cases={
            "default": {
                "recall.recall_at_k": {"min": 1},
                "citations.recall": {"min": 1},
                "recall.ndcg": {"min": 1},
            },
            "overrides": {"c1": {"coverage.concepts": {"min": 1}}},
        }
    )
    found, _ = bounds.judge_case(block(recall=0.5, concepts=0.5, served=0.5))
    assert [violation.metric for violation in found] == [
        "citations.recall",
        "coverage.concepts",
        "recall.ndcg",
        "recall.recall_at_k",
    ]


def test_a_value_that_was_not_computed_is_skipped(gate: Any) -> None:
    bounds = gate(cases={"default": {"recall.mrr": {"min": 1}, "coverage.labels": {"min": 1}}})
    assert bounds.judge_case(block(concepts=0.0)) == (
        [],
        [
            f"case 'c1': '{metric}' not applicable — the case did not declare the matching"
            " expectation, or its lane did not complete"
            for metric in ("coverage.labels", "recall.mrr")
        ],
    )


def test_a_failed_lane_still_has_a_latency(gate: Any) -> None:
    bounds = gate(
        cases={"default": {"latency.passage_ms": {"max": 4}, "diversity.sources": {"min": 1}}}
    )
    found, skipped = bounds.judge_case(block(failed=True))
    assert [violation.metric for violation in found] == ["latency.passage_ms"]
    assert len(skipped) == 1
    assert "diversity.sources" in skipped[0]


# -- judging a run ---------------------------------------------------------------------------


def test_a_run_that_passes(gate: Any) -> None:
    bounds = gate(aggregate={"recall.mrr": {"min": 0.5}})
    assert report(bounds, block(), recall__mrr=mean(0.5)) == {
        "sha256": bounds.sha256,
        "passed": True,
        "allow_unstable_corpus": False,
    }


def test_aggregates_are_judged_by_name_and_no_samples_is_a_violation(gate: Any) -> None:
    bounds = gate(
        aggregate={
            "recall.mrr": {"min": 0.5},
            "citations.other": {"max": 0.25},
            "coverage.labels": {"min": 0.0},
            "lanes.both": {"min": 0.0},
        }
    )
    found = report(
        bounds,
        recall__mrr=mean(0.25),
        citations__other=Ratio(value=0.5, n=4, numerator=2),
        coverage__labels=mean(None),
        lanes__both=Ratio(n=0),
    )
    assert found["passed"] is False
    assert found["violations"] == [
        {
            "scope": "aggregate",
            "metric": "citations.other",
            "bound": "max",
            "threshold": 0.25,
            "actual": 0.5,
            "reason": "0.500000 > max 0.250000",
        },
        {
            "scope": "aggregate",
            "metric": "coverage.labels",
            "actual": None,
            "reason": "no samples for this metric (n=0)",
        },
        {
            "scope": "aggregate",
            "metric": "lanes.both",
            "actual": None,
            "reason": "no samples for this metric (n=0)",
        },
        {
            "scope": "aggregate",
            "metric": "recall.mrr",
            "bound": "min",
            "threshold": 0.5,
            "actual": 0.25,
            "reason": "0.250000 < min 0.500000",
        },
    ]
    assert "skipped" not in found


def test_aggregates_come_first_then_cases_then_the_corpus(gate: Any) -> None:
    bounds = gate(
        aggregate={"recall.mrr": {"min": 0.5}},
        cases={"default": {"diversity.sources": {"min": 3}}},
    )
    found = report(bounds, block("c2"), block("c1"), stable=False, recall__mrr=mean(0.0))
    assert [(v["scope"], v.get("case_id"), v["metric"]) for v in found["violations"]] == [
        ("aggregate", None, "recall.mrr"),
        ("case", "c2", "diversity.sources"),
        ("case", "c1", "diversity.sources"),
        ("corpus", None, "corpus.stable"),
    ]
    unstable = found["violations"][-1]
    assert unstable["actual"] is None
    assert unstable["reason"]
    assert unstable.keys() == {"scope", "metric", "actual", "reason"}


def test_an_unstable_corpus_may_be_allowed(gate: Any) -> None:
    found = report(gate(allow_unstable_corpus=True), stable=False)
    assert found["passed"] is True
    assert found["allow_unstable_corpus"] is True
    assert "violations" not in found


def test_a_selection_skips_the_aggregates(gate: Any) -> None:
    bounds = gate(
        aggregate={"recall.ndcg": {"min": 1}, "recall.mrr": {"min": 1}},
        cases={"default": {"recall.mrr": {"min": 1}, "coverage.labels": {"min": 1}}},
    )
    judgement = Judgement(bounds)
    judgement.case(block(recall=0.5))
    found = judgement.report(
        {"recall.ndcg": mean(0.0), "recall.mrr": mean(0.0)}, stable=True, selection=(1, 2)
    )
    assert [(v.scope, v.metric) for v in found.broken] == [("case", "recall.mrr")]
    assert isinstance(found.skipped, list)
    first, second, third = found.skipped
    assert "'recall.mrr'" in first
    assert "'recall.ndcg'" in second
    assert "1 of 2 cases" in first
    assert "coverage.labels" in third
