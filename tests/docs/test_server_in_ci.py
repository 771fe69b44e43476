"""How the server gets into a job: what docs/howto/ci.md shows fits the Makefile, and works."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import DOCS, Command, run_session, sessions
from tests.support.live import find_binary
from tests.support.runs import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (DOCS / "howto" / "ci.md").read_text("utf-8")
FIRST_SERVER = (DOCS / "howto" / "first-server.md").read_text("utf-8")
SHOWN_BUILDS = re.findall(r"\bcargo install .*$", FIRST_SERVER + PAGE, re.M)


def test_the_builds_are_those_of_make() -> None:
    dry_run = subprocess.run(
        ["make", "--dry-run", "--always-make", "server"],
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    built = re.search(r"\bcargo install .*$", dry_run.stdout.replace("\\\n", " "), re.M)
    assert built is not None
    expected = without_root(built[0])
    assert expected[:3] == ["cargo", "install", "taguru"]
    assert len(SHOWN_BUILDS) == 3
    for shown in SHOWN_BUILDS:
        assert without_root(shown) == expected


def without_root(line: str) -> list[str]:
    """The words of a command, but for where it puts the program."""
    words = shlex.split(line)
    if "--root" in words:
        place = words.index("--root")
        del words[place : place + 2]
    return words


def test_all_pages_name_one_release_of_the_server() -> None:
    named = re.findall(r"taguru(?:==|-| --version )(\d+\.\d+\.\d+)\b", FIRST_SERVER + PAGE)
    makefile = re.search(r"^SERVER_VERSION := (\S+)$", (PROJECT / "Makefile").read_text(), re.M)
    assert makefile is not None
    assert len(named) == 7
    assert set(named) == {makefile[1]}


@pytest.mark.live
def test_the_job_with_the_server_of_the_fixture(tmp_path: Path) -> None:
    """The script of GitLab's job, in the suite that docs/howto/first-server.md ends with."""
    suite = tmp_path / "suite"
    program = suite / ".server" / "bin" / "taguru"
    program.parent.mkdir(parents=True)
    program.symlink_to(find_binary().resolve())
    for command in sessions(FIRST_SERVER):
        for name, text in command.files.items():
            (suite / name).write_text(text, "utf-8")
    assert {"conftest.py", "eval.jsonl", "passages.json"} <= {path.name for path in suite.iterdir()}
    bounds = {"aggregate": {"recall.recall_at_k": {"min": 1}}}
    thresholds = json.dumps({"taguru_evaluate_thresholds": 1, **bounds})
    (suite / "thresholds.json").write_text(thresholds, "utf-8")
    job = re.search(r"^retrieval:\n  image: \S+\n  needs.*?\n  artifacts:", PAGE, re.M | re.S)
    assert job is not None
    script = re.findall(r"^    - (.*)$", job[0], re.M)
    lines = [line for line in script if not line.startswith("pip install ")]
    assert len(lines) == len(script) - 1 == 2
    ended = run_session([Command(line=line, shown=(), files={}) for line in lines], suite)
    assert [end.status for end in ended] == [0, 0], ended
    assert any("(from the fixture taguru_url)" in line for line in ended[1].printed)
    assert "2 of 2 cases judged" in ended[1].printed
    assert any(line.startswith("thresholds passed") for line in ended[1].printed)
    assert (suite / "evaluation.json").is_file()
    assert (suite / "report.xml").is_file()
