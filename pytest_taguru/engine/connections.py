"""Connections that end in time: a deadline over a whole answer, a bound on its size, an end."""

from __future__ import annotations

import contextlib
import errno
import io
import socket
import threading
import time
import weakref
from functools import partial
from http.client import HTTPResponse
from http.cookiejar import DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from . import client

if TYPE_CHECKING:
    from collections.abc import Iterable

    import urllib3

CHUNK = 1 << 16
#: A pool has its full size from the start, so an absurd one would never get there.
MOST_POOLED = 1000


class TooMuchError(OSError):
    """A server that sends more than MAX_RESPONSE_BYTES."""


def bounded(pieces: Iterable[bytes], declared: str, deadline: float) -> bytes:
    """A body that comes in pieces, within its bounds of size and time.

    `declared` is the header content-length, or empty; `deadline` is of the monotonic clock.
    Raises TooMuchError, before the first piece if so much was declared, and TimeoutError.
    """
    check_size(declared_length(declared) or 0)
    size, body = 0, []
    for piece in pieces:
        size += len(piece)
        check_size(size)
        time_left(deadline)
        body.append(piece)
    return b"".join(body)


def declared_length(header: str) -> int | None:
    """The number of bytes that a header content-length stands for; None if it is no number."""
    is_number = header.isascii() and header.isdecimal() and len(header) < 20
    return int(header) if is_number else None


def check_size(size: int) -> None:
    """Raise TooMuchError if that many bytes are more than an answer may have."""
    if size > client.MAX_RESPONSE_BYTES:
        raise TooMuchError


def time_left(deadline: float) -> float:
    """Seconds until a time of the monotonic clock. Raises TimeoutError if there are none."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("deadline")
    return left


# -- the deadline ----------------------------------------------------------------------------
#
# A time-out of requests is per read: a server that sends a byte a second would never trip it.
# So the sessions made here read through a raw stream that gives each read only what is left of
# the request's time. It has to sit this low, since the status line and the headers are read
# before requests or urllib3 return anything.


class _DeadlineReader(io.RawIOBase):
    """A socket's bytes, until a deadline, and not without end."""

    def __init__(self, sock: socket.socket, deadline: float, begun: bytes) -> None:
        self._socket = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = deadline
        self._begun = begun
        # Lines between the pieces of a body are read before anyone could count them.
        self._bytes_left = 2 * client.MAX_RESPONSE_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._begun:
            count: int | None = min(len(buffer), len(self._begun))
            buffer[:count], self._begun = self._begun[:count], self._begun[count:]
            return count
        left = time_left(self._deadline)
        if self._bytes_left < 0:
            raise TooMuchError
        self._socket.settimeout(left)
        count = self._raw.readinto(buffer)
        self._bytes_left -= count or 0
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class Until:
    """A socket as a response sees it: something to read, here until a deadline.

    `begun` is what was read of the response already.
    """

    def __init__(self, sock: socket.socket, deadline: float, begun: bytes = b"") -> None:
        self._reader = _DeadlineReader(sock, deadline, begun)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """The one stream."""
        return io.BufferedReader(self._reader, CHUNK)


class _DeadlineResponse(HTTPResponse):
    """A response whose every read shares the time-out that the socket had at its start."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        seconds = sock.gettimeout()
        timed = sock if seconds is None else Until(sock, time.monotonic() + seconds)
        super().__init__(timed, *args, **kwargs)  # type: ignore[arg-type]


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


class DeadlinePool(_Known, HTTPConnectionPool):
    """The connections to a plain HTTP server."""

    ConnectionCls = _DeadlineConnection

    def lend(self, deadline: float) -> HTTPConnection:
        """A connection that stands; to be given back, closed if it is of no further use."""
        connection: Any = self._get_conn()
        if connection.sock is None:
            try:
                connection.timeout = time_left(deadline)
                _connect(connection)
            except BaseException:
                connection.close()
                self.take_back(connection)
                raise
        return connection  # type: ignore[no-any-return]

    def take_back(self, connection: HTTPConnection) -> None:
        """Keep a connection for the next request."""
        self._put_conn(connection)
        if self._ended.is_set():  # perhaps it came too late to be closed with the others
            connection.close()


def _connect(connection: HTTPConnection) -> None:
    try:
        connection.connect()
    except NewConnectionError:
        raise
    except ConnectTimeoutError as error:  # NewConnectionError is one too
        raise requests.exceptions.ConnectTimeout(error) from error


class _DeadlineSecurePool(_Known, HTTPSConnectionPool):
    ConnectionCls = _DeadlineSecureConnection


class DeadlineAdapter(HTTPAdapter):
    """An HTTPAdapter for which `timeout` bounds the whole answer, from its first byte awaited.

    Closing it ends also the requests under way, and there are no later ones.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._ended = threading.Event()
        self._pools: Any = {
            "http": partial(DeadlinePool, ended=self._ended),
            "https": partial(_DeadlineSecurePool, ended=self._ended),
        }
        super().__init__(**kwargs)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools of direct connections."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def direct_pool(self, base: str) -> DeadlinePool:
        """The pool for a plain HTTP server."""
        pool: DeadlinePool = self.poolmanager.connection_from_url(base)
        return pool

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
