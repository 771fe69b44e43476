"""Recordings: every exchange of a run as one JSON line, written by one run, answered to another.

A line is `{method, path, request, status, headers?, response}`, or `{…, drop: true}` where no
answer came. `path` is relative to the base URL. No credential is in it, but the corpus is.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .client import KEPT_HEADERS, Answer, Transport, TransportError
from .errors import InputError, RunError
from .files import AtomicFile

if TYPE_CHECKING:
    from pathlib import Path


class Exchange(Struct, frozen=True, kw_only=True):
    """One line of a recording. The response, text of the corpus, does not show itself."""

    method: str
    path: str
    request: Any = None
    status: int | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    response: str | UnsetType = UNSET
    drop: bool | UnsetType = UNSET

    def __repr__(self) -> str:
        return f"Exchange({self.method} {self.path})"


class Recorder:
    """A transport that passes everything on and notes it; the file appears when it is whole.

    A note that cannot be written, as on a full disk, is no failure of the request: it is
    `commit` that then raises.
    """

    def __init__(self, inner: Transport, file: Path, shown: str) -> None:
        self._inner = inner
        self._file = AtomicFile(file, shown)
        self._lock = threading.Lock()
        self._failure: RunError | None = None
        self._ended = False

    def send(self, method: str, route: str, body: bytes | None, seconds: float) -> Answer:
        """Send through the inner transport; see `Transport`."""
        request = None if body is None else msgspec.json.decode(body)
        try:
            answer = self._inner.send(method, route, body, seconds)
        except TransportError:
            self._note(Exchange(method=method, path=route, request=request, drop=True))
            raise
        headers = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
        self._note(
            Exchange(
                method=method,
                path=route,
                request=request,
                status=answer.status,
                headers=headers or UNSET,
                response=answer.body.decode("utf-8", "replace"),
            )
        )
        return answer

    def _note(self, exchange: Exchange) -> None:
        line = msgspec.json.encode(exchange) + b"\n"
        with self._lock:
            if self._ended or self._failure is not None:
                return
            try:
                self._file.write(line)
            except RunError as error:
                self._failure = error

    def commit(self) -> None:
        """Put the recording in its place. Raises RunError if any of it could not be written."""
        with self._lock:
            self._ended = True
            if self._failure is not None:
                raise self._failure
            self._file.commit()

    def discard(self) -> None:
        """Leave an earlier recording as it was."""
        with self._lock:
            self._ended = True
            self._file.discard()


class Replayer:
    """A transport that answers from a recording: equal requests in recorded order.

    A request that is not in it is a failed call that names the request.
    """

    def __init__(self, exchanges: list[Exchange]) -> None:
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str, bytes], deque[Exchange]] = defaultdict(deque)
        for exchange in exchanges:
            key = _key(exchange.method, exchange.path, exchange.request)
            self._answers[key].append(exchange)

    def send(self, method: str, route: str, body: bytes | None, seconds: float) -> Answer:
        """Answer one request; see `Transport`."""
        request = None if body is None else msgspec.json.decode(body)
        with self._lock:
            answers = self._answers.get(_key(method, route, request))
            # The last answer stands for all later ones, as a server would go on giving it.
            exchange = (
                None if not answers else answers.popleft() if len(answers) > 1 else answers[0]
            )
        if exchange is None:
            shown = "" if body is None else " " + body.decode("utf-8")
            raise TransportError(f"not in the recording: {method} {route}{shown}")
        if exchange.drop is True or isinstance(exchange.status, UnsetType):
            raise TransportError("no answer came when this was recorded")
        headers = {} if isinstance(exchange.headers, UnsetType) else exchange.headers
        response = "" if isinstance(exchange.response, UnsetType) else exchange.response
        return Answer(
            exchange.status,
            {name.lower(): value for name, value in headers.items()},
            response.encode("utf-8"),
        )


def _key(method: str, path: str, request: Any) -> tuple[str, str, bytes]:
    return method, path, msgspec.json.encode(request, order="sorted")


def load_recording(file: Path, shown: str) -> list[Exchange]:
    """Read a recording. Raises InputError, naming the first line that is not an exchange."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{shown}: cannot be read: {error.strerror or error}") from None
    decoder = msgspec.json.Decoder(Exchange)
    exchanges: list[Exchange] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            exchanges.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise InputError(f"{shown}: line {number}: not an exchange of a recording") from None
    if not exchanges:
        raise InputError(f"{shown}: empty: no exchange was recorded")
    return exchanges
