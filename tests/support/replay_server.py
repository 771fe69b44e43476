"""HTTP servers on loopback, each on threads of this process: scripted, or replaying a recording."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as it came; `path` has its query, `body` is the parsed JSON or None.

    Requests over the same connection have the same `client`: the port that they came from.
    """

    method: str
    path: str
    body: Any
    headers: Mapping[str, str]
    client: int = 0

    @property
    def key(self) -> str:
        """What makes two requests the same one: method, path, JSON body."""
        return request_key(self.method, self.path, self.body)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to send back; `drop` closes the connection without a byte."""

    status: int = 200
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False


def result(value: Any) -> Answer:
    """A success in the server's envelope."""
    return Answer(body=json.dumps({"result": value, "status": "ok"}, ensure_ascii=False))


def refusal(status: int, error: str, code: str) -> Answer:
    """A failure in the server's envelope."""
    return Answer(status=status, body=json.dumps({"status": "error", "error": error, "code": code}))


def request_key(method: str, path: str, body: Any) -> str:
    """A sortable text for a request, the same whatever the order of the body's keys."""
    return json.dumps([method, path, body], sort_keys=True, ensure_ascii=False)


class _HttpServer(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = False  # stop() waits for them, so that no socket outlives a test

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is none of our business."""


class LoopbackServer:
    """Answers by calling `answer` (on the thread of the request) and keeps every request.

    A context manager: it listens from `__enter__` to `__exit__`. `answer` may block, on an event
    that the test sets before the end, or change state: it is not called under a lock.
    """

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._open: set[socket.socket] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                with outer._lock:
                    outer._open.add(self.connection)

            def finish(self) -> None:
                with outer._lock:
                    outer._open.discard(self.connection)
                super().finish()

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def _respond(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                request = Request(
                    method=self.command,
                    path=self.path,
                    body=json.loads(raw) if raw else None,
                    headers={name.lower(): value for name, value in self.headers.items()},
                    client=self.client_address[1],
                )
                with outer._lock:
                    outer._requests.append(request)
                self._send(outer._answer(request))

            def _send(self, answer: Answer) -> None:
                if answer.drop:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                payload = answer.body.encode()
                self.send_response(answer.status)
                for name, value in {"content-type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_PUT = do_DELETE = _respond  # noqa: N815 - the base class's names

        self._http = _HttpServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def requests(self) -> list[Request]:
        """Every request so far, in the order they came."""
        with self._lock:
            return list(self._requests)

    @property
    def request_counts(self) -> Counter[str]:
        """The multiset of requests."""
        return Counter(request.key for request in self.requests)

    def stop(self) -> None:
        """Stop listening, hang up on everyone and wait for the threads; twice does no harm."""
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):  # the other side may have been faster
                    connection.shutdown(socket.SHUT_RDWR)
        self._http.server_close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Recording:
    """Recorded exchanges by request; equal requests get their answers in the recorded order,
    and the last of them again and again. What was not recorded is a 404 `unrecorded`.
    """

    def __init__(self, exchanges: Iterable[Mapping[str, Any]]) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, list[Answer]] = defaultdict(list)
        self.request_counts: Counter[str] = Counter()
        for exchange in exchanges:
            key = request_key(exchange["method"], exchange["path"], exchange["request"])
            self.request_counts[key] += 1
            self._answers[key].append(
                Answer(drop=True)
                if exchange.get("drop")
                else Answer(
                    status=exchange["status"],
                    body=exchange["response"],
                    headers=exchange.get("headers", {}),
                )
            )

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read an exchanges.jsonl."""
        return cls(json.loads(line) for line in file.read_text("utf-8").split("\n") if line)

    def answer(self, request: Request) -> Answer:
        """The next recorded answer to this request."""
        with self._lock:
            answers = self._answers.get(request.key)
            if not answers:
                return refusal(404, f"unrecorded {request.method} {request.path}", "unrecorded")
            return answers.pop(0) if len(answers) > 1 else answers[0]


def replay(recording: Recording) -> LoopbackServer:
    """A server for a recording."""
    return LoopbackServer(recording.answer)
