"""Two artifacts against each other: the original program's own pairs, and one rule at a time."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_taguru.engine.comparison import (
    DECIDING,
    Comparison,
    compare,
    parse_max_drops,
    read_artifact,
    reasons,
)
from pytest_taguru.engine.errors import InputError
from pytest_taguru.engine.metrics import CASE_METRICS
from tests.support.artifact_diff import differences

GOLDEN = Path(__file__).parents[1] / "golden" / "compare"
PAIRS = sorted(file.parent.name for file in GOLDEN.glob("*/changes.jsonl"))
REFUSALS = [
    json.loads(line) for line in (GOLDEN / "refusals.jsonl").read_text("utf-8").splitlines()
]


def artifact(*cases: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"taguru_evaluation": 1, "corpus": {"stable": True}, "cases": list(cases), **fields}


def mrr(case_id: str, value: float | None, **fields: Any) -> dict[str, Any]:
    return {"case_id": case_id, "recall": {"mrr": value}, **fields}


class Bench:
    """Writes artifacts and compares them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, content: Any) -> Path:
        file = self.directory / name
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            file.write_text(text, "utf-8")
        return file

    def read_error(self, content: Any) -> str:
        file = self.write("bad.json", content)
        with pytest.raises(InputError) as caught:
            read_artifact(file, "given/bad.json")
        assert len(caught.value.problems) == 1
        return caught.value.problems[0]

    def compare(self, base: Any, head: Any) -> Comparison:
        return compare(
            read_artifact(self.write("base.json", base), "base.json"),
            read_artifact(self.write("head.json", head), "head.json"),
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# -- the original's own files ----------------------------------------------------------------


@pytest.mark.parametrize("name", PAIRS)
def test_golden_pair(name: str) -> None:
    comparison = compare(
        read_artifact(GOLDEN / name / "base.json", "base.json"),
        read_artifact(GOLDEN / name / "head.json", "head.json"),
    )
    expected = (GOLDEN / name / "changes.jsonl").read_text("utf-8").splitlines()
    actual = comparison.lines().decode().splitlines()
    assert [*differences([*map(json.loads, expected)], [*map(json.loads, actual)])] == []


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row["name"]) for row in REFUSALS if "head" in row]
)
def test_golden_refusal(row: dict[str, Any], bench: Bench) -> None:
    file = bench.write("head.json", row["head"])
    if row["exit"] == 0:
        read_artifact(file, "head.json")
        return
    with pytest.raises(InputError, match=r"^head\.json: "):
        read_artifact(file, "head.json")


# -- reading ---------------------------------------------------------------------------------

MALFORMED: list[tuple[dict[str, Any], str]] = [
    (
        {"cases": [{"case_id": "a"}, {"recall": {"mrr": "x"}}]},
        "cases[1].recall.mrr: expected a number or null, got a string",
    ),
    ({"cases": [{"coverage": []}]}, "cases[0].coverage: expected an object or null, got an array"),
    (
        {"cases": [{"citations": {"recall": None}}]},
        "cases[0].citations.recall: expected an object, got null",
    ),
    ({"corpus": {"stable": 1}}, "corpus.stable: expected true or false, got an integer"),
    (
        {"corpus": {"revision_after": {"graph": -1}}},
        "corpus.revision_after.graph: expected a whole number from 0",
    ),
    (
        {"corpus": {"revision_after": {"graph": 1.0}}},
        "corpus.revision_after.graph: expected an integer, got a number",
    ),
    (
        {"corpus": {"revision_after": {"graph": 2**64}}},
        "corpus.revision_after: a number is out of range",
    ),
    (
        {"inputs": {"budget": {"max_items": True}}},
        "inputs.budget.max_items: expected an integer, got true or false",
    ),
    (
        {"definitions": {"x": {"statistic": None}}},
        "definitions.(any).statistic: expected a string, got null",
    ),
    ({"taguru_evaluation": 1.0}, "taguru_evaluation: expected an integer, got a number"),
    ({"taguru_evaluation": 2}, "taguru_evaluation is 2, and this version reads 1 only"),
]


@pytest.mark.parametrize(
    ("fields", "problem"), MALFORMED, ids=[problem for _, problem in MALFORMED]
)
def test_a_field_of_the_wrong_type(fields: dict[str, Any], problem: str, bench: Bench) -> None:
    message = bench.read_error({"taguru_evaluation": 1, **fields})
    assert message.startswith(f"given/bad.json: {problem}")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty"),
        (b'{"taguru_evaluation": 1,\n "x": nope}', "malformed JSON at line 2, byte "),
        (b'{"taguru_evaluation": 1', "malformed JSON: it ends too early"),
        (b'\xef\xbb\xbf{"taguru_evaluation": 1}', "malformed JSON: starts with a byte order mark"),
        (b'{"taguru_evaluation": 1, "unread": "\xff"}', "not UTF-8"),
        (b'{"taguru_evaluation": 1, "unread": "\xe3\x81"}', "not UTF-8"),
        (b'{"unread": ' + b"[" * 100_000, "nested too deeply"),
        (b"{}", "taguru_evaluation: required, but missing"),
    ],
)
def test_what_is_not_json(content: bytes, problem: str, bench: Bench) -> None:
    assert bench.read_error(content).startswith(f"given/bad.json: {problem}")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^x\.json: cannot be read: No such file"):
        read_artifact(tmp_path / "none.json", "x.json")
    with pytest.raises(InputError, match=r"^x\.json: cannot be read: Is a directory"):
        read_artifact(tmp_path, "x.json")


def test_text_over_a_chunk_boundary_is_still_utf8(bench: Bench) -> None:
    # The bytes of one letter lie on both sides of 32,768.
    opening = '{"taguru_evaluation": 1, "unread": "'
    padding = "x" * ((1 << 15) - len(opening) - 1)
    read_artifact(bench.write("a.json", f'{opening}{padding}青"}}'), "a.json")


# -- classification --------------------------------------------------------------------------


def test_the_deciding_metrics_are_those_of_single_cases_but_latency() -> None:
    # One that is left out on purpose is named here: see "Adding a metric" in CONTRIBUTING.md.
    assert {*DECIDING} == {*CASE_METRICS} - {"latency.passage_ms"}


def test_a_change_must_be_over_the_tolerance(bench: Bench) -> None:
    # What the original program does with these: only the second one counts.
    comparison = bench.compare(
        artifact(mrr("a", 0), mrr("b", 0.5)),
        artifact(mrr("a", 1e-9), mrr("b", 0.5 + 1.0000001e-9)),
    )
    assert [change.case_id for change in comparison.changes] == ["b"]
    assert comparison.counts.unchanged == 1


def test_one_worse_metric_outweighs_all_better_ones(bench: Bench) -> None:
    comparison = bench.compare(
        artifact({"case_id": "a", "recall": {"mrr": 0.5, "ndcg": 0.1}, "diversity_sources": 1}),
        artifact({"case_id": "a", "recall": {"mrr": 0.25, "ndcg": 0.9}, "diversity_sources": 3}),
    )
    (change,) = comparison.changes
    assert change.kind == "regressed"
    assert [(it.metric, it.delta, it.direction) for it in change.metrics] == [
        ("recall.mrr", -0.25, "regressed"),
        ("recall.ndcg", 0.8, "improved"),
        ("diversity.sources", 2.0, "improved"),
    ]


def test_a_value_on_one_side_warns_and_decides_nothing(bench: Bench) -> None:
    comparison = bench.compare(
        artifact(mrr("z", 1), mrr("b", 0, diversity_sources=3)),
        artifact(
            {"case_id": "b", "coverage": {"concepts": {"value": 1}}, "diversity_sources": 4},
            {"case_id": "z", "recall": None, "coverage": None, "citations": None},
        ),
    )
    assert comparison.counts.improved == 1
    assert [change.metrics[0].metric for change in comparison.changes] == ["diversity.sources"]
    places = [("'b'", "recall.mrr"), ("'b'", "coverage.concepts"), ("'z'", "recall.mrr")]
    assert len(comparison.warnings) == 3
    for warning, (case_id, metric) in zip(comparison.warnings, places, strict=True):
        assert case_id in warning
        assert metric in warning


def test_added_and_removed_list_all_they_have(bench: Bench) -> None:
    comparison = bench.compare(artifact(mrr("青", 1)), artifact(mrr("b", 0.5, diversity_sources=2)))
    added, removed = comparison.changes
    assert (added.kind, added.case_id, len(added.metrics)) == ("added", "b", 2)
    assert (removed.kind, removed.case_id) == ("removed", "青")
    (metric,) = removed.metrics
    assert (metric.sides.base, metric.sides.head, metric.delta) == (1.0, None, None)
    assert metric.direction == "not_comparable"


def test_of_a_repeated_id_the_last_case_counts(bench: Bench) -> None:
    comparison = bench.compare(
        artifact(mrr("b", 1), mrr("b", 0), {"case_id": "a"}, {"case_id": "a"}),
        artifact(mrr("b", 1), mrr("b", 0.5), mrr("b", 0.25)),
    )
    assert [warning.split(":")[0] for warning in comparison.warnings] == ["BASE"] * 2 + ["HEAD"] * 2
    assert (comparison.counts.cases_base, comparison.counts.cases_head) == (2, 1)
    _, improved = comparison.changes
    assert improved.metrics[0].sides.head == 0.25


def test_a_partial_run_is_a_warning(bench: Bench) -> None:
    partial = artifact(inputs={"selection": {"selected": 2, "total": 9}})
    comparison = bench.compare(artifact(), partial)
    assert comparison.warnings == ["HEAD: only 2 of 9 cases were selected for this run"]


def test_differences_that_are_no_scores_are_told_but_not_averaged(bench: Bench) -> None:
    comparison = bench.compare(
        artifact(mrr("a", -1.7e308), mrr("b", 0)), artifact(mrr("a", 1.7e308), mrr("b", 1))
    )
    assert comparison.counts.improved == 2
    assert json.loads(comparison.lines().splitlines()[1])["metrics"][0]["delta"] is None
    assert comparison.statistics["recall.mrr"].n == 1


# -- aggregates ------------------------------------------------------------------------------

GOOD = {"n": 1, "mean": 0.5}
DISTRIBUTION = {"m": {"statistic": "distribution"}}


@pytest.mark.parametrize(
    ("metric", "definitions", "value", "warned"),
    [
        # each row as the original program answers it
        ({"n": 2, "mean": 1}, DISTRIBUTION, 1.0, False),
        ({"n": 0, "mean": None}, DISTRIBUTION, None, False),
        ({"value": 1}, DISTRIBUTION, None, False),
        ({}, DISTRIBUTION, None, False),
        (3, DISTRIBUTION, None, True),
        (None, DISTRIBUTION, None, True),
        ({"n": 1.5, "mean": 1}, DISTRIBUTION, None, True),
        ({"n": -1, "mean": 1}, DISTRIBUTION, None, True),
        ({"n": 1, "mean": 2, "p50": "x"}, DISTRIBUTION, None, True),
        ({"n": 1, "mean": 2, "other": "x"}, DISTRIBUTION, 2.0, False),
        ({"value": 0.25}, {"m": {"statistic": "ratio"}}, 0.25, False),
        ({"value": 0.25, "numerator": 1.5}, {"m": {"statistic": "ratio"}}, None, True),
        ({"value": 0.25, "numerator": 1.5}, {"m": {"statistic": "count"}}, 0.25, False),
        ({"mean": 3}, {"m": {"statistic": "count"}}, None, False),
        ({"n": 1, "mean": 1}, {}, None, True),
        ({"n": 1, "mean": 1}, {"m": {}}, None, True),
        ({"n": 1, "mean": 1}, {"m": {"statistic": "median"}}, None, True),
    ],
)
def test_an_aggregate_is_read_by_its_own_definition(
    metric: Any, definitions: dict[str, Any], value: float | None, warned: bool, bench: Bench
) -> None:
    comparison = bench.compare(
        artifact(metrics={"m": GOOD}, definitions=DISTRIBUTION),
        artifact(metrics={"m": metric}, definitions=definitions),
    )
    (aggregate,) = comparison.header.metrics
    assert aggregate.sides.head == value
    assert aggregate.delta == (None if value is None else value - 0.5)
    assert [warning.split("'")[:2] for warning in comparison.warnings] == (
        [["HEAD: metric ", "m"]] if warned else []
    )


def test_an_aggregate_without_a_value_on_either_side_is_not_listed(bench: Bench) -> None:
    empty = artifact(metrics={"m": {"n": 0}}, definitions=DISTRIBUTION)
    assert bench.compare(empty, empty).header.metrics == []


# -- statistics in the header ----------------------------------------------------------------


def test_statistics_are_over_pairs_with_both_values(bench: Bench) -> None:
    comparison = bench.compare(
        artifact(mrr("a", 1), mrr("b", 1), mrr("c", 1), mrr("gone", 1), mrr("d", None)),
        artifact(mrr("a", 0.5), mrr("b", 1), {"case_id": "c"}, mrr("new", 0), mrr("d", None)),
    )
    header = json.loads(comparison.lines().splitlines()[0])
    entry = header["statistics"][DECIDING.index("recall.mrr")]
    # Pairs with both values: a (-0.5) and b (0).
    assert (entry["metric"], entry["n"], entry["moved"]) == ("recall.mrr", 2, 1)
    assert (entry["mean_difference"], entry["p"]) == (-0.25, 1.0)
    others = [it["n"] for it in header["statistics"] if it["metric"] != "recall.mrr"]
    assert others == [0] * (len(DECIDING) - 1)


def test_same_files_same_bytes(bench: Bench) -> None:
    base = artifact(*(mrr(f"c{number}", number / 40) for number in range(40)))
    head = artifact(*(mrr(f"c{number}", (number * 7 % 40) / 40) for number in range(40)))

    def lines(one: Any, other: Any) -> bytes:
        content = bench.compare(one, other).lines()
        header, _, rest = content.partition(b"\n")
        fields = json.loads(header)
        del fields["generated_at"]
        return json.dumps(fields).encode() + rest

    shuffled = {**head, "cases": head["cases"][::-1]}
    assert lines(base, head) == lines(base, head) == lines(base, shuffled)


# -- reasons ---------------------------------------------------------------------------------


@pytest.fixture
def worse(bench: Bench) -> Comparison:
    # mean of mrr over the three pairs: (-0.25 - 0.5 + 0) / 3 = -0.25
    return bench.compare(
        artifact(mrr("a", 1), mrr("b", 1), mrr("c", 1), mrr("gone", 1)),
        artifact(mrr("a", 0.75), mrr("b", 0.5), mrr("c", 1), corpus={"stable": False}),
    )


@pytest.mark.parametrize(
    ("fail_on", "max_drop", "expected"),
    [
        ([], {}, []),
        (["regressed"], {}, ["2 case(s) regressed: a, b"]),
        (["removed"], {}, ["1 case(s) removed: gone"]),
        ([], {"recall.mrr": 0.25}, []),
        ([], {"recall.mrr": 0.2499}, ["recall.mrr: fell by 0.250000 on average over 3 paired"]),
        ([], {"recall.ndcg": 1.0}, ["recall.ndcg: no paired case has it"]),
        (["warnings"], {}, ["1 warning(s), first: HEAD head.json"]),
    ],
)
def test_reasons(
    fail_on: list[str], max_drop: dict[str, float], expected: list[str], worse: Comparison
) -> None:
    found = reasons(worse, fail_on, max_drop)
    assert len(found) == len(expected)
    for reason, opening in zip(found, expected, strict=True):
        assert reason.startswith(opening)


def test_a_better_run_has_no_reason(bench: Bench) -> None:
    better = bench.compare(artifact(mrr("a", 0)), artifact(mrr("a", 1), mrr("new", 0)))
    assert reasons(better, ["regressed", "removed", "warnings"], {"recall.mrr": 0.0}) == []


def test_many_cases_are_counted_not_listed(bench: Bench) -> None:
    base = artifact(*(mrr(f"c{number}", 1) for number in range(8)))
    (reason,) = reasons(bench.compare(base, artifact()), ["removed"], {})
    assert reason == "8 case(s) removed: c0, c1, c2, c3, c4, and 3 more"


def test_max_drop_is_read() -> None:
    drops = parse_max_drops(["recall.ndcg=0.02", "recall.mrr = 0"], "--drop")
    assert drops == {"recall.ndcg": 0.02, "recall.mrr": 0.0}


def test_every_max_drop_that_is_wrong_is_named() -> None:
    with pytest.raises(InputError) as caught:
        parse_max_drops(["recall.mrr", "recall.ndcg=1", "recall.ndcg=x", "recall.ndcg=0"], "--drop")
    assert caught.value.problems == (
        "--drop: 'recall.mrr': expected METRIC=VALUE, like recall.ndcg=0.02",
        "--drop: recall.ndcg: 'x' is not a drop; give a number from 0, like 0.02",
        "--drop: recall.ndcg is given twice",
    )


@pytest.mark.parametrize(
    "text",
    ["recall.ndcg", "ndcg=0.1", "latency.passage_ms=1", "recall.mrr=", "recall.mrr=x",
     "recall.mrr=-0.1", "recall.mrr=nan", "recall.mrr=inf"],
)  # fmt: skip
def test_max_drop_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_max_drops([text], "--drop")
    assert text.partition("=")[0] in caught.value.problems[0]


# -- properties ------------------------------------------------------------------------------

SCORES = st.none() | st.floats(0, 1)
CASES = st.dictionaries(st.text("abcde", max_size=2), SCORES, max_size=6)


@given(CASES, CASES)
def test_counts_add_up(base: dict[str, Any], head: dict[str, Any]) -> None:
    def build(cases: dict[str, Any]) -> Any:
        return artifact(*(mrr(*case) for case in cases.items()))

    with tempfile.TemporaryDirectory() as directory:
        comparison = Bench(Path(directory)).compare(build(base), build(head))
    counts = comparison.counts
    paired = counts.improved + counts.regressed + counts.unchanged
    assert paired + counts.removed == counts.cases_base == len(base)
    assert paired + counts.added == counts.cases_head == len(head)
    assert (
        len(comparison.changes)
        == counts.improved + counts.regressed + counts.added + counts.removed
    )
    ids = [change.case_id for change in comparison.changes]
    assert ids == sorted(ids)
