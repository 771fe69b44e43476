"""The hooks of this plugin, implemented by a conftest; with workers and without."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import CASES, Shore, section
from tests.channels.test_junit import Report
from tests.support.runs import PROJECT

if TYPE_CHECKING:
    from tests.support.runs import Workspace

BOTH = pytest.mark.parametrize("way", [(), ("-n", "2")], ids=["serial", "xdist"])

#: Writes a line for each call, whatever process it comes from.
DIARY = """
import os
from pathlib import Path


def note(line):
    who = os.environ.get("PYTEST_XDIST_WORKER", "main")[:2]
    file = os.open(Path(__file__).with_name("diary.txt"), os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, f"{who} {line}\\n".encode())
    os.close(file)


def pytest_taguru_case(item, block):
    note(f"case {item.name} {block.case_id} {block.recall.recall_at_k}")


def pytest_taguru_artifact(config, artifact):
    note(f"artifact {sorted(artifact)} {artifact['extensions']}")


def pytest_taguru_exitstatus(session, report, exitstatus):
    note(
        f"exitstatus {exitstatus} {report.complete}"
        f" {report.judged}/{report.selected}/{report.total}"
        f" {report.thresholds and report.thresholds.passed} {len(report.case_violations)}"
        f" {report.error_status} {report.other_failures} {report.is_violated}"
    )
"""


def diary(shore: Shore) -> list[str]:
    file = shore.directory / "diary.txt"
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return lines


@BOTH
def test_when_and_where_each_is_called(way: tuple[str, ...], workspace: Workspace) -> None:
    workspace.write("conftest.py", DIARY)
    shore = Shore(workspace=workspace, missing=["kelp"])
    ended = shore.run(*way)
    assert ended.status == 3, ended.shown
    lines = diary(shore)
    place = "gw" if way else "ma"
    assert sorted(lines[:4]) == [
        f"{place} case kelp kelp 0.0",
        f"{place} case limpet limpet 1.0",
        f"{place} case mussel mussel 1.0",
        f"{place} case urchin urchin 1.0",
    ]
    keys = ["corpus", "definitions", "extensions", "generated_at", "inputs", "matching"]
    keys += ["metrics", "taguru_evaluation", "thresholds"]
    assert lines[4:] == [
        f"ma artifact {keys} {{}}",
        "ma exitstatus 1 True 4/4/4 False 1 None False True",
    ]
    assert "extensions" not in ended.artifact()


def test_a_run_that_was_cut_short_asks_for_the_status_only(workspace: Workspace) -> None:
    workspace.write("conftest.py", DIARY)
    shore = Shore(workspace=workspace, missing=["mussel"])
    assert shore.run("-x").status == 3
    assert diary(shore) == [
        "ma case limpet limpet 1.0",
        "ma case mussel mussel 0.0",
        "ma exitstatus 1 False 2/4/4 None 1 None False True",
    ]
    assert shore.run("--taguru-url=http://127.0.0.1:9").status == 1
    assert diary(shore) == ["ma exitstatus 2 False 0/4/4 None 0 1 True False"]
    assert shore.run("-k", "tide").status == 0
    assert diary(shore) == []


def example() -> str:
    """The conftest of the documentation."""
    text = (PROJECT / "docs" / "hooks.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    assert len(blocks) == 1
    return str(blocks[0])


@BOTH
def test_the_example_of_the_documentation(way: tuple[str, ...], workspace: Workspace) -> None:
    workspace.write("conftest.py", example())
    shore = Shore(workspace=workspace, missing=["kelp"])
    ended = shore.run("--junitxml=junit.xml", *way, CI_JOB_ID="4711", WEEKDAY="Monday")
    assert ended.status == 3, ended.shown
    assert ended.artifact()["extensions"] == {"ci": {"job": "4711"}}
    properties = {case.name: case.properties for case in Report(shore.directory).cases}
    assert properties["limpet"]["sources"] == "shore/limpet.md"
    assert properties["kelp"]["sources"] == ""
    friday = shore.run(*way, WEEKDAY="Friday")
    assert friday.status == 0, friday.shown
    assert friday.artifact()["thresholds"]["passed"] is False
    cut = shore.run("-x", "--dist=loadfile", *way, WEEKDAY="Friday")
    assert cut.status == 3, cut.shown


ARTIFACT = "def pytest_taguru_artifact(config, artifact):\n    {body}\n"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("artifact['metrics'] = {}", "changed metrics"),
        ("artifact['metrics']['recall.mrr']['mean'] = 0.25", "changed metrics"),
        ("artifact['mine'] = 1", "changed mine"),
        ("del artifact['corpus'], artifact['inputs']", "changed corpus, inputs"),
        ("artifact['cases'] = []", "changed cases"),
        ("artifact['extensions'] = 5", "changed extensions itself"),
        ("artifact['extensions']['x'] = object()", "artifact['extensions'] cannot be written"),
        ("artifact['extensions']['x'] = '\\ud800'", "artifact['extensions'] cannot be written"),
        ("raise ValueError('no tide table')", "raised ValueError: no tide table"),
    ],
)
def test_an_artifact_hook_that_goes_too_far(
    body: str, complaint: str, workspace: Workspace
) -> None:
    workspace.write("conftest.py", ARTIFACT.format(body=body))
    shore = Shore(workspace=workspace)
    ended = shore.run()
    assert ended.status == 1, ended.shown
    assert len(ended.complaints) == 1, ended.shown
    assert complaint in ended.complaints[0]
    assert shore.is_untouched
    assert "1 error, said on stderr at the end" in section(ended)
    assert "Traceback" not in ended.stdout + ended.stderr


def test_what_is_put_under_extensions_is_kept(workspace: Workspace) -> None:
    body = "artifact['extensions'].update(a=[1, None, True, 'ä', 0.5], b={'c': {}})"
    workspace.write("conftest.py", ARTIFACT.format(body=body))
    written = Shore(workspace=workspace).run("-n", "2").artifact()
    assert written["extensions"] == {"a": [1, None, True, "ä", 0.5], "b": {"c": {}}}
    assert list(written)[-2:] == ["metrics", "extensions"]


EXITSTATUS = "def pytest_taguru_exitstatus(report, exitstatus):\n    {body}\n"


@pytest.mark.parametrize(
    ("body", "missing", "status"),
    [
        ("return 42", [], 42),
        ("return 0", ["kelp"], 0),
        ("return None", ["kelp"], 3),
        ("return exitstatus", ["kelp"], 1),
        ("raise LookupError('no such tide')", [], 1),
        ("raise LookupError('no such tide')", ["kelp"], 1),
        ("return 'three'", [], 1),
    ],
)
def test_the_status_is_what_the_hook_says(
    body: str, missing: list[str], status: int, workspace: Workspace
) -> None:
    workspace.write("conftest.py", EXITSTATUS.format(body=body))
    shore = Shore(workspace=workspace, missing=missing)
    ended = shore.run()
    assert ended.status == status, ended.shown
    assert shore.judged() == list(CASES)
    if "raise" in body:
        assert len(ended.complaints) == 1
        assert re.search(
            r"conftest\.py:2: pytest_taguru_exitstatus raised LookupError: no such tide$",
            ended.complaints[0],
        )


def test_a_case_hook_that_raises_is_an_error_of_its_item(workspace: Workspace) -> None:
    workspace.write(
        "conftest.py",
        "def pytest_taguru_case(block):\n    if block.case_id == 'kelp':\n"
        "        raise KeyError('tide table')\n",
    )
    shore = Shore(workspace=workspace)
    ended = shore.run()
    assert ended.status == 1, ended.shown
    assert "4 passed, 1 error" in ended.stdout
    assert "KeyError: 'tide table'" in ended.stdout
    assert "cut short: 3 of 4 cases were judged; evaluation.json was not written" in section(ended)
    assert shore.is_untouched


def test_a_block_cannot_be_changed(workspace: Workspace) -> None:
    workspace.write(
        "conftest.py",
        "import pytest\n\n\ndef pytest_taguru_case(block):\n"
        "    with pytest.raises(AttributeError):\n        block.case_id = 'another'\n",
    )
    ended = Shore(workspace=workspace).run()
    assert ended.status == 0, ended.shown
