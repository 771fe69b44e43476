"""The blocks of a run, kept encoded and out of memory, in the order of the dataset at the end."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import msgspec

from .blocks import CaseBlock

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Up to here blocks stay in memory; past it they lie in an unnamed temporary file.
MEMORY_BYTES = 8 * 1024 * 1024

encode_block = msgspec.json.Encoder().encode
decode_block = msgspec.json.Decoder(CaseBlock).decode


class BlockStore:
    """Encoded case blocks by their index in the dataset. A later block of a case replaces it."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[int, int]] = {}
        self._file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115
        self._end = 0

    def put(self, index: int, encoded: bytes) -> None:
        """Keep the block of the case at `index`."""
        self._file.seek(self._end)
        self._file.write(encoded)
        self._places[index] = (self._end, len(encoded))
        self._end += len(encoded)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, index: int) -> bool:
        return index in self._places

    def encoded(self) -> Iterator[bytes]:
        """The blocks as they were put, by index."""
        for index in sorted(self._places):
            start, length = self._places[index]
            self._file.seek(start)
            yield self._file.read(length)

    def blocks(self) -> Iterator[CaseBlock]:
        """The blocks, by index."""
        return map(decode_block, self.encoded())

    def close(self) -> None:
        """Give the file back."""
        self._file.close()
