"""pytest-rerunfailures: the last attempt counts, once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import CASES, Shore, section
from tests.channels.test_junit import Report
from tests.companions.suite import XDIST, run_beside
from tests.support.replay_server import result

if TYPE_CHECKING:
    from tests.support.replay_server import Answer, Request
    from tests.support.runs import Launcher, Workspace

pytest.importorskip("pytest_rerunfailures")

WAYS = pytest.mark.parametrize("way", [(), XDIST], ids=["serial", "xdist"])


class Moody:
    """Finds nothing for kelp the first few times."""

    def __init__(self, bad: int) -> None:
        self.bad = bad
        self.asked: Counter[str] = Counter()

    def __call__(self, request: Request) -> Answer | None:
        if not request.path.endswith("/sources/search"):
            return None
        query = request.body["query"]
        self.asked[query] += 1
        if query == "kelp" and self.asked[query] <= self.bad:
            return result([])
        return None


@WAYS
@pytest.mark.parametrize(("bad", "status"), [(2, 0), (3, 3)])
def test_the_last_attempt_counts(
    launcher: Launcher, workspace: Workspace, way: tuple[str, ...], bad: int, status: int
) -> None:
    moody = Moody(bad)
    shore = Shore(workspace=workspace, hook=moody)
    ended = run_beside(
        launcher,
        shore,
        "--reruns=2",
        "--junitxml=junit.xml",
        *way,
        plugins=("pytest_rerunfailures",),
    )
    assert ended.status == status, ended.shown
    assert "2 rerun" in ended.stdout
    assert shore.judged() == list(CASES)
    assert moody.asked == {"limpet": 1, "mussel": 1, "kelp": 3, "urchin": 1}  # asked afresh
    kelp = ended.artifact()["cases"][2]
    assert kelp["recall"]["recall_at_k"] == (0.0 if status else 1.0)
    assert ended.artifact()["metrics"]["recall.recall_at_k"]["n"] == 4
    element = next(
        element
        for element in Report(shore.directory).suite.iter("testcase")
        if element.attrib["name"] == "kelp"
    )
    names = [one.attrib["name"] for one in element.iter("property")]
    assert len(names) == len(set(names))


@WAYS
def test_an_unreachable_server_is_not_asked_for_ever(
    launcher: Launcher, workspace: Workspace, way: tuple[str, ...]
) -> None:
    shore = Shore(workspace=workspace)
    ended = run_beside(
        launcher,
        shore,
        "--reruns=1",
        "--taguru-url=http://127.0.0.1:9",
        *way,
        plugins=("pytest_rerunfailures",),
    )
    assert ended.status == 1, ended.shown
    assert len(ended.complaints) == 1, ended.shown
    assert "1 error, said on stderr at the end" in section(ended)
    assert shore.is_untouched
