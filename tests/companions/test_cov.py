"""pytest-cov: measures somebody's package while cases run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import CASES, Shore, section
from tests.companions.suite import XDIST, run_beside

if TYPE_CHECKING:
    from tests.support.runs import Launcher, Workspace

pytest.importorskip("pytest_cov")


@pytest.mark.parametrize("way", [(), XDIST], ids=["serial", "xdist"])
def test_coverage_of_the_suite(
    launcher: Launcher, workspace: Workspace, way: tuple[str, ...]
) -> None:
    shore = Shore(workspace=workspace, missing=["kelp"])
    workspace.write("harbour.py", "def boats():\n    return 3\n\n\ndef unused():\n    return 4\n")
    workspace.write(
        "test_shore.py",
        "from harbour import boats\n\n\ndef test_tide():\n    assert boats() == 3\n",
    )
    workspace.write(
        "conftest.py",
        "import harbour\nimport pytest\n\n\n@pytest.fixture(scope='session')\n"
        "def taguru_url(pytestconfig):\n    harbour.boats()\n"
        "    return pytestconfig.getoption('taguru_url')\n",
    )
    ended = run_beside(
        launcher, shore, "--cov=harbour", "--cov-report=term", *way, plugins=("pytest_cov.plugin",)
    )
    assert ended.status == 3, ended.shown
    assert shore.judged() == list(CASES)
    assert len(section(ended)) > 3
    lines = [line.split() for line in ended.stdout.splitlines() if line.startswith("harbour.py")]
    assert lines == [["harbour.py", "4", "1", "75%"]]
    failed = run_beside(
        launcher,
        Shore(workspace=workspace),
        "--cov=harbour",
        "--cov-fail-under=99",
        *way,
        plugins=("pytest_cov.plugin",),
    )
    assert failed.status == 1, failed.shown  # pytest-cov's own gate is an ordinary failure
