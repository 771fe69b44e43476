"""A server on loopback that sends what it is told to, byte by byte, HTTP or not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: A certificate for loopback that nobody signed, 2020 to 2120, and its key, which is no secret.
CERTIFICATE = Path(__file__).with_name("loopback.pem")


class Connection:
    """One client's connection, as a script sees it."""

    def __init__(self, sock: socket.socket, stopping: threading.Event) -> None:
        self._socket = sock
        self._stopping = stopping
        self._unread = b""
        self.sent = 0

    def read(self) -> bytes:
        """A request's head and body."""
        while b"\r\n\r\n" not in self._unread:
            self._receive()
        head, _, rest = self._unread.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        while len(rest) < length:
            self._receive()
            rest = self._unread.partition(b"\r\n\r\n")[2]
        self._unread = rest[length:]
        return head + b"\r\n\r\n" + rest[:length]

    def _receive(self) -> None:
        received = self._socket.recv(1 << 16)
        if not received:
            raise EOFError
        self._unread += received

    def send(self, data: bytes) -> None:
        """Send all of it; an OSError means that the client hung up."""
        self._socket.sendall(data)
        self.sent += len(data)

    def drip(self, pieces: Iterable[bytes]) -> None:
        """Send a piece, pause, send the next; never long enough for a time-out of a read."""
        for piece in pieces:
            self.send(piece)
            if self._stopping.wait(0.03):
                return

    def wait_for_hang_up(self) -> None:
        """Say nothing until the client leaves, or the test ends."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._receive()

    def reset(self) -> None:
        """Break the connection off."""
        linger = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()


class RawServer:
    """Runs a script on each connection, on a thread of its own; a context manager."""

    def __init__(
        self,
        script: Callable[[Connection], None],
        *,
        secure: bool = False,
        host: str = "127.0.0.1",
    ) -> None:
        self._script = script
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family)
        self._listener.bind((host, 0))
        shown = f"[{host}]" if ":" in host else host
        port = self._listener.getsockname()[1]
        self.url = f"http{'s' if secure else ''}://{shown}:{port}"
        self._context: ssl.SSLContext | None = None
        if secure:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(CERTIFICATE)
        self._stopping = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.connections: list[Connection] = []
        #: How many connections the client ended before the script did.
        self.hung_up = 0

    def __enter__(self) -> Self:
        self._listener.listen(16)
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._sockets.append(sock)
                self._spawn(self._serve, sock)

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(plain)
            try:
                sock = plain
                if self._context is not None:
                    sock = self._context.wrap_socket(plain, server_side=True)
                    stack.enter_context(sock)
                    self._sockets.append(sock)
                connection = Connection(sock, self._stopping)
                self.connections.append(connection)
                self._script(connection)
            except (EOFError, OSError):
                self.hung_up += 1
