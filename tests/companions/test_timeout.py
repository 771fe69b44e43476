"""pytest-timeout: a case that takes too long is a case that was not judged."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import Shore, section
from tests.companions.suite import run_beside

if TYPE_CHECKING:
    from tests.support.replay_server import Answer, Request
    from tests.support.runs import Launcher, Workspace

pytest.importorskip("pytest_timeout")


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGALRM")
@pytest.mark.parametrize("concurrency", ["1", "8"])
@pytest.mark.parametrize("method", ["signal", "thread"])
def test_a_case_that_hangs(
    launcher: Launcher, workspace: Workspace, method: str, concurrency: str
) -> None:
    released = threading.Event()

    def hook(request: Request) -> Answer | None:
        if request.path.endswith("/sources/search") and request.body["query"] == "urchin":
            released.wait()
        return None

    # The mark gives all others all the time they need.
    workspace.write(
        "conftest.py",
        "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n"
        "    urchin = [item for item in items if item.name == 'urchin']\n"
        "    urchin[0].add_marker(pytest.mark.timeout(0.5))\n",
    )
    shore = Shore(workspace=workspace, missing=["limpet"], hook=hook)
    arguments = [f"--timeout-method={method}", f"--taguru-concurrency={concurrency}"]
    with shore.serve() as server:
        # The server has to let go before it can be stopped, but only after the run.
        try:
            ended = run_beside(
                launcher, shore, *arguments, plugins=("pytest_timeout",), server=server
            )
        finally:
            released.set()
    assert ended.status == 1, ended.shown
    assert shore.is_untouched
    assert "Timeout" in ended.stdout + ended.stderr
    if method == "signal":
        shown = section(ended)
        assert "cut short: 3 of 4 cases were judged; evaluation.json was not written" in shown
        assert "case limpet: recall.recall_at_k 0.000000 < min 1.000000" in shown
