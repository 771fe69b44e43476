"""The short way to a plain HTTP server: a round trip over loopback, and little on top of it.

requests and urllib3 do a lot around each request that comes to the same for all requests of a run.
Over a network nobody notices; beside a server that answers within a fraction of a millisecond it is
most of the time. Here they do it once: they write the head of a request, from which later ones
differ by route and length, and they keep the connections. An answer of the usual form is read
here, by its first piece; any other is left to them, from its first byte.
"""

from __future__ import annotations

import re
from contextlib import closing
from http.client import HTTPResponse, IncompleteRead
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import requests
import urllib3
from urllib3.connection import HTTPConnection

from .connections import CHUNK, Until, bounded, check_size, declared_length, time_left

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from .connections import DeadlinePool

#: Routes that can stand in the first line of a request as they are.
_ROUTE = re.compile(r'/[!"$-~]*')
#: The whole head of an answer that has a body: its status, and the lines of its headers.
_HEAD = re.compile(
    rb"HTTP/1\.1 (?!204|304)([2-5]\d\d) [^\r\n]*\r\n"
    rb"((?:[0-9A-Za-z!#$%&'*+.^_`|~-]+:[^\r\n]*\r\n)+)\r\n"
)
#: How many headers are read here; http.client refuses answers with not many more.
_MOST_HEADERS = 50
#: Headers after which the body is more than so many bytes, or the connection's last.
_UNUSUAL = frozenset({"transfer-encoding", "content-encoding", "connection"})


class Said(NamedTuple):
    """An answer, its headers by lower-case name."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Direct:
    """Requests of one method to one server, with no proxy on the way and nothing done to them.

    What `send` raises is what otherwise lies under an exception of requests.
    """

    def __init__(self, pool: DeadlinePool, pattern: requests.PreparedRequest) -> None:
        """`pattern` is such a request to the base URL, ready to be sent."""
        self._pool = pool
        self._method = str(pattern.method)
        self._start = f"{self._method} {pattern.path_url.removesuffix('/')}".encode("ascii")
        self._rest = _after_target(pattern)

    def send(self, route: str, body: bytes | None, deadline: float) -> Said:
        """Send a request and read its answer, until a time of the monotonic clock."""
        request = b"%b%b%b" % (self._start, route.encode("ascii"), self._rest)
        if body is not None:
            request = b"%b%d\r\n\r\n%b" % (request, len(body), body)
        connection = self._pool.lend(deadline)
        try:
            sock = connection.sock
            _limit(sock, deadline)
            try:  # noqa: SIM105 - a context manager costs more than the rest of this block
                sock.sendall(request)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it may have refused a long body before the end of it: urllib3 looks, too
            begun = _receive(sock, deadline)
            usual = _usual_head(begun)
            if usual is None:
                said, is_last = _read_unusual(sock, begun, self._method, deadline)
            else:
                status, headers, start, length = usual
                said = Said(status, headers, _read(sock, begun[start:], length, deadline))
                is_last = start + length < len(begun)  # more than an answer: out of step
        except BaseException:
            connection.close()
            raise
        else:
            if is_last:
                connection.close()
            return said
        finally:
            self._pool.take_back(connection)


def is_direct(route: str) -> bool:
    """Whether a route needs no quoting."""
    return _ROUTE.fullmatch(route) is not None


def _after_target(pattern: requests.PreparedRequest) -> bytes:
    """What follows the target in a request like this, up to the length of its body if it has one.

    urllib3 writes it.
    """
    written: list[bytes] = []

    class Paper(HTTPConnection):
        def send(self, data: Any) -> None:
            written.append(data)

    has_body = pattern.body is not None
    headers = {name: value for name, value in pattern.headers.items() if name != "Content-Length"}
    if has_body:
        headers["Content-Length"] = "0"
    url = urlsplit(str(pattern.url))
    Paper(str(url.hostname), url.port).request(str(pattern.method), "/", headers=headers)
    head = b"".join(written).removeprefix(f"{pattern.method} /".encode("ascii"))
    return head.removesuffix(b"0\r\n\r\n") if has_body else head


def _receive(sock: socket.socket, deadline: float, most: int = CHUNK) -> bytes:
    _limit(sock, deadline)
    return sock.recv(most)


def _limit(sock: socket.socket, deadline: float) -> None:
    """Give the next call what is left, a thousandth more or less: setting it is a system call."""
    left = time_left(deadline)
    if abs((sock.gettimeout() or 0.0) - left) > left / 1000:
        sock.settimeout(left)


def _usual_head(begun: bytes) -> tuple[int, dict[str, str], int, int] | None:
    """Status, headers, and start and length of the body, if that is all there is to know."""
    head = _HEAD.match(begun)
    if head is None:
        return None
    lines = head[2].decode("latin-1").split("\r\n")[:-1]
    if len(lines) > _MOST_HEADERS:
        return None
    headers = {
        name.lower(): value.strip(" \t") for name, _, value in (one.partition(":") for one in lines)
    }
    length = declared_length(headers.get("content-length", ""))
    # A header may come twice, but then it is not for us to say which one counts.
    if len(headers) < len(lines) or not _UNUSUAL.isdisjoint(headers) or length is None:
        return None
    return int(head[1]), headers, head.end(), length


def _read(sock: socket.socket, begun: bytes, length: int, deadline: float) -> bytes:
    """A body of that many bytes, of which some are there, and maybe more than these."""
    check_size(length)
    if len(begun) >= length:
        return begun[:length]
    pieces, missing = [begun], length - len(begun)
    while missing:
        # No byte more: one that is left unread makes the pool give the connection up.
        piece = _receive(sock, deadline, min(missing, CHUNK))
        if not piece:
            raise IncompleteRead(b"", missing)
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


def _read_unusual(
    sock: socket.socket, begun: bytes, method: str, deadline: float
) -> tuple[Said, bool]:
    """An answer of which these bytes are read, and whether it is the connection's last."""
    until: Any = Until(sock, deadline, begun)
    with closing(HTTPResponse(until, method=method)) as response:
        response.begin()
        fields = urllib3.HTTPHeaderDict(response.headers.items())
        headers = {name.lower(): value for name, value in fields.itermerged()}
        decoded = urllib3.HTTPResponse(
            response,
            fields,
            response.status,
            preload_content=False,
            original_response=response,
            request_method=method,
        )
        pieces = decoded.stream(CHUNK, decode_content=True)
        try:
            body = bounded(pieces, headers.get("content-length", ""), deadline)
        except urllib3.exceptions.ProtocolError as error:
            # As requests says it: what breaks here breaks off in the body.
            raise requests.exceptions.ChunkedEncodingError(error) from error
        return Said(response.status, headers, body), response.will_close
