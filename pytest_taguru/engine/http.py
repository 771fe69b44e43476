"""HTTP through requests: one pooled session, a deadline per request, no redirects, no retries."""

from __future__ import annotations

import io
import socket
import ssl
import time
from http.client import HTTPResponse
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from .client import MAX_RESPONSE_BYTES, Answer, TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from requests.auth import AuthBase

    from .target import Token

_CHUNK = 1 << 16


class _Bearer(requests.auth.AuthBase):
    """Sets the header itself, so that a .netrc entry for the host is never looked up."""

    def __init__(self, token: Token | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token.value}"
        return request


class HttpTransport:
    """Sends over a `requests.Session`, which stays its owner's: adapters, proxies, certificates."""

    def __init__(self, session: requests.Session, base: str, token: Token | None) -> None:
        self._session = session
        self._base = base
        # A session's own auth stands when there is no token to send.
        self._auth: AuthBase | None = (
            _Bearer(token) if token is not None or session.auth is None else None
        )
        # The environment's proxies and certificates for the one origin, looked up once.
        self._settings = session.merge_environment_settings(base, {}, True, None, None)
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
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, headers, content)

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
        return self._session.prepare_request(request)


def _bounded(response: requests.Response, deadline: float, seconds: float) -> Iterator[bytes]:
    """The body in pieces, within its bounds of size and time."""
    size = 0
    for chunk in response.iter_content(_CHUNK):
        size += len(chunk)
        if size > MAX_RESPONSE_BYTES:
            raise TransportError("the answer is over 256 MiB")
        if time.monotonic() > deadline:
            raise TransportError(_too_slow(seconds))
        yield chunk


def _too_slow(seconds: float) -> str:
    return f"no whole answer within {seconds:g} s"


#: What a person is told, by what lies under an exception of requests; the first match counts.
_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (ConnectionRefusedError, "connection refused"),
    (ConnectionResetError, "connection reset by the server"),
    (BrokenPipeError, "connection closed while sending"),
    (socket.gaierror, "the host name cannot be resolved"),
    (ssl.SSLCertVerificationError, "the server's certificate does not verify"),
    (ssl.SSLError, "TLS failed"),
    (requests.exceptions.ProxyError, "the proxy does not answer"),
    (requests.exceptions.ConnectTimeout, "could not connect in time"),
    (urllib3.exceptions.IncompleteRead, "the answer was cut short"),
    (urllib3.exceptions.DecodeError, "the answer's compression is broken"),
    (requests.exceptions.ContentDecodingError, "the answer's compression is broken"),
    (requests.exceptions.ChunkedEncodingError, "the answer was cut short"),
    (requests.exceptions.InvalidURL, "the URL cannot be requested"),
    (requests.exceptions.InvalidHeader, "a header cannot be sent"),
    (urllib3.exceptions.ProtocolError, "connection closed before an answer came"),
)


def _reason(error: BaseException, seconds: float) -> str:
    """A short reason: never the exception's own text, which holds addresses of objects."""
    causes = list(_causes(error))
    if any(isinstance(cause, TimeoutError | requests.exceptions.ReadTimeout) for cause in causes):
        return _too_slow(seconds)
    for kind, reason in _REASONS:
        if any(isinstance(cause, kind) for cause in causes):
            return reason
    numbers = [cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror]
    return numbers[-1].lower() if numbers else "the request failed"


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
    """A socket's bytes, until a deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._socket = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("deadline")
        self._socket.settimeout(left)
        return self._raw.readinto(buffer)

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


class _DeadlineConnection(_OneSend, HTTPConnection):
    response_class = _DeadlineResponse


class _DeadlineSecureConnection(_OneSend, HTTPSConnection):
    response_class = _DeadlineResponse


class _DeadlinePool(HTTPConnectionPool):
    ConnectionCls = _DeadlineConnection


class _DeadlineSecurePool(HTTPSConnectionPool):
    ConnectionCls = _DeadlineSecureConnection


class DeadlineAdapter(HTTPAdapter):
    """An HTTPAdapter for which `timeout` bounds the whole answer, from its first byte awaited."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools of direct connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> urllib3.ProxyManager:
        """Make the pools of connections through a proxy."""
        manager: urllib3.ProxyManager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager


_POOLS: Any = {"http": _DeadlinePool, "https": _DeadlineSecurePool}


def new_session(connections: int) -> requests.Session:
    """A session with that many pooled connections to one origin, each call bounded in time.

    It keeps no cookies: no answer may change a later request.
    """
    session = requests.Session()
    adapter = DeadlineAdapter(
        pool_connections=1, pool_maxsize=max(connections, 1), pool_block=False
    )
    for scheme in ("http://", "https://"):
        session.mount(scheme, adapter)
    session.headers["User-Agent"] = "pytest-taguru"
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session
