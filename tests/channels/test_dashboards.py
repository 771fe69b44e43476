"""docs/ci-dashboards.md: its commands run, and what it says is in the file is there."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import CASES, RECALL_OF_1, Shore
from tests.channels.test_junit import Report
from tests.support.runs import PROJECT

if TYPE_CHECKING:
    from tests.support.runs import Workspace

TEXT = (PROJECT / "docs" / "ci-dashboards.md").read_text("utf-8")
JOBS = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.M | re.S)


@pytest.mark.parametrize("job", JOBS, ids=["gitlab", "github"])
def test_the_command_of_a_job(job: str, workspace: Workspace) -> None:
    command = re.search(r"^ +- (?:run: )?pytest (.*)$", job, re.M)
    named = re.search(r"(?:junit|report_paths): (\S+)$", job, re.M)
    assert command is not None
    assert named is not None
    thresholds = {"aggregate": {"diversity.sources": {"min": 2}}, "cases": RECALL_OF_1}
    shore = Shore(workspace=workspace, missing=["kelp"], thresholds=thresholds)
    with shore.serve() as server:
        arguments = shlex.split(command[1].replace("$TAGURU_URL", server.url))
        ended = shore.workspace.run(*arguments, "--taguru-context=shore")
    assert ended.status == 3, ended.shown
    (shore.directory / named[1]).rename(shore.directory / "junit.xml")
    report = Report(shore.directory)
    report.check_counts()
    failed = {
        (case.classname, case.name): case for case in report.cases if case.outcome == "failure"
    }
    assert set(failed) == {
        ("eval.jsonl", "kelp"),
        ("eval.jsonl.gate", "cases"),
        ("eval.jsonl.gate", "diversity.sources"),
    }
    kelp = failed["eval.jsonl", "kelp"]
    line = "kelp: recall.recall_at_k 0.000000 < min 1.000000 (eval.jsonl:4)"
    assert kelp.text.splitlines()[0] == line
    assert line in TEXT
    assert (kelp.file, kelp.line) == ("eval.jsonl", "3")


def test_the_properties_that_the_page_names(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace)
    assert shore.run("--junitxml=junit.xml").status == 0
    report = Report(shore.directory)
    named = set(re.findall(r"`(taguru\.[a-z_0-9]+)`", TEXT))
    found = {name for name in report.properties if name.startswith("taguru.")}
    found |= {name for case in report.cases for name in case.properties if "taguru." in name}
    assert named == found


def test_a_dataset_in_a_directory(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace)
    (shore.directory / "quality").mkdir()
    (shore.directory / "eval.jsonl").rename(shore.directory / "quality" / "eval.jsonl")
    with shore.serve() as server:
        ended = shore.workspace.run(
            "--taguru-eval=quality/eval.jsonl",
            "--taguru-context=shore",
            f"--taguru-url={server.url}",
            "--taguru-thresholds=thresholds.json",
            "--junitxml=junit.xml",
        )
    assert ended.status == 0, ended.shown
    report = Report(shore.directory)
    assert list(report.outcomes("quality.eval.jsonl")) == list(CASES)
    assert list(report.outcomes("quality.eval.jsonl.gate")) == ["corpus.stable", "cases"]
