"""Files that are either the old ones or the new ones, whole."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable


class AtomicFile:
    """A file that comes to its place whole by `commit`; `discard` leaves no trace.

    Until then it lies in the same directory, since a rename is atomic only within a file system.
    Where the system can, it has no name there, so that nothing is left of it even if the process
    is killed. A symbolic link is followed, so that its target is replaced and not the link.
    """

    def __init__(self, path: Path, shown: str) -> None:
        self._shown = shown
        self._path = Path(os.path.realpath(path))
        self._temporary: Path | None = None
        try:
            handle = _open_nameless(self._path.parent)
            if handle is None:
                prefix, suffix, place = self._naming
                handle, temporary = tempfile.mkstemp(suffix, prefix, place)
                self._temporary = Path(temporary)
        except OSError as error:
            raise self._failure(error) from None
        self._stream: IO[bytes] = os.fdopen(handle, "wb")

    @property
    def _naming(self) -> tuple[str, str, Path]:
        """How a temporary file beside the place is called: prefix, suffix, directory."""
        return f".{self._path.name[:64]}.", ".tmp", self._path.parent

    def _failure(self, error: OSError) -> RunError:
        return RunError(f"{self._shown}: cannot be written: {error.strerror or error}")

    def write(self, chunk: bytes) -> None:
        """Append bytes."""
        try:
            self._stream.write(chunk)
        except OSError as error:
            self.discard()
            raise self._failure(error) from None

    def commit(self) -> None:
        """Put the file in its place, durably."""
        try:
            self._stream.flush()
            os.fchmod(self._stream.fileno(), _usual_mode(self._path))
            os.fsync(self._stream.fileno())
            if self._temporary is None:
                self._temporary = self._named()
            self._stream.close()
            self._temporary.replace(self._path)
            _sync_directory(self._path.parent)
        except OSError as error:
            self.discard()
            raise self._failure(error) from None

    def _named(self) -> Path:
        """Give a nameless file a name, since only a named one can be renamed over another."""
        prefix, suffix, place = self._naming
        name = place / f"{prefix}{secrets.token_hex(8)}{suffix}"
        handle = self._stream.fileno()
        # Only with a directory does os.link follow the link that it is given.
        os.link(f"{_OPEN_FILES}/{handle}", name, src_dir_fd=handle, follow_symlinks=True)
        return name

    def discard(self) -> None:
        """Forget what was written; the earlier file stays."""
        with contextlib.suppress(OSError):
            self._stream.close()
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                self._temporary.unlink(missing_ok=True)


#: Where Linux lists what a process has open.
_OPEN_FILES = "/proc/self/fd"


def _open_nameless(directory: Path) -> int | None:
    """A file without a name that can be given one, or None where there is no such thing."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not Path(_OPEN_FILES).is_dir():
        return None
    try:
        return os.open(directory, os.O_WRONLY | flag, 0o600)
    except OSError:
        return None  # not on this file system; or an error that mkstemp will meet as well


def write_atomically(path: Path, shown: str, chunks: Iterable[bytes]) -> None:
    """Write a whole file or leave the earlier one; RunError names it as `shown`."""
    file = AtomicFile(path, shown)
    try:
        for chunk in chunks:
            file.write(chunk)
        file.commit()
    except BaseException:
        file.discard()
        raise


def check_writable(path: Path, shown: str) -> None:
    """Find out before the work whether its result could be written: RunError if not."""
    try:
        reason = _obstacle(path)
    except OSError as error:
        reason = error.strerror or str(error)
    if reason is not None:
        raise RunError(f"{shown}: cannot be written: {reason}")


def _obstacle(path: Path) -> str | None:
    """What stands in the way of a file. Raises OSError where only trying tells."""
    parent = Path(os.path.realpath(path)).parent
    if path.is_dir():
        return "it is a directory"
    if path.exists() and not path.is_file():
        return "it is not a regular file"
    if not parent.is_dir():
        return f"the directory {parent} does not exist"
    if not os.access(parent, os.W_OK | os.X_OK):
        return f"the directory {parent} is not writable"
    # A superuser may write anywhere, says os.access, which is not so.
    handle = _open_nameless(parent)
    if handle is None:
        handle, name = tempfile.mkstemp(prefix=".taguru-", suffix=".tmp", dir=parent)
        Path(name).unlink()
    os.close(handle)
    return None


def _usual_mode(path: Path) -> int:
    """The mode of the file that is replaced, else what a plain open() would give a new one."""
    with contextlib.suppress(OSError):
        return path.stat().st_mode & 0o7777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _sync_directory(directory: Path) -> None:
    # Not every platform lets a directory be opened; the rename itself is atomic without it.
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
