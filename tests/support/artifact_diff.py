"""Compares an evaluation.json (or a changes.jsonl) with the one the original program wrote.

Whatever must differ between two runs is compared by its kind only: time stamps, latencies (but
their number of samples counts), the server's address, paths of files, and how a transport
failure is worded. Prose of `definitions` is free. Everything else must be the same, keys in the
same order, numbers up to rounding, and nothing may be added but what the contract lists.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_KIND_ONLY = frozenset(
    {
        "generated_at",
        "last_write_epoch",
        "last_write_epoch_after",
        "last_write_epoch_before",
        "latency_ms",
        "out",
        "path",
        "url",
    }
)
#: A test compares these with what the types of the engine declare and the original never writes.
MAY_BE_ADDED = frozenset(
    {
        "$.baseline",
        "$.extensions",
        "$.inputs.concurrency",
        "$.inputs.selection",
        "$.inputs.server_version",
        "$.strict",
        "$[0].statistics",
    }
)
_FREE_PROSE = frozenset({"caveat", "description", "source"})
_LOOPBACK = re.compile(r"https?://127\.0\.0\.1:\d+")
_TRANSPORT = "due to a transport error: "
_STATUS_FAILURE = re.compile(r"\S+ answered \d{3}: .*", re.S)
_LONGEST_MESSAGE = 200 + len("…".encode())
_EPSILON = 1e-12


def differences(expected: Any, actual: Any) -> list[str]:
    """One line for each place where `actual` departs from `expected`."""
    return list(_compare(expected, actual, "$"))


def _compare(expected: Any, actual: Any, at: str) -> Iterator[str]:
    match expected, actual:
        case dict(), dict():
            yield from _objects(expected, actual, at)
        case list(), list():
            yield from _arrays(expected, actual, at)
        case str(), str():
            if _steady(expected) != _steady(actual):
                yield _unlike(at, expected, actual)
        case (bool() | None, _) | (_, bool() | None):
            if expected is not actual:
                yield _unlike(at, expected, actual)
        case int() | float(), int() | float():
            if not math.isclose(expected, actual, rel_tol=_EPSILON, abs_tol=_EPSILON):
                yield _unlike(at, expected, actual)
        case _:
            yield _unlike(at, expected, actual)


def _objects(expected: dict[str, Any], actual: dict[str, Any], at: str) -> Iterator[str]:
    shared = [key for key in expected if key in actual]
    if shared != [key for key in actual if key in expected]:
        yield f"{at}: the keys {shared} stand in another order"
    in_definition = at.startswith("$.definitions.")
    for key, value in expected.items():
        here = f"{at}.{key}"
        if in_definition and key in _FREE_PROSE:
            continue
        if key not in actual:
            yield f"{here}: missing"
        elif key == "reason" and expected.get("scope") == "corpus":
            continue
        else:
            yield from _member(value, actual[key], here, key)
    for key in actual:
        here = f"{at}.{key}"
        if key in expected or here in MAY_BE_ADDED or (in_definition and key in _FREE_PROSE):
            continue
        yield f"{here}: not in the original"


def _member(expected: Any, actual: Any, at: str, key: str) -> Iterator[str]:
    if key in _KIND_ONLY:
        if type(expected) is not type(actual):
            yield f"{at}: not of the kind of {expected!r}: {actual!r}"
    elif at.startswith("$.metrics.latency."):
        if expected.get("n") != actual.get("n"):
            yield _unlike(f"{at}.n", expected.get("n"), actual.get("n"))
    elif key in ("message", "error") and isinstance(expected, str):
        if not _same_failure(expected, actual):
            yield _unlike(at, expected, actual)
    elif at == "$[0].warnings":
        if not isinstance(actual, list) or len(expected) != len(actual):
            yield f"{at}: {len(expected)} warnings are due: {actual!r}"
    else:
        yield from _compare(expected, actual, at)


def _arrays(expected: list[Any], actual: list[Any], at: str) -> Iterator[str]:
    if len(expected) != len(actual):
        yield f"{at}: {len(expected)} entries are due, there are {len(actual)}"
    for index, (left, right) in enumerate(zip(expected, actual, strict=False)):
        if not _is_latency_change(left):
            yield from _compare(left, right, f"{at}[{index}]")


def _is_latency_change(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and "sides" in entry
        and str(entry.get("metric", "")).startswith("latency.")
    )


def _same_failure(expected: str, actual: Any) -> bool:
    if not isinstance(actual, str) or not 0 < len(actual.encode()) <= _LONGEST_MESSAGE:
        return False
    if not _STATUS_FAILURE.fullmatch(expected):
        return True  # a transport failure, or an answer of another shape: the words are free
    ours = _LOOPBACK.match(actual)
    if ours is None:
        return False
    due = _LOOPBACK.sub(ours.group(), expected, count=1)
    if due.endswith("…"):  # cut at 200 bytes, the address included: cut again for our address
        due = due[:-1].encode()[: _LONGEST_MESSAGE - 3].decode(errors="ignore") + "…"
    return due == actual


def _steady(text: str) -> str:
    return _LOOPBACK.sub("<origin>", text.partition(_TRANSPORT)[0])


def _unlike(at: str, expected: Any, actual: Any) -> str:
    return f"{at}: {expected!r} is due, not {actual!r}"
