"""pytest-json-report: outcomes and properties of cases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import Shore, busy
from tests.companions.suite import XDIST, run_beside

if TYPE_CHECKING:
    from tests.support.runs import Launcher, Workspace

pytest.importorskip("pytest_jsonreport")


@pytest.mark.parametrize("way", [(), XDIST], ids=["serial", "xdist"])
def test_outcomes_of_the_report(
    launcher: Launcher, workspace: Workspace, way: tuple[str, ...]
) -> None:
    # The companion itself uses an old mark that pytest warns of.
    workspace.write("pytest.ini", "[pytest]\n")
    shore = Shore(workspace=workspace, missing=["limpet"], hook=busy)
    ended = run_beside(
        launcher,
        shore,
        "--json-report",
        "--json-report-file=report.json",
        *way,
        plugins=("pytest_metadata.plugin", "pytest_jsonreport.plugin"),
    )
    assert ended.status == 3, ended.shown
    report = json.loads((shore.directory / "report.json").read_text("utf-8"))
    assert report["summary"]["total"] == 5
    tests = {test["nodeid"]: test for test in report["tests"]}
    assert {name: test["outcome"] for name, test in tests.items()} == {
        "test_shore.py::test_tide": "passed",
        "eval.jsonl::limpet": "failed",
        "eval.jsonl::mussel": "passed",
        "eval.jsonl::kelp": "skipped",
        "eval.jsonl::urchin": "passed",
    }
    lines = tests["eval.jsonl::limpet"]["call"][
        "longrepr"
    ].splitlines()  # xdist adds one of its own
    assert lines[1 if way else 0] == (
        "limpet: recall.recall_at_k 0.000000 < min 1.000000 (eval.jsonl:2)"
    )
    assert "taguru_block" not in json.dumps(report)
