"""pytest-split, or any way to shard: each part is a selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import CASES, Shore
from tests.companions.suite import run_beside

if TYPE_CHECKING:
    from tests.support.runs import Launcher, Workspace


@pytest.mark.parametrize("algorithm", ["duration_based_chunks", "least_duration"])
def test_parts_add_up(launcher: Launcher, workspace: Workspace, algorithm: str) -> None:
    pytest.importorskip("pytest_split")
    shore = Shore(workspace=workspace, missing=["kelp"])
    judged: list[str] = []
    statuses = []
    for group in ("1", "2"):
        ended = run_beside(
            launcher,
            shore,
            "--splits=2",
            f"--group={group}",
            f"--splitting-algorithm={algorithm}",
            plugins=("pytest_split.plugin",),
        )
        statuses.append(ended.status)
        selected = len(shore.judged())
        assert 0 < selected < 4, ended.shown
        assert ended.artifact()["inputs"]["selection"] == {"selected": selected, "total": 4}
        judged += shore.judged()
    assert sorted(judged) == sorted(CASES)
    assert sorted(statuses) == [0, 3]


def test_shards_by_node_ids(launcher: Launcher, workspace: Workspace) -> None:
    shore = Shore(workspace=workspace)
    for shard in (("limpet", "urchin"), ("mussel", "kelp")):
        ended = run_beside(launcher, shore, *(f"eval.jsonl::{name}" for name in shard))
        assert ended.status == 0, ended.shown
        assert shore.judged() == list(shard)
