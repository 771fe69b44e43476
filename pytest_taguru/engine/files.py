"""Files that are either the old ones or the new ones, whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable


class AtomicFile:
    """A file written beside its place and moved there by `commit`; `discard` leaves no trace.

    The temporary file lies in the same directory, since a rename is atomic only within a file
    system. A symbolic link is followed, so that its target is replaced and not the link.
    """

    def __init__(self, path: Path, shown: str) -> None:
        self._shown = shown
        self._path = Path(os.path.realpath(path))
        try:
            handle, temporary = tempfile.mkstemp(
                prefix=f".{self._path.name[:64]}.", suffix=".tmp", dir=self._path.parent
            )
        except OSError as error:
            raise self._failure(error) from None
        self._temporary = Path(temporary)
        self._stream: IO[bytes] = os.fdopen(handle, "wb")

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
            self._stream.close()
            self._temporary.replace(self._path)
            _sync_directory(self._path.parent)
        except OSError as error:
            self.discard()
            raise self._failure(error) from None

    def discard(self) -> None:
        """Forget what was written; the earlier file stays."""
        with contextlib.suppress(OSError):
            self._stream.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink(missing_ok=True)


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
    parent = Path(os.path.realpath(path)).parent
    if path.is_dir():
        raise RunError(f"{shown}: cannot be written: it is a directory")
    if path.exists() and not path.is_file():
        raise RunError(f"{shown}: cannot be written: it is not a regular file")
    if not parent.is_dir():
        raise RunError(f"{shown}: cannot be written: the directory {parent} does not exist")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise RunError(f"{shown}: cannot be written: the directory {parent} is not writable")


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
