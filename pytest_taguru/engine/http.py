"""HTTP through requests: one pooled session, a deadline per request, no redirects, no retries."""

from __future__ import annotations

import os
import socket
import ssl
import time
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from typing import TYPE_CHECKING, Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy

from .client import KEPT_HEADERS, Answer, TransportError
from .connections import CHUNK, DeadlineAdapter, TooMuchError, bounded
from .direct import Direct, Said, is_direct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from requests.auth import AuthBase

    from .target import Token

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
    """Sends over a `requests.Session`, which stays its owner's: adapters, proxies, certificates.

    A session that is as `new_session` made it is asked for its pool alone; see `direct`.
    """

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
        self._proxied = select_proxy(base, self._settings["proxies"]) is not None
        self._patterns: dict[str, requests.PreparedRequest] = {}
        self._directs: dict[str, Direct] = {}

    def send(self, method: str, route: str, body: bytes | None, seconds: float) -> Answer:
        """Send one request; see `Transport`."""
        deadline = time.monotonic() + seconds
        try:
            if is_direct(route) and self._is_plain():
                said = self._direct(method, body).send(route, body, deadline)
            else:
                said = self._ask_session(method, route, body, seconds, deadline)
        except (OSError, ValueError, HTTPException, urllib3.exceptions.HTTPError) as error:
            # Those of requests are errors of the system too, and a mounted adapter may let the
            # layers below through.
            raise TransportError(_reason(error, seconds)) from None
        kept = {name: said.headers[name] for name in KEPT_HEADERS if name in said.headers}
        if not self._secret:
            return Answer(said.status, kept, said.body)
        headers = {
            name: self._without_token(value.encode("utf-8", "replace")).decode("utf-8", "replace")
            for name, value in kept.items()
        }
        return Answer(said.status, headers, self._without_token(said.body))

    def _ask_session(
        self, method: str, route: str, body: bytes | None, seconds: float, deadline: float
    ) -> Said:
        response = self._session.send(
            self._prepared(method, route, body),
            timeout=seconds,
            allow_redirects=False,
            **self._settings,
        )
        with response:
            declared = response.headers.get("content-length", "")
            content = bounded(response.iter_content(CHUNK), declared, deadline)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Said(response.status_code, headers, content)

    def _direct(self, method: str, body: bytes | None) -> Direct:
        direct = self._directs.get(method)
        if direct is None:
            adapter = self._session.get_adapter(self._base)
            assert isinstance(adapter, DeadlineAdapter)
            pattern = self._prepare(method, self._base + "/", body)
            direct = self._directs[method] = Direct(adapter.direct_pool(self._base), pattern)
        return direct

    def _is_plain(self) -> bool:
        """Whether nobody could tell the short way from the long one, not even by a patch."""
        session = self._session
        return (
            self._is_uniform()
            and not self._proxied
            and self._base.startswith("http://")
            and not session.hooks["response"]
            and type(session.get_adapter(self._base)) is DeadlineAdapter
            and all(map(_is_requests_own, (session.send, session.get_adapter, HTTPAdapter.send)))
        )

    def _is_uniform(self) -> bool:
        """Whether all requests of a method are alike but for route and body."""
        session = self._session
        return (
            type(session) is requests.Session
            and self._auth is not None
            and not session.params
            and not session.cookies
        )

    def _without_token(self, said: bytes) -> bytes:
        """What the server said, even if it repeats the token, as some do in their refusals."""
        secret = self._secret
        if len(secret) < _TOKEN_BYTES or secret not in said:
            return said
        return said.replace(secret, b"[token]")

    def _prepared(self, method: str, route: str, body: bytes | None) -> requests.PreparedRequest:
        """A request ready to be sent: the first of its method, or a copy with another route."""
        if not self._is_uniform():
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


def _is_requests_own(function: object) -> bool:
    """Whether a function of requests is what requests made it, not what a mock or a tracer did."""
    return getattr(function, "__globals__", {}).get("__package__") == requests.__name__


def _lead_nowhere(response: requests.Response, **_: Any) -> None:
    """Make a redirect an answer like any other.

    Where redirects are not followed, requests still works out the next request, for which it
    reads the whole body, and fails if the location makes no sense.
    """
    response.headers.pop("location", None)


_TOO_MUCH = "the answer is over 256 MiB"


def _too_slow(seconds: float) -> str:
    return f"no whole answer within {seconds:g} s"


#: What a person is told, by what lies under an exception of requests; the first match counts.
#: None: the request's time is up.
_REASONS: tuple[tuple[type[BaseException], str | None], ...] = (
    (TooMuchError, _TOO_MUCH),
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
    # Of an answer that declares two lengths; under the next one of requests.
    (urllib3.exceptions.InvalidHeader, "the answer is not HTTP"),
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
