"""The real server: found, started, seeded, with stand-ins for its providers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import pytest
import requests
from taguru.testing import SpawnedServer

from .replay_server import Answer, LoopbackServer, Request, refusal
from .runs import GOLDEN, Run, clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EMBEDDING_MODEL = "orchard-stub-v1"
RERANK_MODEL = "bge-reranker-v2-m3"
#: Texts with one of these words lie close to each other.
_NEAR = ("ぶどう", "果樹園", "grape", "orchard")


def find_binary() -> Path:
    """The server's binary; without one the test is skipped, or fails where that is not allowed."""
    named = os.environ.get("TAGURU_TEST_BIN")
    found = named or shutil.which("taguru")
    if found and Path(found).is_file():
        return Path(found)
    reason = f"no taguru server: TAGURU_TEST_BIN={named or ''}, and none on PATH"
    if os.environ.get("TAGURU_REQUIRE_LIVE") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def embedding_provider() -> LoopbackServer:
    """Embeddings in the usual shape, three numbers each, the same for the same text."""

    def vector(text: str) -> list[float]:
        if any(word in text for word in _NEAR):
            return [1.0, 0.05 * (sum(text.encode()) % 7), 0.0]
        return [0.0, 0.02 * (sum(text.encode()) % 7), 1.0]

    def answer(request: Request) -> Answer:
        if request.path != "/v1/embeddings":
            return refusal(404, "not here", "not_found")
        data = [{"embedding": vector(text)} for text in request.body["input"]]
        return Answer(body=json.dumps({"data": data}))

    return LoopbackServer(answer)


def rerank_provider() -> LoopbackServer:
    """A reranker in the usual shape: the longer a document the better, then as given."""

    def answer(request: Request) -> Answer:
        if request.path != "/v1/rerank":
            return refusal(404, "not here", "not_found")
        lengths = [len(document) for document in request.body["documents"]]
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        results = [
            {"index": index, "relevance_score": round(1 - place / 100, 4)}
            for place, index in enumerate(order)
        ]
        return Answer(body=json.dumps({"results": results}))

    return LoopbackServer(answer)


class LiveServer:
    """The real server with its stand-ins, on an empty store; a context manager."""

    def __init__(self, binary: Path, *, providers: bool) -> None:
        self.binary = binary
        self._providers = providers
        self._stack = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            environment: dict[str, str] = {}
            if self._providers:
                embeddings = stack.enter_context(embedding_provider())
                reranker = stack.enter_context(rerank_provider())
                environment = {
                    "TAGURU_EMBED_URL": f"{embeddings.url}/v1/embeddings",
                    "TAGURU_EMBED_MODEL": EMBEDDING_MODEL,
                    "TAGURU_EMBED_PASSAGES": "1",
                    "TAGURU_RERANK_URL": f"{reranker.url}/v1/rerank",
                    "TAGURU_RERANK_MODEL": RERANK_MODEL,
                }
            store = stack.enter_context(tempfile.TemporaryDirectory(prefix="taguru-live-"))
            before = set(threading.enumerate())
            server = SpawnedServer(self.binary, store, environment)
            drains = set(threading.enumerate()) - before
            stack.callback(_stop, server, drains)
            self.url = server.base_url
            self._session = stack.enter_context(requests.Session())
            self._session.trust_env = False
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def call(self, method: str, path: str, body: Any = None) -> None:
        """Ask for something that must succeed."""
        answer = self._session.request(method, self.url + path, json=body, timeout=60)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:400]}"

    def seed(self, corpus: str) -> str:
        """Put a golden corpus into the store; returns its context."""
        content = json.loads((GOLDEN / corpus / "corpus.json").read_text("utf-8"))
        context: str = content["context"]
        home = f"/contexts/{quote(context, safe='')}"
        self.call("PUT", home, {"description": content.get("description", "fixture")})
        for batch in _batches(list(content["passages"]), 200):
            self.call("POST", f"{home}/sources", _passages(content, batch))
        for batch in _batches(content.get("associations", []), 500):
            self.call("POST", f"{home}/associations", batch)
        if content.get("aliases"):
            self.call("POST", f"{home}/aliases", content["aliases"])
        if content.get("embed"):
            self.call("POST", f"{home}/embeddings/refresh")
        return context

    def evaluate(self, directory: Path, context: str, flags: Sequence[str]) -> Run:
        """Run the original program on the dataset in a directory."""
        ended = subprocess.run(
            [
                str(self.binary),
                "evaluate",
                "--eval",
                "eval.jsonl",
                "--context",
                context,
                "--url",
                self.url,
                "--out",
                "original.json",
                *flags,
            ],
            cwd=directory,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        return Run(
            directory=directory,
            status=ended.returncode,
            stdout=ended.stdout,
            stderr=ended.stderr,
        )


def _stop(server: SpawnedServer, drains: set[threading.Thread]) -> None:
    server.stop()
    for thread in drains:
        thread.join()  # it reads until the pipe's end, which has come
    if server.process.stdout is not None:
        server.process.stdout.close()


def _batches(entries: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(entries), size):
        yield entries[start : start + size]


def _passages(content: dict[str, Any], sources: list[str]) -> dict[str, Any]:
    body: dict[str, Any] = {"passages": {name: content["passages"][name] for name in sources}}
    for field in ("tags", "dates", "sections", "questions", "locators"):
        declared = content.get(field, {})
        chosen = {name: declared[name] for name in sources if name in declared}
        if chosen:
            body[field] = chosen
    return body
