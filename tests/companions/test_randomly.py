"""pytest-randomly: any order, the same artifact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import CASES, Shore
from tests.companions.suite import XDIST, run_beside

if TYPE_CHECKING:
    from tests.support.runs import Launcher, Workspace

pytest.importorskip("pytest_randomly")


@pytest.mark.parametrize("way", [(), XDIST], ids=["serial", "xdist"])
def test_a_shuffled_run(launcher: Launcher, workspace: Workspace, way: tuple[str, ...]) -> None:
    shore = Shore(workspace=workspace, missing=["kelp"])
    orders = set()
    for seed in range(2 if way else 4):
        ended = run_beside(
            launcher,
            shore,
            f"--randomly-seed={seed}",
            "-v",
            *way,
            plugins=("pytest_randomly",),
        )
        assert ended.status == 3, ended.shown
        assert not shore.is_untouched, ended.shown
        assert shore.judged() == list(CASES)
        assert ended.artifact()["thresholds"]["violations"][0]["case_id"] == "kelp"
        lines = [line for line in ended.stdout.splitlines() if "%]" in line]
        orders.add(tuple(line.split()[0] for line in lines))
    if not way:
        assert len(orders) > 1  # it did shuffle
