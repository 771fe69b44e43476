"""A dataset as a word of its own, which pytest takes for an argument when it looks for rootdir."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.runs import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.runs import Launcher

WARNING = "TaguruWarning: rootdir became"


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
    run = suite.run(
        "--collect-only", "-q", "--taguru-eval", "../data/eval.jsonl", "--taguru-context=sake"
    )
    assert WARNING in run.stdout + run.stderr, run.shown


def test_one_word_finds_it_and_warns_of_nothing(suite: Workspace) -> None:
    run = suite.run("--collect-only", "-q", "--taguru-eval=../data/eval.jsonl")
    assert run.status == 0, run.shown
    assert WARNING not in run.stdout + run.stderr


def test_a_dataset_inside_the_project_loses_nothing(suite: Workspace) -> None:
    suite.dataset({"case_id": "one", "query": "q"}, name="sets/eval.jsonl")
    run = suite.run("--collect-only", "-q", "--taguru-eval", "sets/eval.jsonl")
    assert run.status == 0, run.shown
    assert WARNING not in run.stdout + run.stderr
