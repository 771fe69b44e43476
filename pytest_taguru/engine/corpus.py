"""The context around a run: health, revisions before and after, sources, preflight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .client import Client, Failure, TransportError, segment
from .errors import InputError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .dataset import Dataset

#: The server's major.minor that this release was tested with.
TESTED_VERSION = "0.9"
SOURCES_PAGE = 1000


class Revision(Struct, frozen=True, kw_only=True):
    """Counters that a write to the corpus moves."""

    graph: int
    passages: int
    config: int


class Reading(Struct, frozen=True, kw_only=True):
    """A context at one moment."""

    revision: Revision
    last_write_epoch: int


class Embeddings(Struct, frozen=True, kw_only=True):
    """Which model embeds the passages, if any."""

    provider_model: str | None


class Opening(Struct, frozen=True, kw_only=True):
    """What was found before the cases."""

    before: Reading
    sources_count: int
    server_version: str | UnsetType = UNSET
    embeddings: Embeddings | UnsetType = UNSET
    notes: list[str] = []


class Bracket(Struct, frozen=True, kw_only=True):
    """What was found before and after the cases, by one process."""

    opening: Opening
    after: Reading


class Corpus(Struct, frozen=True, kw_only=True):
    """The `corpus` of evaluation.json."""

    revision_before: Revision
    revision_after: Revision
    stable: bool
    last_write_epoch_before: int
    last_write_epoch_after: int
    embeddings: Embeddings | UnsetType = UNSET
    sources_count: int


class _Usage(Struct):
    last_write_epoch: int


class _Context(Struct):
    revision: Revision
    usage: _Usage


class _Sources(Struct):
    sources: list[str]


class _Health(Struct):
    version: str | UnsetType = UNSET


_CONTEXT = msgspec.json.Decoder(_Context)
_EMBEDDINGS = msgspec.json.Decoder(Embeddings)
_SOURCES = msgspec.json.Decoder(_Sources)
_HEALTH = msgspec.json.Decoder(_Health)


def open_corpus(client: Client, masked: str, context: str, dataset: Dataset) -> Opening:
    """Everything before the first case: health, revision, embeddings, sources, preflight.

    Raises RunError (server unreachable or unreadable) or InputError (unknown context, expected
    sources that the context does not have, one line each).
    """
    version, notes = _check_health(client, masked)
    try:
        before = read_context(client, context)
    except InputError as error:
        if context != dataset.header.default_context:
            raise
        place = f"{dataset.path}:{dataset.header_line}"
        raise InputError(*(f"{place}: {problem}" for problem in error.problems)) from None
    embeddings = _read_embeddings(client, context, notes)
    wanted = {item.source for case in dataset.cases for item in case.expected_sources}
    count = 0
    for source in walk_sources(client, context):
        count += 1
        wanted.discard(source)
    problems = list(_absent(dataset, wanted, context))
    if problems:
        raise InputError(*problems)
    return Opening(
        before=before,
        sources_count=count,
        server_version=version,
        embeddings=embeddings,
        notes=notes,
    )


def read_context(client: Client, context: str) -> Reading:
    """The context's revision and last write. Raises InputError if there is no such context."""
    reply = client.get(f"/contexts/{segment(context)}", _CONTEXT)
    if isinstance(reply, Failure):
        if reply.status == 404:
            raise InputError(f"unknown context {context!r}: {reply.message}")
        raise RunError(f"the context {context!r} cannot be read: {reply.message}")
    found = reply.result
    return Reading(revision=found.revision, last_write_epoch=found.usage.last_write_epoch)


def read_context_after(client: Client, context: str) -> Reading:
    """The same after the cases. Raises RunError whatever the reason: it was there before."""
    try:
        return read_context(client, context)
    except InputError as error:
        raise RunError(*(f"after the cases: {problem}" for problem in error.problems)) from None


def walk_sources(client: Client, context: str) -> Iterator[str]:
    """All names of sources, page by page until an empty one. Raises RunError."""
    route = f"/contexts/{segment(context)}/sources?limit={SOURCES_PAGE}"
    cursor: str | None = None
    while True:
        after = "" if cursor is None else f"&after={segment(cursor)}"
        reply = client.get(route + after, _SOURCES)
        if isinstance(reply, Failure):
            raise RunError(f"the sources of {context!r} cannot be listed: {reply.message}")
        page = reply.result.sources
        if not page:
            return
        # Code points order strings as their UTF-8 bytes do. Without this a server that repeats
        # a page would hold the run for ever.
        if cursor is not None and page[0] <= cursor:
            raise RunError(
                f"the sources of {context!r} cannot be listed: a page does not go on"
                f" past {cursor!r}"
            )
        yield from page
        cursor = page[-1]


def merge_brackets(brackets: Iterable[Bracket]) -> Corpus:
    """One `corpus` from what one or more processes read.

    It is stable if all readings agree; before is the earliest reading, after the latest.
    """
    found = list(brackets)
    first = min(found, key=lambda bracket: _age(bracket.opening.before))
    last = max(found, key=lambda bracket: _age(bracket.after))
    readings = [reading for one in found for reading in (one.opening.before, one.after)]
    return Corpus(
        revision_before=first.opening.before.revision,
        revision_after=last.after.revision,
        stable=all(reading.revision == readings[0].revision for reading in readings),
        last_write_epoch_before=first.opening.before.last_write_epoch,
        last_write_epoch_after=last.after.last_write_epoch,
        embeddings=first.opening.embeddings,
        sources_count=first.opening.sources_count,
    )


def _age(reading: Reading) -> tuple[int, int, int, int]:
    revision = reading.revision
    return reading.last_write_epoch, revision.graph, revision.passages, revision.config


def _check_health(client: Client, masked: str) -> tuple[str | UnsetType, list[str]]:
    try:
        answer = client.health()
    except TransportError as error:
        raise RunError(f"no taguru server at {masked}: {error}") from None
    if answer.status != 200:
        raise RunError(
            f"the server at {masked} is not healthy: {client.base}/health answered {answer.status}"
        )
    try:
        version = _HEALTH.decode(answer.body).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        version = UNSET
    if isinstance(version, UnsetType):
        return UNSET, [f"the server at {masked} does not say its version"]
    version = version[:64]
    if ".".join(version.split(".")[:2]) == TESTED_VERSION:
        return version, []
    note = f"the server is version {version}; this release was tested with {TESTED_VERSION}"
    return version, [note]


def _read_embeddings(client: Client, context: str, notes: list[str]) -> Embeddings | UnsetType:
    reply = client.get(f"/contexts/{segment(context)}/embeddings", _EMBEDDINGS)
    if isinstance(reply, Failure):
        notes.append(f"the embedding model is not known: {reply.message}")
        return UNSET
    return reply.result


def _absent(dataset: Dataset, missing: set[str], context: str) -> Iterator[str]:
    for case, line in zip(dataset.cases, dataset.lines, strict=True):
        for index, item in enumerate(case.expected_sources):
            if item.source in missing:
                yield (
                    f"{dataset.path}:{line}: case {case.case_id!r}: expected_sources[{index}]:"
                    f" the context {context!r} has no source {item.source!r}"
                )
