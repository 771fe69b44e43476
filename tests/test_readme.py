"""What the README shows is what happens."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from tests.support.runs import PROJECT, clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.runs import Launcher, Run

README = (PROJECT / "README.md").read_text("utf-8")
PAGES = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/*.md")])


@dataclass(frozen=True)
class Command:
    """A command line of a console block, and the lines shown below it."""

    line: str
    shown: tuple[str, ...]


def blocks(language: str, text: str = README) -> Iterator[str]:
    """The fenced blocks of a language."""
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.M | re.S):
        yield match[1]


def commands() -> Iterator[Command]:
    """The commands of all console blocks."""
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            line, *shown = part.splitlines()
            yield Command(line, tuple(shown))


def steady(line: str) -> str:
    """A line of output without what differs from run to run."""
    line = re.sub(r"\d+\.\d+s", "N s", line)
    line = re.sub(r"=+|-{5,}|_{5,}", "=", line)
    return re.sub(r"\s+", " ", line).strip()


RUN_IN_EXAMPLE = [command for command in commands() if "recording.jsonl" in command.line]


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
    printed = iter([steady(line) for line in run.stdout.splitlines()])
    for line in command.shown:
        if line.strip() not in ("", "…"):
            # In this order; `in` consumes the iterator up to the line.
            assert steady(line) in printed, f"{line}\nis not, or not there, in\n{run.shown}"


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
    dataset, thresholds = list(blocks("json"))[:2]
    (example / "eval.jsonl").write_text(dataset, "utf-8")
    (example / "thresholds.json").write_text(thresholds, "utf-8")
    pytest_lines = [command.line for command in commands() if command.line.startswith("pytest")]
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        file, _, anchor = target.partition("#")
        if file.startswith("https://"):
            continue
        linked = page.parent / file if file else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.M)
            slugs = [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings]
            assert anchor in slugs, target


def test_the_list_of_pages_names_each_once() -> None:
    pages = README[README.index("## Documentation") : README.index("## Licence")]
    targets = re.findall(r"\]\(([^)\s]+)\)", pages)
    assert "docs/tutorial.md" in targets
    assert sorted(targets) == sorted(set(targets))


def test_the_line_for_a_requirements_file() -> None:
    (line,) = blocks("text")
    filled = line.strip().replace("ADDRESS", "https://git.example/gate.git")
    requirement = Requirement(filled.replace("COMMIT", "0" * 40))
    assert requirement.name == "pytest-taguru"
    assert requirement.url == f"git+https://git.example/gate.git@{'0' * 40}"
