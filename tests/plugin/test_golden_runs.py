"""The recorded runs of the original program, run again by the plugin."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.artifact_diff import differences
from tests.support.replay_server import Recording, replay, request_key
from tests.support.runs import GOLDEN, plugin_flags

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.runs import Run, Workspace

HEALTH = request_key("GET", "/health", None)
CORPORA = ("sake", "orchard", "edge", "corners")


@dataclass(frozen=True)
class Golden:
    """A recorded run."""

    corpus: str
    directory: Path

    @property
    def name(self) -> str:
        return f"{self.corpus}-{self.directory.name}"

    @property
    def flags(self) -> list[str]:
        return plugin_flags(self._described["flags"])

    @property
    def context(self) -> str:
        return str(self._described["context"])

    @property
    def status(self) -> int:
        return int(self._described["exit"])

    @property
    def _described(self) -> dict[str, Any]:
        described: dict[str, Any] = json.loads((self.directory / "run.json").read_text("utf-8"))
        return described

    @property
    def recording_file(self) -> Path:
        return self.directory / "exchanges.jsonl"

    @property
    def artifact_file(self) -> Path:
        return self.directory / "evaluation.json"

    @property
    def requests(self) -> Counter[str]:
        """The recorded requests; the original asked twice for /health, which once will do."""
        counts = Counter(Recording.load(self.recording_file).request_counts)
        assert counts[HEALTH] == 2
        counts[HEALTH] = 1
        return counts


def golden_runs(*corpora: str) -> list[Golden]:
    return [
        Golden(corpus, directory)
        for corpus in corpora
        for directory in sorted((GOLDEN / corpus / "runs").iterdir())
    ]


RUNS = golden_runs(*CORPORA)
FAULTS = [Golden("sake", directory) for directory in sorted((GOLDEN / "faults").iterdir())]


def test_every_recording_is_here() -> None:
    counts = Counter(run.corpus for run in RUNS)
    assert counts == {"sake": 10, "orchard": 9, "edge": 9, "corners": 10}
    assert len(FAULTS) == 37
    assert sum(not fault.artifact_file.exists() for fault in FAULTS) == 8


def assert_as_recorded(run: Run, golden: Golden) -> None:
    assert run.status == golden.status, run.shown
    expected = json.loads(golden.artifact_file.read_text("utf-8"))
    assert differences(expected, run.artifact()) == []


@pytest.mark.parametrize("golden", RUNS, ids=lambda golden: golden.name)
def test_a_run_over_http_is_as_recorded(golden: Golden, workspace: Workspace) -> None:
    workspace.corpus(golden.corpus)
    with replay(Recording.load(golden.recording_file)) as server:
        run = workspace.evaluate(server.url, *golden.flags, context=golden.context)
    assert_as_recorded(run, golden)
    assert server.request_counts == golden.requests


@pytest.mark.parametrize(
    "golden",
    [run for run in RUNS if run.directory.name in ("assembly", "thresholds-fail")],
    ids=lambda golden: golden.name,
)
@pytest.mark.parametrize("flag", ["--taguru-concurrency=1", "--taguru-concurrency=32", "-n2"])
def test_the_order_of_requests_does_not_matter(
    flag: str, golden: Golden, workspace: Workspace
) -> None:
    workspace.corpus(golden.corpus)
    with replay(Recording.load(golden.recording_file)) as server:
        run = workspace.evaluate(server.url, flag, *golden.flags, context=golden.context)
    assert_as_recorded(run, golden)
    asked, recorded = server.request_counts, golden.requests
    if flag == "-n2":  # each worker opens and closes the run for itself
        asked, recorded = only_of_cases(asked), only_of_cases(recorded)
    assert asked == recorded


def only_of_cases(counts: Counter[str]) -> Counter[str]:
    return Counter({key: n for key, n in counts.items() if json.loads(key)[0] == "POST"})


@pytest.mark.parametrize("golden", golden_runs("sake"), ids=lambda golden: golden.name)
def test_a_run_from_a_recording_needs_no_server(golden: Golden, workspace: Workspace) -> None:
    workspace.corpus(golden.corpus)
    run = workspace.evaluate(
        "http://127.0.0.1:8248",
        f"--taguru-replay={golden.recording_file}",
        *golden.flags,
        context=golden.context,
    )
    assert_as_recorded(run, golden)


@pytest.mark.parametrize(
    "golden",
    [fault for fault in FAULTS if fault.artifact_file.exists()],
    ids=lambda golden: golden.name,
)
def test_a_fault_that_a_run_survives_is_recorded(golden: Golden, workspace: Workspace) -> None:
    workspace.corpus("sake")
    with replay(Recording.load(golden.recording_file)) as server:
        run = workspace.evaluate(server.url, *golden.flags, context=golden.context)
    assert_as_recorded(run, golden)
    assert server.request_counts == golden.requests


@pytest.mark.parametrize(
    "golden",
    [fault for fault in FAULTS if not fault.artifact_file.exists()],
    ids=lambda golden: golden.name,
)
def test_a_fault_that_ends_a_run_leaves_nothing(golden: Golden, workspace: Workspace) -> None:
    workspace.corpus("sake")
    with replay(Recording.load(golden.recording_file)) as server:
        run = workspace.evaluate(server.url, *golden.flags, context=golden.context)
    assert golden.status == 1
    assert run.status == 1, run.shown
    assert len(run.complaints) == 1, run.shown
    assert "Traceback" not in run.stdout + run.stderr
    assert sorted(file.name for file in workspace.directory.glob("*.json")) == [
        "thresholds-fail.json",
        "thresholds-pass.json",
    ]
    assert server.request_counts == golden.requests
