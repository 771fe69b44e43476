"""evaluation.json: its shape around the cases, and how it is written as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .baseline import BaselineReport
from .blocks import Limits
from .corpus import Corpus
from .dataset import DEFAULT_LIMIT
from .files import write_atomically
from .lanes import RESOLVE_LIMIT
from .metrics import Definition, Distribution, Ratio
from .thresholds import Report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path


class Matching(Struct, frozen=True, kw_only=True):
    """How names and sources were compared."""

    normalization: str = "taguru::context::normalize_entry"
    normalized: tuple[str, ...] = ("expected_concepts", "expected_labels")
    sources: str = "exact (source, paragraph) match — no normalization"


class EvalInput(Struct, frozen=True, kw_only=True):
    """The dataset: its path as given, and how many cases it has."""

    path: str
    name: str | None
    cases: int


class Selection(Struct, frozen=True, kw_only=True):
    """How many of the dataset's cases were asked for, when not all were."""

    selected: int
    total: int


class Inputs(Struct, frozen=True, kw_only=True):
    """What the run was given."""

    eval: EvalInput
    context: str
    url: str
    out: str
    default_limit: int = DEFAULT_LIMIT
    resolve_limit: int = RESOLVE_LIMIT
    mode: Literal["baseline", "assembly"]
    budget: Limits | UnsetType = UNSET
    rerank: str | UnsetType = UNSET
    concurrency: int | UnsetType = UNSET
    selection: Selection | UnsetType = UNSET
    server_version: str | UnsetType = UNSET


class StrictViolation(Struct, frozen=True, kw_only=True):
    """A case with an unmet expectation, under strict judging."""

    case_id: str
    reason: str


class StrictReport(Struct, frozen=True, kw_only=True):
    """The added key `strict`."""

    passed: bool
    violations: list[StrictViolation]


class Head(Struct, frozen=True, kw_only=True):
    """Everything before the cases."""

    taguru_evaluation: Literal[1] = 1
    generated_at: str
    matching: Matching = Matching()
    inputs: Inputs
    corpus: Corpus
    thresholds: Report | None
    definitions: dict[str, Definition]
    warnings: list[str] | UnsetType = UNSET


class Tail(Struct, frozen=True, kw_only=True):
    """Everything after the cases; all but `metrics` are additions of this project."""

    metrics: dict[str, Distribution | Ratio] | dict[str, Any]
    strict: StrictReport | UnsetType = UNSET
    baseline: BaselineReport | UnsetType = UNSET
    extensions: dict[str, Any] | UnsetType = UNSET


def without_cases(head: Head, tail: Tail) -> dict[str, Any]:
    """The artifact as plain objects, without its cases."""
    return {**msgspec.to_builtins(head), **msgspec.to_builtins(tail)}


def write_artifact(file: Path, shown: str, head: Head, cases: Iterable[bytes], tail: Tail) -> None:
    """Write evaluation.json atomically, a case at a time. Raises RunError, naming `shown`."""
    write_atomically(file, shown, _chunks(head, cases, tail))


def _chunks(head: Head, cases: Iterable[bytes], tail: Tail) -> Iterator[bytes]:
    yield _pretty(head).removesuffix(b"\n}") + b',\n  "cases": ['
    separator = b"\n    "
    for case in cases:
        # No string holds a raw line feed, so each one is layout and can be indented.
        yield separator + msgspec.json.format(case, indent=2).replace(b"\n", b"\n    ")
        separator = b",\n    "
    yield b"\n  ]," + _pretty(tail).removeprefix(b"{") + b"\n"


def _pretty(value: Struct | Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)
