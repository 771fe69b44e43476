"""Runs that are interrupted while the server holds requests back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from .runs import COMPANIONS, Run, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .replay_server import Answer, Request

#: How long a test waits for what must happen; far longer than it takes.
PATIENCE = 60.0

#: A conftest that takes away the plugin's own time-out: only the server could end a request.
NO_TIME_OUT = """
from pytest_taguru.engine import client
client.REQUEST_SECONDS = client.HEALTH_SECONDS = 100_000.0
"""


class Holder:
    """A hook of FakeTaguru: holds back the requests that `holds` picks until `release`."""

    def __init__(
        self,
        holds: Callable[[Request], bool],
        otherwise: Callable[[Request], Answer | None] = lambda _: None,
    ) -> None:
        self._holds = holds
        self._otherwise = otherwise
        self._changed = threading.Condition()
        self._released = False
        self.held: list[Request] = []

    def __call__(self, request: Request) -> Answer | None:
        if self._holds(request):
            with self._changed:
                self.held.append(request)
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: self._released, 2 * PATIENCE)
        return self._otherwise(request)

    def wait(self, count: int = 1) -> None:
        """Until so many requests are held."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.held) >= count, PATIENCE)
        assert came, f"only {len(self.held)} requests came"

    def release(self) -> None:
        """Let all go on, now and later."""
        with self._changed:
            self._released = True
            self._changed.notify_all()


def start(directory: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start pytest in a process group of its own."""
    without = [word for name in COMPANIONS for word in ("-p", f"no:{name}")]
    words = ["-p", "no:hypothesispytest", "-p", "no:anyio", *without, *arguments]
    return start_python(directory, "-m", "pytest", *words, **environment)


def start_python(directory: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start Python in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=directory,
        env=clean_environment(PYTHONUNBUFFERED="1", **environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
        start_new_session=hasattr(os, "setsid"),
        preexec_fn=_heed_hang_ups if hasattr(signal, "SIGHUP") else None,
    )


def _heed_hang_ups() -> None:
    """Undo what nohup did to the suite: a signal that is ignored is so in all children too."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def finish(process: subprocess.Popen[str], directory: Path) -> Run:
    """Wait for a started run; it is killed if it does not end, and the test fails."""
    try:
        stdout, stderr = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        raise AssertionError(f"the run did not end:\n{stdout}\n--- stderr\n{stderr}") from None
    return Run(directory=directory, status=process.returncode, stdout=stdout, stderr=stderr)
