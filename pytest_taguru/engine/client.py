"""Requests to a taguru server: envelopes, failures and their messages, latencies."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote, unquote

import msgspec

from .errors import CallError
from .strict import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Callable

REQUEST_SECONDS = 35.0
HEALTH_SECONDS = 4.0
MAX_RESPONSE_BYTES = 256 * 1024 * 1024
MAX_MESSAGE_BYTES = 200

T = TypeVar("T")


#: The only headers of an answer that a run looks at.
KEPT_HEADERS = ("content-type", "retry-after")


class Answer(msgspec.Struct, frozen=True):
    """What came back over the wire, of its headers KEPT_HEADERS. Names are lower case.

    The body does not show where variables are shown: it holds text of the corpus.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"Answer({self.status}, {len(self.body)} bytes)"


class TransportError(Exception):
    """No answer came; the message is a short reason that can be shown."""


class Transport(Protocol):
    """Sends one request to the server and brings its answer."""

    def send(self, method: str, route: str, body: bytes | None, seconds: float) -> Answer:
        """`route` begins with a slash and is relative to the base URL.

        Raises TransportError when no whole answer came within `seconds`.
        """
        ...


class Reply(msgspec.Struct, Generic[T], frozen=True):
    """A call that succeeded, with its result and whole milliseconds."""

    result: T
    latency_ms: int


class Failure(msgspec.Struct, frozen=True):
    """A call that did not, with a message of at most 200 bytes and an ellipsis.

    `status` is None if no answer came; `code` is the server's, which only a 404 carries.
    """

    message: str
    latency_ms: int
    status: int | None = None
    code: str | None = None


class _Envelope(msgspec.Struct):
    result: msgspec.Raw


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_encode = msgspec.json.Encoder().encode


def segment(name: str) -> str:
    """A name as one segment of a path, or the value of a query parameter."""
    return quote(name, safe="")


def readable(route: str) -> str:
    """A route as failure messages have it: with the few escapes that a path must have.

    It names the same place. Artifacts are compared with the original's, which writes this form.
    """
    path, mark, query = route.partition("?")
    parts = (quote(unquote(part), safe="!$&'()*+,:;=@[]^|") for part in path.split("/"))
    return "/".join(parts) + mark + query


def clip(text: str) -> str:
    """At most MAX_MESSAGE_BYTES of UTF-8, cut between characters, with an ellipsis if cut."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= MAX_MESSAGE_BYTES:
        return text
    return raw[:MAX_MESSAGE_BYTES].decode("utf-8", "ignore") + "…"


class Client:
    """Calls on one server. Safe to share between threads if its transport is."""

    def __init__(
        self,
        transport: Transport,
        base: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._base = base
        self._clock = clock

    @property
    def base(self) -> str:
        """The base URL, without credentials."""
        return self._base

    def get(self, route: str, decoder: msgspec.json.Decoder[T]) -> Reply[T] | Failure:
        """GET a route whose result the decoder reads."""
        return self._call("GET", route, None, decoder)

    def post(
        self, route: str, payload: object, decoder: msgspec.json.Decoder[T]
    ) -> Reply[T] | Failure:
        """POST a JSON payload to a route whose result the decoder reads."""
        return self._call("POST", route, _encode(payload), decoder)

    def _call(
        self, method: str, route: str, body: bytes | None, decoder: msgspec.json.Decoder[T]
    ) -> Reply[T] | Failure:
        started = self._clock()
        try:
            answer = self._transport.send(method, route, body, REQUEST_SECONDS)
            result = decoder.decode(self._unwrap(route, answer))
        except CallError as error:
            return Failure(clip(error.message), self._since(started), error.status, error.code)
        except TransportError as error:
            message = f"{self._named(route)}: {error}"
            return Failure(clip(message), self._since(started))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            message = f"{self._named(route)}: the result has another shape: {error}"
            return Failure(clip(message), self._since(started), 200)
        return Reply(result, self._since(started))

    def health(self) -> Answer:
        """GET /health, which has no envelope. Raises TransportError."""
        return self._transport.send("GET", "/health", None, HEALTH_SECONDS)

    def _named(self, route: str) -> str:
        return self._base + readable(route)

    def _since(self, started: float) -> int:
        return int((self._clock() - started) * 1000)

    def _unwrap(self, route: str, answer: Answer) -> msgspec.Raw:
        if answer.status == 200:
            with contextlib.suppress(msgspec.MsgspecError, RecursionError):
                return _ENVELOPE.decode(answer.body).result
            message = f"{self._named(route)}: not a taguru response: {_text(answer.body)}"
            raise CallError(message, status=200)
        error = _object(answer.body)
        said = error.get("error")
        text = said if isinstance(said, str) else _text(answer.body)
        message = f"{self._named(route)} answered {answer.status}: {text}"
        retry_after = answer.headers.get("retry-after")
        if retry_after is not None:
            message += f" (Retry-After: {retry_after})"
        code = error.get("code") if answer.status == 404 else None
        raise CallError(message, status=answer.status, code=code if isinstance(code, str) else None)


def _text(body: bytes) -> str:
    # Only the part that can be recorded: a page of megabytes need not be decoded.
    return body.lstrip()[: 8 * MAX_MESSAGE_BYTES].decode("utf-8", "replace").strip(WHITE_SPACE)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
