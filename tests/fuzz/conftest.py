"""Two servers that all examples share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.live import LiveServer, find_binary

from .both import Arena

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def bare() -> Iterator[Arena]:
    """A server without providers."""
    yield from _arena(providers=False)


@pytest.fixture(scope="session")
def equipped() -> Iterator[Arena]:
    """A server with embeddings and a reranker."""
    yield from _arena(providers=True)


def _arena(*, providers: bool) -> Iterator[Arena]:
    with LiveServer(find_binary(), providers=providers) as server:
        arena = Arena(server, embeds=providers)
        yield arena
        arena.close()
