"""The helper process of runs.py: reads a job a line, forks, answers with a line.

Run as a script, never imported.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import IO, Any


def preload() -> None:
    """Import what every run would import, except for plugins: pytest wants to do that itself.

    An optional library that is missing will be missed by whoever needs it.
    """
    for name in ("pytest", "msgspec.json", "requests"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def run_job(job: dict[str, Any], stdout: IO[bytes], stderr: IO[bytes]) -> int:
    """Be the pytest process: never called but in a child."""
    os.setsid()
    os.chdir(job["directory"])
    os.environ.clear()
    os.environ.update(job["environment"])
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(stdout.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    sys.argv = ["pytest", *job["arguments"]]
    import pytest

    return pytest.main()


def main() -> int:
    """Serve jobs until stdin ends."""
    preload()
    jobs, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w")
    for line in iter(jobs.readline, ""):
        job = json.loads(line)
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            child = os.fork()
            if child == 0:
                return run_job(job, stdout, stderr)
            _, wait_status = os.waitpid(child, 0)
            ended: dict[str, Any] = {"status": os.waitstatus_to_exitcode(wait_status)}
            for name, stream in (("stdout", stdout), ("stderr", stderr)):
                stream.seek(0)
                ended[name] = stream.read().decode("utf-8", "backslashreplace")
        answers.write(json.dumps(ended) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
