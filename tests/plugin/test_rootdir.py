"""A dataset as a word of its own, which pytest takes for an argument when it looks for rootdir."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.runs import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.runs import Launcher

WARNING = "TaguruWarning: rootdir became"
NAME = "pytest_taguru.warnings.TaguruWarning"
LOST = ("--collect-only", "-q", "--taguru-eval", "../data/eval.jsonl", "--taguru-context=sake")


@pytest.fixture
def suite(launcher: Launcher, tmp_path: Path) -> Workspace:
    """A suite with a configuration that needs no warnings, beside a folder with a dataset."""
    suite = Workspace(launcher, tmp_path / "suite")
    suite.write("pytest.ini", "[pytest]\ntaguru_context = sake\n")
    suite.dataset({"case_id": "one", "query": "q"}, name="../data/eval.jsonl")
    return suite


@pytest.mark.parametrize("above", [None, "data/pytest.ini", "pytest.ini"])
def test_a_lost_configuration_is_noticed(suite: Workspace, above: str | None) -> None:
    if above:
        suite.write(f"../{above}", "[pytest]\n")
    run = suite.run(*LOST)
    assert WARNING in run.stdout + run.stderr, run.shown


def test_a_filter_can_silence_it(suite: Workspace) -> None:
    run = suite.run(*LOST, f"-Wignore::{NAME}")
    assert run.status == 0, run.shown
    assert "rootdir became" not in run.stdout + run.stderr


@pytest.mark.parametrize("filtered", ["error", f"error::{NAME}"])
def test_a_filter_can_make_it_an_error(suite: Workspace, filtered: str) -> None:
    run = suite.run(*LOST, f"-W{filtered}")
    assert run.status == 2, run.shown
    (complaint,) = run.complaints
    assert complaint.startswith("taguru: rootdir became ")
    assert complaint.endswith("; write --taguru-eval=FILE")
    assert "INTERNALERROR" not in run.stdout + run.stderr


def test_one_word_finds_it_and_warns_of_nothing(suite: Workspace) -> None:
    run = suite.run("--collect-only", "-q", "--taguru-eval=../data/eval.jsonl")
    assert run.status == 0, run.shown
    assert WARNING not in run.stdout + run.stderr


def test_a_dataset_inside_the_project_loses_nothing(suite: Workspace) -> None:
    suite.dataset({"case_id": "one", "query": "q"}, name="sets/eval.jsonl")
    run = suite.run("--collect-only", "-q", "--taguru-eval", "sets/eval.jsonl")
    assert run.status == 0, run.shown
    assert WARNING not in run.stdout + run.stderr
