"""HTTP through requests: one pooled session, a deadline per request, no redirects, no retries."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import socket
import ssl
import threading
import time
import weakref
from functools import partial
from http.client import HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from .client import KEPT_HEADERS, MAX_RESPONSE_BYTES, Answer, TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from requests.auth import AuthBase

    from .target import Token

_CHUNK = 1 << 16
#: A pool has its full size from the start, so an absurd one would never get there.
MOST_POOLED = 1000
#: A shorter token could be any word of an answer.
_TOKEN_BYTES = 8


class _Unshown(str):
    """A header's value that does not show when variables are: in tracebacks, in a %r of a log."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'…'"


class _Proxies(dict[str, str]):
    """Proxies by scheme, whose URLs may hold credentials and so do not show either."""

    def __repr__(self) -> str:
        return "{…}" if self else "{}"


class _Bearer(requests.auth.AuthBase):
    """Sets the header itself, so that a .netrc entry for the host is never looked up."""

    def __init__(self, token: Token | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token is not None:
            header = _Unshown(f"Bearer {self._token.value}")
            if not (_is_latin(header) and header.isprintable()):
                raise requests.exceptions.InvalidHeader
            request.headers["Authorization"] = header
        return request


def _is_latin(text: str) -> bool:
    return all(ord(char) < 256 for char in text)


class HttpTransport:
    """Sends over a `requests.Session`, which stays its owner's: adapters, proxies, certificates."""

    def __init__(self, session: requests.Session, base: str, token: Token | None) -> None:
        self._session = session
        self._base = base
        # A session's own auth stands when there is no token to send.
        self._auth: AuthBase | None = (
            _Bearer(token) if token is not None or session.auth is None else None
        )
        self._secret = b"" if token is None else token.value.encode("utf-8", "surrogateescape")
        # The environment's proxies and certificates for the one origin, looked up once.
        self._settings = session.merge_environment_settings(base, {}, True, None, None)
        self._settings["proxies"] = _Proxies(self._settings["proxies"])
        self._patterns: dict[str, requests.PreparedRequest] = {}

    def send(self, method: str, route: str, body: bytes | None, seconds: float) -> Answer:
        """Send one request; see `Transport`."""
        deadline = time.monotonic() + seconds
        try:
            response = self._session.send(
                self._prepared(method, route, body),
                timeout=seconds,
                allow_redirects=False,
                **self._settings,
            )
            with response:
                content = b"".join(_bounded(response, deadline, seconds))
        except requests.RequestException as error:
            raise TransportError(_reason(error, seconds)) from None
        except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
            # A mounted adapter may let the layers below through.
            raise TransportError(_reason(error, seconds)) from None
        headers = {
            name.lower(): self._without_token(value.encode("utf-8", "replace")).decode(
                "utf-8", "replace"
            )
            for name, value in response.headers.items()
            if name.lower() in KEPT_HEADERS
        }
        return Answer(response.status_code, headers, self._without_token(content))

    def _without_token(self, said: bytes) -> bytes:
        """What the server said, even if it repeats the token, as some do in their refusals."""
        secret = self._secret
        if len(secret) < _TOKEN_BYTES or secret not in said:
            return said
        return said.replace(secret, b"[token]")

    def _prepared(self, method: str, route: str, body: bytes | None) -> requests.PreparedRequest:
        """A request ready to be sent.

        Preparing takes requests a quarter of a call's whole time, and all requests of a run are
        alike but for route and body. So one of each method is prepared and copied, unless the
        session is one whose owner may want to see each request.
        """
        session = self._session
        if type(session) is not requests.Session or session.params or self._auth is None:
            return self._prepare(method, self._base + route, body)
        pattern = self._patterns.get(method)
        if pattern is None:
            pattern = self._patterns[method] = self._prepare(method, self._base + "/", body)
        prepared = pattern.copy()
        prepared.url = str(pattern.url).removesuffix("/") + route
        prepared.body = body
        if body is not None:
            prepared.headers["Content-Length"] = str(len(body))
        return prepared

    def _prepare(self, method: str, url: str, body: bytes | None) -> requests.PreparedRequest:
        request = requests.Request(method, url, data=body, auth=self._auth)
        if body is not None:
            request.headers["Content-Type"] = "application/json"
        prepared = self._session.prepare_request(request)
        prepared.register_hook("response", _lead_nowhere)  # type: ignore[no-untyped-call]
        return prepared


def _lead_nowhere(response: requests.Response, **_: Any) -> None:
    """Make a redirect an answer like any other.

    Where redirects are not followed, requests still works out the next request, for which it
    reads the whole body, and fails if the location makes no sense.
    """
    response.headers.pop("location", None)


def _bounded(response: requests.Response, deadline: float, seconds: float) -> Iterator[bytes]:
    """The body in pieces, within its bounds of size and time."""
    declared = response.headers.get("content-length", "")
    size = int(declared) if declared.isdecimal() and len(declared) < 20 else 0
    if size > MAX_RESPONSE_BYTES:
        raise TransportError(_TOO_MUCH)
    size = 0
    for chunk in response.iter_content(_CHUNK):
        size += len(chunk)
        if size > MAX_RESPONSE_BYTES:
            raise TransportError(_TOO_MUCH)
        if time.monotonic() > deadline:
            raise TransportError(_too_slow(seconds))
        yield chunk


_TOO_MUCH = "the answer is over 256 MiB"


class _TooMuchError(OSError):
    """A server that sends without end."""


def _too_slow(seconds: float) -> str:
    return f"no whole answer within {seconds:g} s"


#: What a person is told, by what lies under an exception of requests; the first match counts.
#: None: the request's time is up.
_REASONS: tuple[tuple[type[BaseException], str | None], ...] = (
    (_TooMuchError, _TOO_MUCH),
    (requests.exceptions.ConnectTimeout, "could not connect in time"),
    (requests.exceptions.InvalidProxyURL, "the proxy's URL makes no sense"),
    (requests.exceptions.ProxyError, "the proxy cannot be reached, or refuses"),
    (urllib3.exceptions.ProxyError, "the proxy cannot be reached, or refuses"),
    (requests.exceptions.Timeout, None),
    (urllib3.exceptions.ReadTimeoutError, None),
    (TimeoutError, None),
    (ConnectionRefusedError, "connection refused"),
    (RemoteDisconnected, "connection closed before an answer came"),
    (ConnectionResetError, "connection reset by the server"),
    (BrokenPipeError, "connection closed while sending"),
    (socket.gaierror, "the host name cannot be resolved"),
    (ssl.SSLCertVerificationError, "the server's certificate does not verify"),
    (ssl.SSLError, "TLS failed"),
    (requests.exceptions.SSLError, "TLS failed"),
    (urllib3.exceptions.SSLError, "TLS failed"),
    (urllib3.exceptions.InvalidChunkLength, "the answer is not HTTP"),
    (IncompleteRead, "the answer was cut short"),
    (urllib3.exceptions.DecodeError, "the answer's compression is broken"),
    (requests.exceptions.ContentDecodingError, "the answer's compression is broken"),
    (HTTPException, "the answer is not HTTP"),
    (requests.exceptions.ChunkedEncodingError, "the answer was cut short"),
    (requests.exceptions.InvalidURL, "the URL cannot be requested"),
    (requests.exceptions.MissingSchema, "the URL cannot be requested"),
    (requests.exceptions.InvalidSchema, "the scheme of the URL or the proxy is not supported"),
    (requests.exceptions.InvalidHeader, "a header cannot be sent"),
    (UnicodeEncodeError, "a header cannot be sent"),
    (requests.exceptions.RetryError, "the retries of a mounted adapter were used up"),
    (urllib3.exceptions.ProtocolError, "connection closed before an answer came"),
)


def _reason(error: BaseException, seconds: float) -> str:
    """A short reason: never the exception's own text, which holds addresses of objects."""
    causes = list(_causes(error))
    for kind, reason in _REASONS:
        if any(isinstance(cause, kind) for cause in causes):
            return reason or _too_slow(seconds)
    for cause in reversed(causes):
        if isinstance(cause, OSError) and isinstance(cause.errno, int) and cause.errno > 0:
            return os.strerror(cause.errno).lower()
        if type(cause) is OSError and "TLS" in str(cause):
            return "a file of certificates is not there"  # requests raises it bare
    return f"the request failed ({type(error).__name__})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An exception and all that it wraps: causes, contexts, reasons and arguments."""
    pending: list[object] = [error]
    seen: set[int] = set()
    while pending:
        current = pending.pop(0)
        if not isinstance(current, BaseException) or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        pending += [current.__cause__, current.__context__, getattr(current, "reason", None)]
        pending += current.args


# -- the deadline ----------------------------------------------------------------------------
#
# A time-out of requests is per read: a server that sends a byte a second would never trip it.
# So the sessions made here read through a raw stream that gives each read only what is left of
# the request's time. It has to sit this low, since the status line and the headers are read
# before requests or urllib3 return anything.


class _DeadlineReader(io.RawIOBase):
    """A socket's bytes, until a deadline, and not without end."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._socket = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = deadline
        # Lines between the pieces of a body are read before anyone could count them.
        self._bytes_left = 2 * MAX_RESPONSE_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("deadline")
        if self._bytes_left < 0:
            raise _TooMuchError
        self._socket.settimeout(left)
        count = self._raw.readinto(buffer)
        self._bytes_left -= count or 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _DeadlineResponse(HTTPResponse):
    """A response whose every read shares the time-out that the socket had at its start."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        seconds = sock.gettimeout()
        if seconds is not None:
            self.fp.close()
            reader = _DeadlineReader(sock, time.monotonic() + seconds)
            self.fp = io.BufferedReader(reader, _CHUNK)


class _OneSend:
    """Sends a request's head and body together: one packet less, and one wake-up of the server."""

    _held: list[bytes] | None = None

    def request(self, *args: Any, **kwargs: Any) -> None:
        self._held = []
        try:
            super().request(*args, **kwargs)  # type: ignore[misc]
        finally:
            held, self._held = self._held, None
        self.send(b"".join(held))

    def send(self, data: Any) -> None:
        if self._held is not None and isinstance(data, bytes):
            self._held.append(data)
        else:
            super().send(data)  # type: ignore[misc]


class _Ended:
    """A connection that is of no use once the session has ended, also if it was made before."""

    ended: threading.Event | None = None

    def connect(self) -> None:
        self._check()
        super().connect()  # type: ignore[misc]
        # Once more: whoever ends the session says so first and then looks for sockets.
        self._check()

    def _check(self) -> None:
        if self.ended is not None and self.ended.is_set():
            self.close()  # type: ignore[attr-defined]
            raise ConnectionAbortedError(errno.ECONNABORTED, "the session has ended")


class _DeadlineConnection(_Ended, _OneSend, HTTPConnection):
    response_class = _DeadlineResponse


class _DeadlineSecureConnection(_Ended, _OneSend, HTTPSConnection):
    response_class = _DeadlineResponse


class _Known:
    """A pool that knows its connections also while they are lent."""

    def __init__(self, *args: Any, ended: threading.Event, **kwargs: Any) -> None:
        self._known: list[weakref.ref[_Ended]] = []
        self._ended = ended
        super().__init__(*args, **kwargs)

    def _new_conn(self) -> Any:
        connection = super()._new_conn()  # type: ignore[misc]
        connection.ended = self._ended
        self._known.append(weakref.ref(connection))
        return connection

    def hang_up(self) -> None:
        """End every connection: whoever waits for an answer learns at once that none comes."""
        for reference in self._known:
            sock = getattr(reference(), "sock", None)
            if isinstance(sock, socket.socket):
                with contextlib.suppress(OSError):
                    # A secure socket's own shutdown would take its state from under a reader.
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _DeadlinePool(_Known, HTTPConnectionPool):
    ConnectionCls = _DeadlineConnection


class _DeadlineSecurePool(_Known, HTTPSConnectionPool):
    ConnectionCls = _DeadlineSecureConnection


class DeadlineAdapter(HTTPAdapter):
    """An HTTPAdapter for which `timeout` bounds the whole answer, from its first byte awaited.

    Closing it ends also the requests under way, and there are no later ones.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._ended = threading.Event()
        self._pools: Any = {
            "http": partial(_DeadlinePool, ended=self._ended),
            "https": partial(_DeadlineSecurePool, ended=self._ended),
        }
        super().__init__(**kwargs)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools of direct connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> urllib3.ProxyManager:
        """Make the pools of connections through a proxy."""
        manager: urllib3.ProxyManager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = self._pools
        return manager

    def close(self) -> None:
        """Close also the connections on which someone still waits."""
        self._ended.set()
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 - it cannot be iterated
                pool = manager.pools.get(key)
                if isinstance(pool, _Known):
                    pool.hang_up()
        super().close()


def new_session(connections: int) -> requests.Session:
    """A session with that many pooled connections to an origin, each call bounded in time.

    It keeps no cookies: no answer may change a later request.
    """
    session = requests.Session()
    adapter = DeadlineAdapter(pool_maxsize=min(max(connections, 1), MOST_POOLED), pool_block=False)
    for scheme in ("http://", "https://"):
        session.mount(scheme, adapter)
    session.headers["User-Agent"] = "pytest-taguru"
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session
