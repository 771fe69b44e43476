"""The transport: what becomes of every fault of a connection, and of secrets on the way."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import ssl
import threading
import time
import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import requests
import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter

from pytest_taguru.engine import client
from pytest_taguru.engine.client import MAX_RESPONSE_BYTES, TransportError
from pytest_taguru.engine.connections import CHUNK, new_session
from pytest_taguru.engine.direct import Direct
from pytest_taguru.engine.http import HttpTransport
from pytest_taguru.engine.target import Token
from tests.support.raw_server import CERTIFICATE, Connection, RawServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_taguru.engine.client import Answer

PATIENCE = 30.0
#: A limit that no test meets unless it means to.
AMPLE = 60.0
SHORT = 0.4
TOKEN = Token("canary-token-0123456789")
BODY = b'{"result": 1}'
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 1 << 20)
    return 1 << 20


def ask(url: str, *, seconds: float = AMPLE, token: Token | None = None) -> Answer:
    with new_session(2) as session:
        return HttpTransport(session, url, token).send("POST", "/x?y=1", b"{}", seconds)


def failure(url: str, *, seconds: float = AMPLE, token: Token | None = None) -> str:
    """Why no answer came."""
    with pytest.raises(TransportError) as caught:
        ask(url, seconds=seconds, token=token)
    return str(caught.value)


def framed(body: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join((*headers, b"content-length: %d" % len(body), b"", body))


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


# -- answers that are fine ---------------------------------------------------------------------

GOOD = {
    "content-length": OK + framed(BODY),
    "chunked": OK + b"transfer-encoding: chunked\r\n\r\n" + chunked(BODY[:5], BODY[5:]),
    "gzip": OK + framed(gzip.compress(BODY), b"content-encoding: gzip"),
    "deflate": OK + framed(zlib.compress(BODY), b"content-encoding: deflate"),
    "gzip, chunked": OK
    + b"transfer-encoding: chunked\r\ncontent-encoding: gzip\r\n\r\n"
    + chunked(gzip.compress(BODY)),
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\n" + BODY,
    "until the end": OK + b"connection: close\r\n\r\n" + BODY,
    "after 100": b"HTTP/1.1 100 Continue\r\n\r\n" + OK + framed(BODY),
    "no reason": b"HTTP/1.1 200\r\n" + framed(BODY),
}


@pytest.mark.parametrize("kind", GOOD)
def test_an_answer(kind: str) -> None:
    def script(connection: Connection) -> None:
        connection.read()
        connection.send(GOOD[kind])

    with RawServer(script) as server:
        for _ in range(2):
            answer = ask(server.url)
            assert (answer.status, answer.body) == (200, BODY)


def test_over_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 on loopback")

    def script(connection: Connection) -> None:
        assert b"\r\nHost: [::1]:" in connection.read()
        connection.send(GOOD["content-length"])

    with RawServer(script, host="::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert ask(server.url).body == BODY


def test_one_connection_for_one_request_after_the_other() -> None:
    def script(connection: Connection) -> None:
        while True:
            connection.read()
            connection.send(GOOD["chunked"])

    with RawServer(script) as server, new_session(1) as session:
        sender = HttpTransport(session, server.url, None)
        for _ in range(5):
            assert sender.send("GET", "/", None, AMPLE).body == BODY
        assert len(server.connections) == 1


def test_a_server_that_closes_between_requests() -> None:
    """A connection that the server gave up is not used again, and no request is sent twice."""
    requests_seen: list[bytes] = []
    gone = threading.Event()

    def script(connection: Connection) -> None:
        requests_seen.append(connection.read())
        connection.send(GOOD["content-length"])
        connection.reset()
        gone.set()

    with RawServer(script) as server, new_session(1) as session:
        sender = HttpTransport(session, server.url, None)
        for _ in range(3):
            gone.clear()
            assert sender.send("GET", "/", None, AMPLE).body == BODY
            assert gone.wait(PATIENCE)
        assert len(server.connections) == 3
        assert len(requests_seen) == 3


def test_more_bytes_than_declared_are_not_the_next_answer() -> None:
    answers = iter([OK + framed(b"first") + OK + framed(b"smuggled"), OK + framed(b"second")])

    def script(connection: Connection) -> None:
        while True:
            connection.read()
            connection.send(next(answers))

    with RawServer(script) as server, new_session(1) as session:
        sender = HttpTransport(session, server.url, None)
        assert sender.send("GET", "/", None, AMPLE).body == b"first"
        assert sender.send("GET", "/", None, AMPLE).body == b"second"


def test_nor_do_more_bytes_than_declared_hold_up_a_body_that_comes_in_pieces() -> None:
    """What follows it is not read with its last piece, nor waited beyond."""
    long = b"x" * (3 * CHUNK)
    answers = iter([OK + framed(long) + b"smuggled", OK + framed(b"second")])

    def script(connection: Connection) -> None:
        while True:
            connection.read()
            connection.send(next(answers))

    with RawServer(script) as server, new_session(1) as session:
        sender = HttpTransport(session, server.url, None)
        assert sender.send("GET", "/", None, AMPLE).body == long
        assert sender.send("GET", "/", None, AMPLE).body == b"second"


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_an_answer_to_a_request_that_could_not_be_sent_whole(error: type[OSError]) -> None:
    """So a server refuses a body that is too long for it."""

    class Refusing:
        sock: Any
        gettimeout = staticmethod(lambda: None)
        settimeout = staticmethod(lambda _: None)
        recv = staticmethod(lambda _: b"HTTP/1.1 413 Too Much\r\n" + framed(BODY))

        def sendall(self, _: bytes) -> NoReturn:
            raise error

    connection = Refusing()
    connection.sock = connection
    pool: Any = SimpleNamespace(lend=lambda _: connection, take_back=lambda _: None)
    pattern = requests.Request("POST", "http://h/", data=b"{}").prepare()
    said = Direct(pool, pattern).send("/x", b"{}", time.monotonic() + AMPLE)
    assert (said.status, said.body) == (413, BODY)


# -- the short way and the long one ------------------------------------------------------------


def over_and_again(sender: HttpTransport) -> list[Answer]:
    return [sender.send("POST", "/x?y=%20", b"{}", AMPLE) for _ in range(2)]


def test_the_short_way_asks_as_the_long_one() -> None:
    """Byte for byte, but for the order of headers."""
    seen: list[bytes] = []

    def script(connection: Connection) -> None:
        while True:
            seen.append(connection.read())
            connection.send(GOOD["content-length"])

    with RawServer(script) as server:
        base = f"{server.url}/a%20prefix"
        with new_session(1) as session:
            short = over_and_again(HttpTransport(session, base, TOKEN))
        with new_session(1) as session:
            session.hooks["response"].append(lambda *_, **__: None)
            long = over_and_again(HttpTransport(session, base, TOKEN))
    assert short == long
    lines = [sorted(request.split(b"\r\n")) for request in seen]
    assert len(lines) == 4
    assert lines[0] == lines[1] == lines[2] == lines[3]
    assert {request.partition(b"\r\n")[0] for request in seen} == {
        b"POST /a%20prefix/x?y=%20 HTTP/1.1"
    }
    assert all(request.endswith(b"\r\n\r\n{}") for request in seen)


@pytest.mark.parametrize("patched", ["adapter", "session"])
def test_a_patch_of_requests_sees_every_request(
    patched: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mocks and tracers are made, also while a run is on."""
    owner: Any = {"adapter": HTTPAdapter, "session": requests.Session}[patched]
    original = owner.send
    urls: list[str | None] = []

    def send(self: Any, request: requests.PreparedRequest, **settings: Any) -> Any:
        urls.append(request.url)
        return original(self, request, **settings)

    def script(connection: Connection) -> None:
        while True:
            connection.read()
            connection.send(GOOD["content-length"])

    with RawServer(script) as server, new_session(1) as session:
        sender = HttpTransport(session, server.url, None)
        sender.send("GET", "/before", None, AMPLE)
        monkeypatch.setattr(owner, "send", send)
        sender.send("GET", "/after", None, AMPLE)
        assert urls == [f"{server.url}/after"]


def test_a_head_that_comes_in_pieces() -> None:
    whole = GOOD["content-length"]

    def script(connection: Connection) -> None:
        connection.read()
        connection.drip(whole[at : at + 1] for at in range(len(whole)))

    with RawServer(script) as server:
        assert ask(server.url).body == BODY


@pytest.mark.parametrize("headers", [b"x: 1", b"content-length: 13"])
def test_a_header_that_comes_twice(headers: bytes) -> None:
    with RawServer(after_reading(OK + framed(BODY, headers, headers))) as server:
        assert ask(server.url).body == BODY


def test_a_header_that_comes_twice_is_joined() -> None:
    answer = b"HTTP/1.1 429 No\r\n" + framed(BODY, b"retry-after: 1", b"retry-after: 2")
    with RawServer(after_reading(answer)) as server:
        assert ask(server.url).headers["retry-after"] == "1, 2"


# -- redirects ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("place", ["{elsewhere}/x", "http://[", "//", "/x", "", "\xff"])
def test_a_redirect_is_an_answer_like_any_other(status: int, place: str) -> None:
    def never(connection: Connection) -> None:
        connection.send(GOOD["content-length"])

    with RawServer(never) as elsewhere:
        location = place.format(elsewhere=elsewhere.url).encode("latin-1")

        def script(connection: Connection) -> None:
            connection.read()
            head = b"HTTP/1.1 %d Moved\r\nlocation: %s\r\n" % (status, location)
            connection.send(head + framed(b"over there"))

        with RawServer(script) as server:
            answer = ask(server.url, token=TOKEN)
        assert (answer.status, answer.body) == (status, b"over there")
        assert len(server.connections) == 1
        assert elsewhere.connections == []


def test_a_redirect_with_a_body_without_end(small_limit: int) -> None:
    def script(connection: Connection) -> None:
        connection.read()
        connection.send(b"HTTP/1.1 302 Found\r\nlocation: /y\r\n\r\n")
        while True:
            connection.send(b"x" * 65536)

    with RawServer(script) as server:
        assert failure(server.url) == TOO_MUCH
    assert server.connections[0].sent < 32 * small_limit


# -- faults on the wire ------------------------------------------------------------------------


def after_reading(*pieces: bytes) -> Callable[[Connection], None]:
    def script(connection: Connection) -> None:
        connection.read()
        for piece in pieces:
            connection.send(piece)

    return script


def reset(connection: Connection) -> None:
    connection.read()
    connection.reset()


TOO_MUCH = "the answer is over 256 MiB"
CLOSED = "connection closed before an answer came"
RESET = "connection reset by the server"
CUT = "the answer was cut short"
NO_HTTP = "the answer is not HTTP"
COMPRESSION = "the answer's compression is broken"

BROKEN: dict[str, tuple[Callable[[Connection], None], str]] = {
    "hangs up": (after_reading(), CLOSED),
    "resets": (reset, RESET),
    "another protocol": (after_reading(b"SSH-2.0-OpenSSH_9.2\r\n"), NO_HTTP),
    "half a status line": (after_reading(b"HTTP/1.1 20"), NO_HTTP),
    "a letter for a status": (after_reading(b"HTTP/1.1 2OO OK\r\n\r\n"), NO_HTTP),
    "an endless header": (after_reading(OK, b"x-a: " + b"a" * 70_000 + b"\r\n\r\n"), NO_HTTP),
    "headers without end": (after_reading(OK, b"x: y\r\n" * 300 + b"\r\n"), NO_HTTP),
    "more headers than http.client takes": (
        after_reading(OK + b"x: y\r\n" * 101 + framed(BODY)),
        NO_HTTP,
    ),
    "other headers than that": (
        after_reading(OK + b"".join(b"x%d: y\r\n" % n for n in range(101)) + framed(BODY)),
        NO_HTTP,
    ),
    "two lengths": (after_reading(OK + b"content-length: 5\r\n" + framed(BODY)), NO_HTTP),
    "half a body": (after_reading(OK + b"content-length: 50\r\n\r\n" + BODY), CUT),
    "no body at all": (after_reading(OK + b"content-length: 50\r\n\r\n"), CUT),
    "half of the chunks": (
        after_reading(OK + b"transfer-encoding: chunked\r\n\r\n5\r\n12345\r\n"),
        CUT,
    ),
    "half a chunk": (after_reading(OK + b"transfer-encoding: chunked\r\n\r\n5\r\n123"), CUT),
    "a chunk of no size": (
        after_reading(OK + b"transfer-encoding: chunked\r\n\r\nfive\r\n12345\r\n"),
        NO_HTTP,
    ),
    "no gzip": (after_reading(OK + framed(b"plain", b"content-encoding: gzip")), COMPRESSION),
    "broken gzip": (
        after_reading(
            OK + framed(gzip.compress(BODY)[:10] + b"\xff" * 20, b"content-encoding: gzip")
        ),
        COMPRESSION,
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_answer(kind: str) -> None:
    script, reason = BROKEN[kind]
    with RawServer(script) as server:
        assert failure(server.url) == reason
        assert len(server.connections) == 1, "it was not tried again"


def test_no_server() -> None:
    with RawServer(reset) as server:
        url = server.url
    assert failure(url) == "connection refused"


def test_no_such_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert failure("http://no-such-host.invalid:1") == "the host name cannot be resolved"


# -- the deadline ------------------------------------------------------------------------------


def bytes_of(text: bytes) -> Iterator[bytes]:
    """Single bytes; at the server's pace they take some twenty times the limit."""
    assert len(text) > 250
    return (text[at : at + 1] for at in range(len(text)))


def long_header() -> bytes:
    return b"x-slow: " + b"s" * 300 + b"\r\n"


DRIPS: dict[str, tuple[bytes, bytes]] = {
    "the status line": (b"", OK.replace(b"OK", b"O" * 300) + framed(BODY)),
    "the headers": (OK, long_header() + framed(BODY)),
    "the body": (OK + b"content-length: 313\r\n\r\n", BODY + b" " * 300),
    "chunks": (OK + b"transfer-encoding: chunked\r\n\r\n", chunked(*[b" "] * 60, BODY)),
    "the size of a chunk": (
        OK + b"transfer-encoding: chunked\r\n\r\n",
        b"0" * 300 + chunked(BODY),
    ),
    "until the end": (OK + b"\r\n", BODY + b" " * 300),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 12 + OK + framed(BODY)),
    "gzip": (
        OK + b"content-encoding: gzip\r\n\r\n",
        gzip.compress(bytes(range(256)) * 2 + BODY, 0),
    ),
}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("kind", DRIPS)
def test_bytes_that_drip_do_not_outlast_the_limit(
    kind: str, secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, slowly = DRIPS[kind]
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    whole: list[bool] = []

    def script(connection: Connection) -> None:
        connection.read()
        connection.send(at_once)
        connection.drip(bytes_of(slowly))
        whole.append(True)

    with RawServer(script, secure=secure) as server:
        assert failure(server.url, seconds=SHORT) == f"no whole answer within {SHORT} s"
        assert whole == [], "the client left before the answer was whole"


def test_a_server_that_says_nothing() -> None:
    def script(connection: Connection) -> None:
        connection.read()
        connection.wait_for_hang_up()

    with RawServer(script) as server:
        assert failure(server.url, seconds=SHORT) == f"no whole answer within {SHORT} s"


def test_the_limit_is_for_each_request_anew() -> None:
    """On a kept connection as well: together these take longer than one may."""
    count = 12

    def script(connection: Connection) -> None:
        for _ in range(count):
            connection.read()
            connection.drip([OK, b"content-length: 13\r\n\r\n", BODY])

    with RawServer(script) as server, new_session(1) as session:
        sender = HttpTransport(session, server.url, None)
        for _ in range(count):
            assert sender.send("GET", "/", None, 1.0).body == BODY
        assert len(server.connections) == 1


# -- the size ----------------------------------------------------------------------------------


def test_the_limit_is_as_documented() -> None:
    assert MAX_RESPONSE_BYTES == 256 * 1024 * 1024


def test_just_the_limit_is_not_too_much(small_limit: int) -> None:
    with RawServer(after_reading(OK + framed(b"x" * small_limit))) as server:
        assert ask(server.url).body == b"x" * small_limit


@pytest.mark.parametrize("declared", [1, 10**12])
def test_too_much_is_refused_before_it_came(declared: int, small_limit: int) -> None:
    def script(connection: Connection) -> None:
        connection.read()
        connection.send(OK + b"content-length: %d\r\n\r\n" % (small_limit + declared))
        connection.wait_for_hang_up()

    with RawServer(script) as server:
        assert failure(server.url) == TOO_MUCH


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"\r\n", b"x" * 65536),
        (b"transfer-encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
        (b"transfer-encoding: chunked\r\n\r\n", b"1;" + b"e" * 60000 + b"\r\nx\r\n"),
    ],
    ids=["until the end", "chunked", "mostly extensions of chunks"],
)
def test_too_much_is_found_out_while_it_comes(head: bytes, piece: bytes, small_limit: int) -> None:
    """An answer without end: only hanging up ends it, long before memory would."""

    def script(connection: Connection) -> None:
        connection.read()
        connection.send(OK + head)
        while True:
            connection.send(piece)

    with RawServer(script) as server:
        assert failure(server.url) in (TOO_MUCH, CUT)
    assert server.hung_up == 1
    assert server.connections[0].sent < 32 * small_limit


def test_little_that_becomes_too_much(small_limit: int) -> None:
    bomb = gzip.compress(b" " * (8 * small_limit))
    assert len(bomb) < small_limit / 50
    with RawServer(after_reading(OK + framed(bomb, b"content-encoding: gzip"))) as server:
        assert failure(server.url) == TOO_MUCH


# -- TLS and proxies ---------------------------------------------------------------------------


def test_a_certificate_that_nobody_vouches_for() -> None:
    with RawServer(after_reading(GOOD["content-length"]), secure=True) as server:
        assert failure(server.url, token=TOKEN) == "the server's certificate does not verify"
        assert server.connections == [], "nothing was sent"


def test_a_certificate_that_the_environment_vouches_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    with RawServer(after_reading(GOOD["content-length"]), secure=True) as server:
        assert ask(server.url).body == BODY


def test_a_file_of_certificates_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "none.pem"))
    with RawServer(after_reading(), secure=True) as server:
        assert failure(server.url) == "a file of certificates is not there"


def test_a_server_that_speaks_no_tls() -> None:
    def script(connection: Connection) -> None:
        connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.wait_for_hang_up()

    with RawServer(script) as server:
        assert failure(server.url.replace("http:", "https:")) == "TLS failed"


PROXY = "the proxy cannot be reached, or refuses"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_not_there(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with RawServer(reset) as server:
        proxy = server.url.replace("//", "//somebody:canary-password@")
    monkeypatch.setenv(f"{scheme}_proxy", proxy)
    assert failure(f"{scheme}://taguru.invalid") == PROXY


def test_a_proxy_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
    with RawServer(after_reading(refusal)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        assert failure("https://taguru.invalid") == PROXY


def test_a_proxy_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(connection: Connection) -> None:
        connection.read()
        connection.wait_for_hang_up()

    with RawServer(script) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        reason = failure("https://taguru.invalid", seconds=SHORT)
    assert reason == f"no whole answer within {SHORT} s"


def test_a_proxy_is_asked_with_its_own_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def script(connection: Connection) -> None:
        seen.append(connection.read())
        connection.send(GOOD["content-length"])

    with RawServer(script) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//somebody:secret@"))
        answer = ask("http://taguru.invalid", token=TOKEN)
    assert answer.body == BODY
    (request,) = seen
    assert request.startswith(b"POST http://taguru.invalid/x?y=1 HTTP/1.1\r\n")
    assert b"\r\nProxy-Authorization: Basic c29tZWJvZHk6c2VjcmV0\r\n" in request
    assert f"\r\nAuthorization: Bearer {TOKEN.value}\r\n".encode() in request


# -- a reason for everything -------------------------------------------------------------------


class Raising(BaseAdapter):
    """An adapter that fails in its own way."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def send(self, *_: Any, **__: Any) -> NoReturn:
        """Raise."""
        raise self._error

    def close(self) -> None:
        """There is nothing to close."""


def reason_for(error: BaseException) -> str:
    with requests.Session() as session:
        session.mount("http://", Raising(error))
        with pytest.raises(TransportError) as caught:
            HttpTransport(session, "http://h", None).send("GET", "/", None, 35.0)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return str(caught.value)


TOO_SLOW = "no whole answer within 35 s"
#: Every class of requests and urllib3 that has a reason of its own, bare.
REASONS = {
    "requests.ChunkedEncodingError": CUT,
    "requests.ConnectTimeout": "could not connect in time",
    "requests.ContentDecodingError": COMPRESSION,
    "requests.InvalidHeader": "a header cannot be sent",
    "requests.InvalidProxyURL": "the proxy's URL makes no sense",
    "requests.InvalidSchema": "the scheme of the URL or the proxy is not supported",
    "requests.InvalidURL": "the URL cannot be requested",
    "requests.MissingSchema": "the URL cannot be requested",
    "requests.ProxyError": PROXY,
    "requests.ReadTimeout": TOO_SLOW,
    "requests.RetryError": "the retries of a mounted adapter were used up",
    "requests.SSLError": "TLS failed",
    "requests.Timeout": TOO_SLOW,
    "urllib3.DecodeError": COMPRESSION,
    "urllib3.IncompleteRead": CUT,
    "urllib3.InvalidChunkLength": NO_HTTP,
    "urllib3.InvalidHeader": NO_HTTP,
    "urllib3.ProtocolError": CLOSED,
    "urllib3.ProxyError": PROXY,
    "urllib3.ReadTimeoutError": TOO_SLOW,
    "urllib3.ResponseNotChunked": CLOSED,
    "urllib3.SSLError": "TLS failed",
}


def library_exceptions() -> Iterator[Any]:
    for name, module, root in (
        ("requests", requests.exceptions, requests.RequestException),
        ("urllib3", urllib3.exceptions, urllib3.exceptions.HTTPError),
    ):
        for kind in vars(module).values():
            if (
                isinstance(kind, type)
                and issubclass(kind, root)
                and kind.__module__ == module.__name__
            ):
                yield pytest.param(f"{name}.{kind.__name__}", kind, id=f"{name}.{kind.__name__}")


@pytest.mark.parametrize(("name", "kind"), list(library_exceptions()))
def test_every_exception_of_the_libraries(name: str, kind: type[BaseException]) -> None:
    error = kind.__new__(kind, "<object at 0x7f00>")
    assert reason_for(error) == REASONS.get(name, f"the request failed ({kind.__name__})")


def test_the_table_of_reasons_names_classes_that_exist() -> None:
    known = {parameters.values[0] for parameters in library_exceptions()}
    assert known >= set(REASONS)
    assert len(known) > 40


def max_retry(cause: Exception) -> urllib3.exceptions.MaxRetryError:
    pool = urllib3.HTTPConnectionPool("h")
    return urllib3.exceptions.MaxRetryError(pool, "/", cause)


NESTED: list[tuple[BaseException, str]] = [
    (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
    (ConnectionResetError(104, "Connection reset by peer"), RESET),
    (BrokenPipeError(32, "Broken pipe"), "connection closed while sending"),
    (socket.gaierror(-2, "Name or service not known"), "the host name cannot be resolved"),
    (TimeoutError("timed out"), TOO_SLOW),
    (OSError(101, "Network is unreachable"), "network is unreachable"),
    (OSError(113, "No route to host"), "no route to host"),
    (OSError("<object at 0x7f00>"), "the request failed (OSError)"),
    (http.client.RemoteDisconnected("closed"), CLOSED),
    (http.client.BadStatusLine("<x>"), "the request failed (ConnectionError)"),
    (ssl.SSLCertVerificationError(1, "x"), "the server's certificate does not verify"),
    (ssl.SSLError(1, "x"), "TLS failed"),
]


@pytest.mark.parametrize(("inner", "reason"), NESTED, ids=lambda one: type(one).__name__)
def test_what_lies_under_an_exception_counts(inner: BaseException, reason: str) -> None:
    if not isinstance(inner, http.client.HTTPException) or isinstance(inner, OSError):
        assert reason_for(inner) == reason
    wrapped = urllib3.exceptions.ProtocolError("Connection aborted.", inner)
    expected = NO_HTTP if type(inner) is http.client.BadStatusLine else reason
    if type(inner) is OSError and inner.errno is None:
        expected = CLOSED
    if isinstance(inner, OSError) and inner.errno in (101, 113):
        expected = CLOSED
    assert reason_for(requests.ConnectionError(wrapped)) == expected


def test_causes_that_go_in_a_circle() -> None:
    first, second = requests.ConnectionError("a"), ValueError("b")
    first.__cause__, second.__context__ = second, first
    assert reason_for(first) == "the request failed (ConnectionError)"


# -- secrets -----------------------------------------------------------------------------------


def test_neither_header_nor_proxies_show_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://somebody:canary-password@proxy.invalid")
    seen: list[tuple[Any, Any]] = []

    class Curious(Raising):
        def send(self, *request: Any, **settings: Any) -> NoReturn:
            seen.append((request[0], settings))
            super().send()

    with requests.Session() as session:
        session.mount("http://", Curious(requests.ConnectionError()))
        with pytest.raises(TransportError):
            HttpTransport(session, "http://h", TOKEN).send("GET", "/", None, 35.0)
    ((request, settings),) = seen
    assert request.headers["Authorization"] == f"Bearer {TOKEN.value}"
    assert "somebody:canary-password" in settings["proxies"]["http"]
    for shown in (f"{request.headers!r}", f"{vars(request)!r}", f"{settings!r}", f"{TOKEN!r}"):
        assert "canary" not in shown


@pytest.mark.parametrize("token", ["two\nlines", "full-width-Ａ", "es\x1bcape", "\udce9surrogate"])
def test_a_token_that_no_header_can_carry(token: str) -> None:
    with RawServer(after_reading(GOOD["content-length"])) as server:
        assert failure(server.url, token=Token(token)) == "a header cannot be sent"
        assert server.connections == []


def test_a_server_that_repeats_the_token() -> None:
    body = json.dumps({"error": f"bad token {TOKEN.value}!"}).encode()
    answer = b"HTTP/1.1 401 No\r\n" + framed(body, b"retry-after: " + TOKEN.value.encode())
    with RawServer(after_reading(answer)) as server:
        found = ask(server.url, token=TOKEN)
    assert found.body == b'{"error": "bad token [token]!"}'
    assert found.headers["retry-after"] == "[token]"


def test_a_short_token_could_be_any_word() -> None:
    with RawServer(after_reading(OK + framed(b"a word"))) as server:
        assert ask(server.url, token=Token("word")).body == b"a word"


def test_an_answer_does_not_show_its_body() -> None:
    with RawServer(after_reading(OK + framed(b"text of the corpus"))) as server:
        assert repr(ask(server.url)) == "Answer(200, 18 bytes)"


# -- the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_closing_the_session_ends_requests_under_way(
    secure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    asked = threading.Barrier(3)

    def script(connection: Connection) -> None:
        connection.read()
        asked.wait(PATIENCE)
        connection.wait_for_hang_up()

    reasons: list[str] = []

    def wait_for_answer(sender: HttpTransport) -> None:
        with pytest.raises(TransportError) as caught:
            sender.send("GET", "/", None, 100_000.0)
        reasons.append(str(caught.value))

    with RawServer(script, secure=secure) as server:
        session = new_session(2)
        sender = HttpTransport(session, server.url, None)
        threads = [threading.Thread(target=wait_for_answer, args=(sender,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        asked.wait(PATIENCE)
        session.close()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert len(reasons) == 2
        with pytest.raises(TransportError):
            sender.send("GET", "/", None, AMPLE)
        assert len(server.connections) == 2, "nothing is asked after the end"


def test_a_session_of_somebody_else_is_left_as_it_is() -> None:
    seen: list[int] = []

    def note(answer: requests.Response, **_: Any) -> None:
        seen.append(answer.status_code)

    with RawServer(after_reading(GOOD["content-length"])) as server, requests.Session() as session:
        session.hooks["response"].append(note)
        adapters, headers = dict(session.adapters), dict(session.headers)
        answer = HttpTransport(session, server.url, TOKEN).send("GET", "/", None, AMPLE)
        assert answer.body == BODY
        assert seen == [200]
        assert session.adapters == adapters
        assert session.headers == headers
        assert session.hooks["response"] == [note]
