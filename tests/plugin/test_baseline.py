"""A baseline in the run: compared, shown, recorded, and judged only if that was asked for."""

from __future__ import annotations

import hashlib
import json
from math import log2
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.support.fake_taguru import FakeTaguru

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.replay_server import LoopbackServer
    from tests.support.runs import Run, Workspace

#: Reciprocal ranks: first 1, second 1/2, lost 0.
HITS = {
    "first": [("corpus/water.md", 0)],
    "second": [("corpus/rice.md", 0), ("corpus/water.md", 0)],
}
CASES = [
    {"case_id": name, "query": name, "expected_sources": [{"source": "corpus/water.md"}]}
    for name in ("first", "second", "lost")
]


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with FakeTaguru(hits=HITS).serve() as server:
        yield server


@pytest.fixture
def project(workspace: Workspace) -> Workspace:
    workspace.dataset(*CASES)
    return workspace


def earlier_case(case_id: str, rank: int) -> dict[str, Any]:
    """A case whose one expected source was found at that rank."""
    return {
        "case_id": case_id,
        "recall": {"recall_at_k": 1.0, "mrr": 1 / rank, "ndcg": 1.0},
        "diversity_sources": rank,
    }


def write_baseline(project: Workspace, *cases: dict[str, Any], **inputs: Any) -> str:
    document = {
        "taguru_evaluation": 1,
        "inputs": {"context": "sake", "eval": {"name": None}, **inputs},
        "corpus": {
            "revision_after": {"graph": 15, "passages": 9, "config": 0},
            "stable": True,
        },
        "cases": list(cases),
    }
    project.write("earlier.json", json.dumps(document))
    return "--taguru-baseline=earlier.json"


#: As the run will find them: nothing moves.
LIKE_NOW = [
    earlier_case("first", 1),
    {**earlier_case("second", 2), "recall": {"recall_at_k": 1.0, "mrr": 0.5, "ndcg": 1 / log2(3)}},
    {
        "case_id": "lost",
        "recall": {"recall_at_k": 0.0, "mrr": 0.0, "ndcg": 0.0},
        "diversity_sources": 0,
    },
]
#: `second` was first then: its reciprocal rank fell from 1 to 0.5.
BETTER_THEN = [earlier_case("first", 1), earlier_case("second", 1), LIKE_NOW[2]]


def counts(run: Run) -> dict[str, int]:
    found: dict[str, int] = run.artifact()["baseline"]["counts"]
    return {name: number for name, number in found.items() if number}


def test_the_run_is_compared_shown_and_recorded_and_stays_green(
    project: Workspace, server: LoopbackServer
) -> None:
    run = project.evaluate(server.url, write_baseline(project, *BETTER_THEN))
    assert run.status == 0, run.shown
    recorded = run.artifact()["baseline"]
    content = (project.directory / "earlier.json").read_bytes()
    assert recorded["path"] == "earlier.json"
    assert recorded["sha256"] == hashlib.sha256(content).hexdigest()
    assert recorded["passed"] is True
    assert "violations" not in recorded
    assert counts(run) == {"regressed": 1, "unchanged": 2, "cases_base": 3, "cases_head": 3}
    assert "second: recall.mrr 1.000 -> 0.500 (-0.500)" in run.stdout
    assert "baseline passed" not in run.stdout, "nothing was asked of it"


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "xdist"])
def test_a_regression_violates_the_gate_if_that_was_asked_for(
    project: Workspace, server: LoopbackServer, workers: tuple[str, ...]
) -> None:
    run = project.evaluate(
        server.url,
        write_baseline(project, *BETTER_THEN),
        "--taguru-baseline-fail-on=regressed",
        "--junitxml=junit.xml",
        *workers,
    )
    assert run.status == 3, run.shown
    assert run.artifact()["baseline"]["violations"] == [
        {"scope": "baseline", "reason": "1 case(s) regressed: second"}
    ]
    assert "baseline VIOLATED: 1 reason" in run.stdout
    assert run.artifact()["thresholds"] is None
    suite = ElementTree.parse(project.directory / "junit.xml")
    (case,) = suite.findall(".//testcase[@name='second']")
    properties = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert properties["regressed.recall.mrr"] == "1.000000 -> 0.500000"
    assert properties["regressed.recall.ndcg"] == "1.000000 -> 0.630930"
    (gate,) = suite.findall(".//testcase[@name='baseline']")
    assert "gate" in gate.get("classname", "")
    assert gate.find("failure") is not None


def test_an_equal_run_passes_a_baseline_that_is_asked_for_everything(
    project: Workspace, server: LoopbackServer
) -> None:
    run = project.evaluate(
        server.url,
        write_baseline(project, *LIKE_NOW),
        *(f"--taguru-baseline-fail-on={kind}" for kind in ("regressed", "removed")),
        "--taguru-max-drop=recall.mrr=0",
    )
    assert run.status == 0, run.shown
    assert counts(run) == {"unchanged": 3, "cases_base": 3, "cases_head": 3}
    assert "baseline passed" in run.stdout


@pytest.mark.parametrize(
    ("drop", "status"),
    # The mean over the three pairs fell from (1 + 1 + 0) / 3 to (1 + 0.5 + 0) / 3.
    [("recall.mrr=0.16", 3), ("recall.mrr=0.17", 0), ("recall.recall_at_k=0", 0)],
)
def test_a_mean_may_drop_as_far_as_said(
    project: Workspace, server: LoopbackServer, drop: str, status: int
) -> None:
    run = project.evaluate(
        server.url, write_baseline(project, *BETTER_THEN), f"--taguru-max-drop={drop}"
    )
    assert run.status == status, run.shown
    assert run.artifact()["baseline"]["passed"] is (status == 0)


def test_a_removed_case_counts_but_one_that_was_not_selected_does_not(
    project: Workspace, server: LoopbackServer
) -> None:
    baseline = write_baseline(project, *LIKE_NOW, earlier_case("gone", 1))
    fail_on_removed = "--taguru-baseline-fail-on=removed"
    run = project.evaluate(server.url, baseline, fail_on_removed, "-k", "first")
    assert run.status == 3, run.shown
    assert counts(run) == {"removed": 1, "unchanged": 1, "cases_base": 2, "cases_head": 1}
    run = project.evaluate(
        server.url, write_baseline(project, *LIKE_NOW), fail_on_removed, "-k", "first"
    )
    assert run.status == 0, run.shown


@pytest.mark.parametrize(
    ("inputs", "word"),
    [
        ({"context": "beer"}, "beer"),
        ({"eval": {"name": "another set"}}, "another set"),
        ({"budget": {"max_items": 7, "max_bytes": 1, "max_tokens": 1}}, "max_items 7"),
    ],
)
def test_a_baseline_of_something_else_is_a_warning_and_a_violation_only_on_demand(
    project: Workspace, server: LoopbackServer, inputs: dict[str, Any], word: str
) -> None:
    baseline = write_baseline(project, *LIKE_NOW, **inputs)
    run = project.evaluate(server.url, baseline)
    assert run.status == 0, run.shown
    (warning,) = run.artifact()["baseline"]["warnings"]
    assert word in warning
    assert warning in run.stdout
    run = project.evaluate(server.url, baseline, "--taguru-baseline-fail-on=warnings")
    assert run.status == 3, run.shown


def test_the_ini_option_is_relative_to_its_file(project: Workspace, server: LoopbackServer) -> None:
    write_baseline(project, *LIKE_NOW)
    project.write("settings/pytest.ini", "[pytest]\ntaguru_baseline = ../earlier.json\n")
    run = project.evaluate(server.url, "-c", "settings/pytest.ini", "--rootdir=.")
    assert run.status == 0, run.shown
    assert run.artifact()["baseline"]["path"] == "../earlier.json"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("{", "earlier.json"),
        ('{"taguru_evaluation": 2}', "taguru_evaluation"),
        ('{"taguru_evaluation": 1, "cases": {}}', "cases"),
    ],
)
def test_an_unreadable_baseline_is_wrong_input_before_any_request(
    project: Workspace, server: LoopbackServer, content: str, word: str
) -> None:
    project.write("earlier.json", content)
    run = project.evaluate(server.url, "--taguru-baseline=earlier.json")
    assert run.status == 2, run.shown
    (complaint,) = run.complaints
    assert word in complaint
    assert not server.requests
    assert not (project.directory / "evaluation.json").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--taguru-max-drop=recall.mrr=1"], "--taguru-baseline"),
        (["--taguru-baseline-fail-on=regressed"], "--taguru-baseline"),
        (["--taguru-baseline=earlier.json", "--taguru-baseline-fail-on=worse"], "'worse'"),
        (["--taguru-baseline=earlier.json", "--taguru-max-drop=recall.map=1"], "'recall.map'"),
        (["--taguru-baseline=earlier.json", "--taguru-max-drop=recall.mrr=-1"], "'-1'"),
        (["--taguru-baseline="], "blank"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    project: Workspace, server: LoopbackServer, flags: list[str], words: str
) -> None:
    write_baseline(project, *LIKE_NOW)
    run = project.evaluate(server.url, *flags)
    assert run.status == 2, run.shown
    (complaint,) = run.complaints
    assert words in complaint
    assert not server.requests


def test_a_run_that_was_cut_short_is_not_compared(
    project: Workspace, server: LoopbackServer
) -> None:
    project.write(
        "conftest.py", "def pytest_runtest_setup(item):\n    assert 'lost' not in item.name\n"
    )
    run = project.evaluate(
        server.url, write_baseline(project, *BETTER_THEN), "--taguru-baseline-fail-on=regressed"
    )
    assert run.status == 1, run.shown
    assert "baseline earlier.json: not compared" in run.stdout


def test_the_earlier_artifact_may_be_the_one_that_is_replaced(
    project: Workspace, server: LoopbackServer
) -> None:
    assert project.evaluate(server.url).status == 0
    run = project.evaluate(
        server.url, "--taguru-baseline=evaluation.json", "--taguru-baseline-fail-on=regressed"
    )
    assert run.status == 0, run.shown
    assert counts(run) == {"unchanged": 3, "cases_base": 3, "cases_head": 3}
