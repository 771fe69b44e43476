"""The example project does what the README says of it, from its recording and live."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.artifact_diff import differences
from tests.support.live import find_binary
from tests.support.runs import PROJECT, clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.runs import Launcher, Run

EXAMPLE = PROJECT / "example_project"
REPLAYED = ("--taguru-eval=eval.jsonl", "--taguru-replay=recording.jsonl")
ORDINARY_TESTS = 8


class Example:
    """A copy of the example project, and the runs in it."""

    def __init__(self, launcher: Launcher, directory: Path) -> None:
        self._launcher = launcher
        self.directory = directory
        unwanted = shutil.ignore_patterns("__pycache__", ".*_cache", "evaluation.json")
        shutil.copytree(EXAMPLE, directory, ignore=unwanted)
        self.case_ids = [case["case_id"] for case in self.lines("eval.jsonl")[1:]]

    def lines(self, name: str) -> list[dict[str, Any]]:
        """The objects of a JSON Lines file."""
        text = (self.directory / name).read_text("utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def run(self, *arguments: str, **environment: str) -> Run:
        """Run pytest in the copy."""
        return self._launcher.run(self.directory, arguments, clean_environment(**environment))


@pytest.fixture
def example(launcher: Launcher, tmp_path: Path) -> Example:
    """A copy of the example project."""
    return Example(launcher, tmp_path / "example")


def test_without_the_flag_only_the_ordinary_tests_run(example: Example) -> None:
    run = example.run()
    assert run.status == 0, run.shown
    assert f"{ORDINARY_TESTS} passed" in run.stdout
    assert "taguru:" not in run.stdout
    assert "taguru evaluation" not in run.stdout
    assert not (example.directory / "evaluation.json").exists()


def test_the_thresholds_hold(example: Example) -> None:
    run = example.run(*REPLAYED)
    assert run.status == 0, run.shown
    assert f"{ORDINARY_TESTS + len(example.case_ids)} passed" in run.stdout
    artifact = run.artifact()
    assert [case["case_id"] for case in artifact["cases"]] == example.case_ids
    assert artifact["thresholds"]["passed"] is True
    assert artifact["corpus"]["stable"] is True


def test_the_misses_are_these_and_no_others(example: Example) -> None:
    missed = {
        case["case_id"]: case["missed"]
        for case in example.run(*REPLAYED).artifact()["cases"]
        if case["missed"]
    }
    assert missed == {
        "stone-count": ["expected_citations: (guide/crabs.md, 2) failed locator validity"],
        "paraphrase-danger": ["expected_sources: 'guide/safety.md' not found among passage hits"],
    }


def test_the_strict_thresholds_name_what_they_refuse(example: Example) -> None:
    run = example.run(*REPLAYED, "--taguru-thresholds=thresholds-strict.json")
    assert run.status == 3, run.shown
    assert "1 failed" in run.stdout
    report = run.artifact()["thresholds"]
    assert [
        (entry["scope"], entry.get("case_id"), entry["metric"], entry["reason"])
        for entry in report["violations"]
    ] == [
        ("aggregate", None, "recall.recall_at_k", "0.933333 < min 0.950000"),
        ("case", "paraphrase-danger", "recall.recall_at_k", "0.000000 < min 1.000000"),
    ]
    for words in ("eval.jsonl::paraphrase-danger", "recall.recall_at_k 0.933333 < min 0.950000"):
        assert words in run.stdout


def test_the_dataset_shows_everything_a_case_can_say(example: Example) -> None:
    cases = example.lines("eval.jsonl")[1:]
    assert len(cases) >= 12
    assert {field for case in cases for field in case} == {
        "case_id",
        "query",
        "cues",
        "expected_sources",
        "expected_concepts",
        "expected_labels",
        "expected_associations",
        "expected_citations",
        "options",
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_find_the_same(example: Example, workers: int) -> None:
    alone = example.run(*REPLAYED).artifact()
    run = example.run(*REPLAYED, f"-n{workers}")
    assert run.status == 0, run.shown
    together = run.artifact()
    del alone["inputs"]["concurrency"], together["inputs"]["concurrency"]
    assert differences(alone, together) == []


def test_the_recording_holds_nothing_but_the_corpus(example: Example) -> None:
    text = (example.directory / "recording.jsonl").read_text("utf-8")
    for word in ("uthorization", "Bearer", "token", "/home/", "/root/", "/tmp/"):
        assert word not in text
    assert {frozenset(line) for line in example.lines("recording.jsonl")} <= {
        frozenset({"method", "path", "request", "status", "response"}),
        frozenset({"method", "path", "request", "status", "headers", "response"}),
    }


@pytest.mark.live
def test_the_recording_is_what_a_real_server_says(example: Example) -> None:
    recorded = example.run(*REPLAYED).artifact()
    run = example.run(
        "--taguru-eval=eval.jsonl", TAGURU_EXAMPLE_LIVE="1", TAGURU_TEST_BIN=str(find_binary())
    )
    assert run.status == 0, run.shown
    assert differences(recorded, run.artifact()) == []


@pytest.mark.live
def test_the_conftest_stops_the_server_it_started(example: Example) -> None:
    record = "--taguru-record=fresh.jsonl"
    run = example.run(
        "--taguru-eval=eval.jsonl",
        record,
        TAGURU_EXAMPLE_LIVE="1",
        TAGURU_TEST_BIN=str(find_binary()),
    )
    assert run.status == 0, run.shown
    assert "fixture taguru_url" in run.stdout
    asked = [
        {(line["method"], line["path"], json.dumps(line["request"])) for line in lines}
        for lines in (example.lines("recording.jsonl"), example.lines("fresh.jsonl"))
    ]
    assert asked[0] == asked[1]
