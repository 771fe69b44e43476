"""A small suite that the channels are tried on: four cases beside one ordinary test.

Everything is found but for what a test takes away. All texts here are made up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.fake_taguru import FakeTaguru
from tests.support.replay_server import Answer, LoopbackServer, Request
from tests.support.runs import Run, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.support.runs import Workspace

CASES = ("limpet", "mussel", "kelp", "urchin")
EARLIER = b'{"taguru_evaluation": 1, "note": "an earlier run"}\n'
#: A search that finds nothing has a recall of 0.
RECALL_OF_1 = {"default": {"recall.recall_at_k": {"min": 1}}}
ORDINARY = "def test_tide():\n    assert True\n"


def case(name: str, **members: Any) -> dict[str, Any]:
    """A case that asks for its own name and expects a source of that name."""
    return {
        "case_id": name,
        "query": name,
        "expected_sources": [{"source": f"shore/{name}.md"}],
        **members,
    }


def busy(request: Request) -> Answer | None:
    """A hook of FakeTaguru: the search for kelp is refused."""
    if request.path.endswith("/sources/search") and request.body["query"] == "kelp":
        return Answer(status=503, body='{"error": "too busy"}')
    return None


@dataclass(kw_only=True)
class Shore:
    """The suite, and the server that it asks."""

    workspace: Workspace
    cases: Sequence[str] = CASES
    missing: Sequence[str] = ()
    thresholds: dict[str, Any] | None = field(default_factory=lambda: {"cases": RECALL_OF_1})
    hook: Callable[[Request], Answer | None] = lambda _: None
    extra: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        self.fake = FakeTaguru(
            context="shore",
            sources=tuple(sorted(f"shore/{name}.md" for name in self.cases)),
            hits={
                name: [(f"shore/{name}.md", 0)] for name in self.cases if name not in self.missing
            },
            hook=self.hook,
        )
        self.workspace.dataset(*map(case, self.cases), *self.extra)
        if self.thresholds is not None:
            self.workspace.thresholds(**self.thresholds)
        self.workspace.write("test_shore.py", ORDINARY)
        self.artifact.write_bytes(EARLIER)

    @property
    def directory(self) -> Path:
        return self.workspace.directory

    @property
    def artifact(self) -> Path:
        return self.directory / "evaluation.json"

    @property
    def is_untouched(self) -> bool:
        """Whether the earlier artifact is there, byte for byte, and nothing beside it."""
        left = [file.name for file in self.directory.glob("*evaluation*")]
        return self.artifact.read_bytes() == EARLIER and left == ["evaluation.json"]

    def arguments(self, url: str) -> list[str]:
        """The flags of a run against a server."""
        flags = ["--taguru-eval=eval.jsonl", "--taguru-context=shore", f"--taguru-url={url}"]
        if self.thresholds is not None:
            flags.append("--taguru-thresholds=thresholds.json")
        return flags

    def run(self, *arguments: str, **environment: str) -> Run:
        """Run pytest against a server of this run's own."""
        with self.serve() as server:
            return self.run_against(server, *arguments, **environment)

    def serve(self) -> LoopbackServer:
        """The server, to be entered."""
        return self.fake.serve()

    def run_against(self, server: LoopbackServer, *arguments: str, **environment: str) -> Run:
        """Run pytest against a server that is kept."""
        return self.workspace.run(*self.arguments(server.url), *arguments, **environment)

    def start(self, server: LoopbackServer, *arguments: str) -> subprocess.Popen[str]:
        """Start a run in a process group of its own, to be interrupted."""
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *PLAIN, *self.arguments(server.url), *arguments],
            cwd=self.directory,
            env=clean_environment(PYTHONUNBUFFERED="1"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=hasattr(os, "setsid"),
        )

    def finish(self, process: subprocess.Popen[str]) -> Run:
        """Wait for a started run."""
        stdout, stderr = process.communicate()
        return Run(
            directory=self.directory, status=process.returncode, stdout=stdout, stderr=stderr
        )

    def judged(self) -> list[str]:
        """The cases of the artifact, in its order."""
        return [one["case_id"] for one in json.loads(self.artifact.read_text("utf-8"))["cases"]]


#: Plugins that a started run does not want.
PLAIN = ("-p", "no:hypothesispytest", "-p", "no:anyio")


def section(run: Run) -> list[str]:
    """The lines of the final section."""
    lines = run.stdout.splitlines()
    starts = [at for at, line in enumerate(lines) if line.strip("= ") == "taguru evaluation"]
    if not starts:
        return []
    assert len(starts) == 1, run.shown
    after = lines[starts[0] + 1 :]
    ends = [at for at, line in enumerate(after) if line.startswith("===")]
    shown = [line.strip() for line in after[: ends[0] if ends else None]]
    return shown[:-1] if shown and not shown[-1] else shown
