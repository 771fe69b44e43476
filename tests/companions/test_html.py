"""pytest-html: cases are rows of its report."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import Shore, busy
from tests.companions.suite import XDIST, run_beside

if TYPE_CHECKING:
    from tests.support.runs import Launcher, Workspace

pytest.importorskip("pytest_html")


@pytest.mark.parametrize("way", [(), XDIST], ids=["serial", "xdist"])
def test_rows_of_the_report(launcher: Launcher, workspace: Workspace, way: tuple[str, ...]) -> None:
    shore = Shore(workspace=workspace, missing=["limpet"], hook=busy)
    ended = run_beside(
        launcher,
        shore,
        "--html=report.html",
        "--self-contained-html",
        *way,
        plugins=("pytest_metadata.plugin", "pytest_html.fixtures", "pytest_html.plugin"),
    )
    assert ended.status == 3, ended.shown
    text = (shore.directory / "report.html").read_text("utf-8")
    match = re.search(r'data-jsonblob="([^"]*)"', text)
    assert match is not None
    blob = json.loads(html.unescape(match[1]))
    results = {name: runs[0]["result"] for name, runs in blob["tests"].items()}
    assert results == {
        "test_shore.py::test_tide": "Passed",
        "eval.jsonl::limpet": "Failed",
        "eval.jsonl::mussel": "Passed",
        "eval.jsonl::kelp": "Skipped",
        "eval.jsonl::urchin": "Passed",
    }
    log = blob["tests"]["eval.jsonl::limpet"][0]["log"]
    assert "limpet: recall.recall_at_k 0.000000 &lt; min 1.000000 (eval.jsonl:2)" in log
