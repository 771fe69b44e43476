"""Where the evaluated server comes from: a fixture of this suite starts it.

With TAGURU_EXAMPLE_LIVE=1 a real server is started on a free port, filled from corpus.json and
stopped at the end. Otherwise the address is what the plugin itself would use: that of a server
that runs already, or a mere name when the run is answered from a recording.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from seed import load_corpus, seed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_SECONDS = 30


@pytest.fixture(scope="session")
def taguru_url(taguru_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Override the plugin's fixture of the same name; its own value comes as the argument."""
    if os.environ.get("TAGURU_EXAMPLE_LIVE") != "1":
        yield taguru_url
        return
    binary = os.environ.get("TAGURU_TEST_BIN") or shutil.which("taguru")
    if binary is None:
        pytest.fail("TAGURU_EXAMPLE_LIVE=1, but there is no taguru on PATH", pytrace=False)
    with running_server(binary, tmp_path_factory.mktemp("taguru")) as url:
        seed(url, load_corpus())
        yield url


@contextmanager
def running_server(binary: str, directory: Path) -> Iterator[str]:
    """Start a server that keeps all it has under `directory`, and yield its address."""
    log = directory / "server.log"
    # The server must not pick up the settings of whoever runs the tests.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TAGURU_", "OTEL_"))}
    environment |= {"TAGURU_ADDR": "127.0.0.1:0", "TAGURU_DATA_DIR": str(directory / "data")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [binary], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server has said where it listens."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            if line.startswith("listening on ") and line.endswith("\n"):
                return "http://" + line.removeprefix("listening on ").strip()
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start; its log: {log}")
