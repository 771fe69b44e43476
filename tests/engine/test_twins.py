"""Two ways to look at the same thing, one stricter than the other: neither may change alone.

evaluation.json is read leniently and in part, for speed and for the sake of other releases, and so
by other types than those that write it. Hits of a search are read without their lanes if they come
in an older shape.
"""

from __future__ import annotations

import json
import types
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import pytest
from msgspec import Struct, UnsetType

from pytest_taguru.engine import comparison, lanes, verdict
from pytest_taguru.engine.artifact import Head, Tail
from pytest_taguru.engine.blocks import CaseBlock
from pytest_taguru.engine.comparison import DECIDING
from pytest_taguru.engine.metrics import CATALOGUE, Distribution, Ratio, case_value
from tests.support.artifact_diff import MAY_BE_ADDED
from tests.support.runs import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_taguru.engine.budget import Served

ARTIFACTS = sorted(GOLDEN.glob("*/**/evaluation.json"))


class Written(Struct):
    """evaluation.json as a run writes it: what stands before, in and after the cases."""

    cases: list[CaseBlock]


def members(struct: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct, include_extras=True)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}


WRITTEN = {**members(Head), **members(Written), **members(Tail)}


def kinds(expected: Any) -> Iterator[Any]:
    """The alternatives of a type, without ranges and descriptions."""
    origin, args = get_origin(expected), get_args(expected)
    if origin is Annotated:
        yield from kinds(args[0])
    elif origin is Union or origin is types.UnionType:
        for arg in args:
            yield from kinds(arg)
    elif origin is Literal:
        yield from map(type, args)
    else:
        yield expected


def departures(read: Any, written: Any, at: str) -> Iterator[str]:
    """Where a type does not read what another writes."""
    reads, writes = set(kinds(read)), set(kinds(written)) - {UnsetType}
    if Any in reads:
        return
    for kind in writes:
        origin = get_origin(kind)
        if kind in reads or (kind is int and float in reads):
            continue
        same = [one for one in reads if get_origin(one) is origin and origin is not None]
        if same:
            yield from departures(get_args(same[0])[-1], get_args(kind)[-1], f"{at}[]")
        elif isinstance(kind, type) and issubclass(kind, Struct):
            structs = [one for one in reads if isinstance(one, type) and issubclass(one, Struct)]
            if not structs:
                yield f"{at}: an object is written"
            for struct in structs:
                yield from unread(struct, members(kind), at)
        else:
            yield f"{at}: {kind} is written"


def unread(read: type[Struct], written: dict[str, Any], at: str = "$") -> Iterator[str]:
    for name, kind in members(read).items():
        if name not in written:
            yield f"{at}.{name}: never written"
        else:
            yield from departures(kind, written[name], f"{at}.{name}")


def test_a_comparison_reads_what_a_run_writes() -> None:
    assert list(unread(comparison._Document, WRITTEN)) == []


def test_judging_again_reads_what_a_run_writes() -> None:
    assert list(unread(verdict._Judged, WRITTEN)) == []


@pytest.mark.parametrize(
    ("read", "written"),
    [(comparison._Distribution, Distribution), (comparison._Ratio, Ratio)],
)
def test_an_aggregate_is_read_whole(read: type[Struct], written: type[Struct]) -> None:
    assert list(unread(read, members(written))) == []
    assert {*members(read)} == {*members(written)}


class Inner(Struct, frozen=True):
    number: float | None = None
    gone: str = ""


class Read(Struct):
    inner: Inner = Inner()
    entries: list[Inner] = []
    named: dict[str, Inner] = {}
    text: str = ""


class InnerWritten(Struct):
    number: str


class Other(Struct):
    inner: InnerWritten | UnsetType
    entries: list[InnerWritten]
    named: dict[str, int]
    text: str | None


def test_departures_are_found() -> None:
    assert list(unread(Read, members(Other))) == [
        "$.inner.number: <class 'str'> is written",
        "$.inner.gone: never written",
        "$.entries[].number: <class 'str'> is written",
        "$.entries[].gone: never written",
        "$.named[]: <class 'int'> is written",
        "$.text: <class 'NoneType'> is written",
    ]


@pytest.mark.parametrize("file", ARTIFACTS, ids=lambda file: str(file.parent.relative_to(GOLDEN)))
def test_both_see_the_same_values(file: Any) -> None:
    content = file.read_bytes()
    read = msgspec.json.decode(content, type=comparison._Document)
    cases = msgspec.convert(json.loads(content)["cases"], list[CaseBlock])
    assert comparison._rows(read.cases) == [
        tuple(case_value(name, case) for name in DECIDING) for case in cases
    ]
    assert [case.case_id for case in read.cases] == [case.case_id for case in cases]
    for name, stated in read.metrics.items():
        shape = comparison._SHAPES[read.definitions[name].statistic]
        assert (
            msgspec.convert(stated, shape).scalar
            == msgspec.convert(stated, CATALOGUE[name].statistic).scalar
        )


def plain(served: Served) -> tuple[str, int, float, str]:
    return served.hit.source, served.hit.paragraph, served.hit.score, served.text


def test_hits_without_lanes_are_read_alike() -> None:
    seen = 0
    for file in GOLDEN.glob("*/runs/*/exchanges.jsonl"):
        for line in filter(None, file.read_text("utf-8").split("\n")):
            exchange = json.loads(line)
            if not exchange["path"].endswith("/sources/search") or exchange["status"] != 200:
                continue
            result = json.loads(exchange["response"])["result"]
            read, bare = lanes._read_search(result), lanes._read_bare_hits(result)
            assert not isinstance(read, str)
            assert not isinstance(bare, str)
            assert [*map(plain, read[1])] == [*map(plain, bare[1])]
            seen += len(bare[1])
    assert seen > 100


# -- against what the original wrote ---------------------------------------------------------


def stated(value: Any, at: str) -> Iterator[str]:
    """The place of each key of an object, as `artifact_diff` names it; arrays are passed over."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield f"{at}.{key}"
            yield from stated(member, f"{at}.{key}")


def declared(fields: dict[str, Any], at: str) -> Iterator[str]:
    """The same of what types declare."""
    for name, kind in fields.items():
        yield f"{at}.{name}"
        for one in kinds(kind):
            if isinstance(one, type) and issubclass(one, Struct):
                yield from declared(members(one), f"{at}.{name}")


def test_the_keys_that_may_be_added_are_those_that_the_original_does_not_write() -> None:
    original = {place for file in ARTIFACTS for place in stated(json.loads(file.read_bytes()), "$")}
    headers = [file.read_bytes().split(b"\n")[0] for file in GOLDEN.glob("compare/*/changes.jsonl")]
    original |= {place for header in headers for place in stated(json.loads(header), "$[0]")}
    ours = {*declared(WRITTEN, "$"), *declared(members(comparison.Header), "$[0]")}
    ours |= {f"$.{part}.{name}" for part in ("definitions", "metrics") for name in CATALOGUE}
    added = ours - original
    outermost = {place for place in added if place.rpartition(".")[0] not in added}
    assert outermost == MAY_BE_ADDED
