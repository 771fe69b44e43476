"""What the README shows is what happens."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from tests.docs.pages import blocks, dead_links, sessions, unlike
from tests.support.runs import PROJECT, clean_environment

if TYPE_CHECKING:
    from tests.docs.pages import Command
    from tests.support.runs import Launcher, Run

README = (PROJECT / "README.md").read_text("utf-8")
BESIDE_README = sorted(PROJECT.glob("*.md"))
PAGES = [*BESIDE_README, *sorted(PROJECT.glob("docs/**/*.md"))]


COMMANDS = list(sessions(README))
RUN_IN_EXAMPLE = [command for command in COMMANDS if "recording.jsonl" in command.line]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of the example project."""
    unwanted = shutil.ignore_patterns("__pycache__", ".*_cache", "evaluation.json")
    return Path(shutil.copytree(PROJECT / "example_project", tmp_path / "ex", ignore=unwanted))


def run_shown(launcher: Launcher, example: Path, line: str) -> Run:
    """Run a `pytest …` line of the README."""
    program, *arguments = shlex.split(line)
    assert program == "pytest"
    return launcher.run(example, arguments, clean_environment(COLUMNS="80"))


def make(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run make as if not from within another make, which may be running these tests."""
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "VENV")
    return subprocess.run(
        ["make", *arguments],
        cwd=directory,
        env={name: value for name, value in clean_environment().items() if name not in outer},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_there_are_excerpts() -> None:
    assert sum(bool(command.shown) for command in RUN_IN_EXAMPLE) >= 2


@pytest.mark.parametrize("command", RUN_IN_EXAMPLE, ids=lambda command: command.line)
def test_the_excerpts_are_real(command: Command, launcher: Launcher, example: Path) -> None:
    run = run_shown(launcher, example, command.line)
    assert run.status == (3 if "strict" in command.line else 0), run.shown
    assert unlike(command.shown, tuple(run.stdout.splitlines())) is None, run.shown


def test_the_first_command_runs_the_example(tmp_path: Path) -> None:
    """`make example` in a copy of the project, with this environment in place of its own."""
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(PROJECT / "Makefile", project)
    unwanted = shutil.ignore_patterns("__pycache__", ".*_cache", "evaluation.json")
    shutil.copytree(PROJECT / "example_project", project / "example_project", ignore=unwanted)
    fake = project / "venv" / "bin"
    fake.mkdir(parents=True)
    (fake / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (fake / "python").chmod(0o755)
    (project / "pyproject.toml").touch()
    (project / "venv" / ".ready-to-run").touch()
    ended = make("example", "VENV=venv", directory=project)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.endswith("The artifact is example_project/evaluation.json\n")
    assert (project / "example_project" / "evaluation.json").is_file()


@pytest.mark.parametrize("target", ["example", "test", "live"])
def test_the_targets_that_it_names_exist(target: str) -> None:
    assert f"$ make {target}\n" in README
    assert make("--dry-run", target, directory=PROJECT).returncode == 0


def test_the_quick_start_is_valid_as_it_stands(launcher: Launcher, example: Path) -> None:
    dataset, thresholds = list(blocks("json", README))[:2]
    (example / "eval.jsonl").write_text(dataset, "utf-8")
    (example / "thresholds.json").write_text(thresholds, "utf-8")
    pytest_lines = [command.line for command in COMMANDS if command.line.startswith("pytest")]
    shown = [line for line in pytest_lines if "recording.jsonl" not in line]
    assert len(shown) == 2
    for line in shown:
        run = run_shown(launcher, example, f"{line} --taguru-replay=recording.jsonl")
        assert run.status == 0, run.shown
        assert len(json.loads((example / "evaluation.json").read_text("utf-8"))["cases"]) == 2


def test_every_flag_that_it_lists_exists(launcher: Launcher, tmp_path: Path) -> None:
    helped = launcher.run(tmp_path, ["--help"], clean_environment()).stdout
    for page in PAGES:
        for flag in re.findall(r"--taguru-[a-z-]+[a-z]", page.read_text("utf-8")):
            assert re.search(rf"{flag}\b", helped), f"{page.name}: {flag}"


@pytest.mark.parametrize("page", BESIDE_README, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page, in_site=False) == []


def test_the_list_of_pages_names_each_once() -> None:
    pages = README[README.index("## Documentation") : README.index("## Licence")]
    targets = re.findall(r"\]\(([^)\s]+)\)", pages)
    assert "docs/tutorial.md" in targets
    assert sorted(targets) == sorted(set(targets))


def test_the_line_for_a_requirements_file() -> None:
    (line,) = blocks("text", README)
    filled = line.strip().replace("ADDRESS", "https://git.example/gate.git")
    requirement = Requirement(filled.replace("COMMIT", "0" * 40))
    assert requirement.name == "pytest-taguru"
    assert requirement.url == f"git+https://git.example/gate.git@{'0' * 40}"
