"""What the benchmarks share: a generated corpus on a real server, a slow line, a stopwatch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taguru.testing import SpawnedServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

CONTEXT = "bench"
_WORDS = [
    "river",
    "stone",
    "harbour",
    "lantern",
    "copper",
    "violet",
    "thread",
    "morning",
    "orchard",
    "signal",
    "paper",
    "winter",
    "bridge",
    "kettle",
    "meadow",
    "compass",
    "ladder",
    "button",
    "window",
    "garden",
    "timber",
    "pebble",
    "whistle",
    "mirror",
]


def binary() -> str:
    """The original program, which is also the server."""
    found = os.environ.get("TAGURU_TEST_BIN") or shutil.which("taguru")
    if not found:
        sys.exit("the taguru binary is needed: set TAGURU_TEST_BIN or put it on PATH")
    return found


def corpus(sources: int = 200) -> dict[str, Any]:
    """Passages of two paragraphs and an edge each, the same at every call."""
    rng = random.Random(7)
    passages = {
        f"doc-{number:04d}.md": "\n\n".join(
            " ".join([f"topic{number}", *rng.choices(_WORDS, k=30)]) for _ in range(2)
        )
        for number in range(sources)
    }
    edges = [
        {
            "subject": f"Subject {number:04d}",
            "label": "is about",
            "object": f"Topic {number:04d}",
            "weight": 1.0,
            "source": f"doc-{number:04d}.md",
            "paragraph": 0,
        }
        for number in range(sources)
    ]
    return {"passages": passages, "associations": edges}


def write_dataset(file: Path, cases: int, sources: int = 200) -> None:
    """A dataset whose cases use all lanes in turn: 3.75 requests a case on average."""
    lines: list[dict[str, Any]] = [{"taguru_eval": 1, "name": f"{cases} generated cases"}]
    for number in range(cases):
        at = number % sources
        source = f"doc-{at:04d}.md"
        case: dict[str, Any] = {
            "case_id": f"case-{number:05d}",
            "query": f"topic{at} {_WORDS[number % len(_WORDS)]}",
            "expected_sources": [{"source": source, "relevance": 1 + number % 3}],
        }
        if number % 2 == 0:
            case["cues"] = [f"Subject {at:04d}"]
            case["expected_concepts"] = [f"Subject {at:04d}"]
        if number % 4 == 1:
            case["expected_associations"] = [
                {
                    "subject": f"Subject {at:04d}",
                    "label": "is about",
                    "object": f"Topic {at:04d}",
                }
            ]
        if number % 4 != 2:
            case["expected_citations"] = [
                {"source": source, "paragraph": 0, "quote": f"topic{at} "}
                for _ in range(1 + (number % 4 == 3) * 2)
            ]
        lines.append(case)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@contextlib.contextmanager
def seeded_server(sources: int = 200) -> Iterator[str]:
    """A real server with the corpus; yields its base URL."""
    data = tempfile.mkdtemp(prefix="taguru-bench-")
    server = SpawnedServer(binary(), data, {})
    try:
        built = corpus(sources)
        _call(server.base_url, "PUT", f"/contexts/{CONTEXT}", {"description": "benchmark"})
        _call(
            server.base_url,
            "POST",
            f"/contexts/{CONTEXT}/sources",
            {"passages": built["passages"]},
        )
        _call(server.base_url, "POST", f"/contexts/{CONTEXT}/associations", built["associations"])
        yield server.base_url
    finally:
        server.stop()
        shutil.rmtree(data, ignore_errors=True)


def _call(base: str, method: str, route: str, body: object) -> None:
    request = urllib.request.Request(
        base + route,
        data=json.dumps(body).encode(),
        method=method,
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


@contextlib.contextmanager
def slow_line(base: str, milliseconds: float) -> Iterator[str]:
    """A loopback proxy that holds each request back; yields its base URL (or `base` for 0)."""
    if not milliseconds:
        yield base
        return
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_proxy, args=(base, milliseconds / 1000, theirs), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _proxy(base: str, seconds: float, ready: Connection) -> None:
    host, _, port = base.removeprefix("http://").partition(":")

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float
    ) -> None:
        try:
            while chunk := await reader.read(1 << 16):
                if delay:
                    await asyncio.sleep(delay)
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(
            pump(reader, upstream_writer, seconds), pump(upstream_reader, writer, 0)
        )

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


@dataclass(frozen=True)
class Timing:
    """One command, run several times as a whole process."""

    seconds: float
    peak_mb: float


#: pytest with this plugin and no other that happens to be installed beside it.
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
WITH_PLUGIN = [*PYTEST, "-p", "pytest_taguru.plugin"]


def clean_env(**extra: str) -> dict[str, str]:
    """The environment without what would steer a server, a run or pytest."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("TAGURU_", "PYTEST_", "OTEL_"))
    }
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **extra}


def run_once(command: Sequence[str], cwd: Path, ok: Sequence[int] = (0,)) -> Timing:
    """Run a command to its end; wall seconds and peak resident memory of it alone."""
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=cwd, env=clean_env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode not in ok:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{output.decode()[-2000:]}")
    return Timing(seconds, usage.ru_maxrss / 1024)


def in_turn(commands: dict[str, tuple[Sequence[str], Path]], runs: int) -> dict[str, list[Timing]]:
    """Run commands in turn, so that a drift of the machine's speed meets all of them."""
    found: dict[str, list[Timing]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, (command, cwd) in commands.items():
            found[name].append(run_once(command, cwd))
    return found


def median_ratio(ours: list[Timing], theirs: list[Timing]) -> float:
    """The median of the pairs' ratios of wall time."""
    return statistics.median(
        one.seconds / other.seconds for one, other in zip(ours, theirs, strict=True)
    )


def median_seconds(timings: list[Timing]) -> float:
    """The median wall time."""
    return statistics.median(timing.seconds for timing in timings)


def peak_of_children() -> float:
    """Peak resident memory of the children waited for so far, MB."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
