"""The published JSON Schemas: current, and of one mind with the readers."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pytest_taguru.engine import schemas
from pytest_taguru.engine.dataset import parse_dataset
from pytest_taguru.engine.errors import InputError
from pytest_taguru.engine.strict import WHITE_SPACE
from pytest_taguru.engine.thresholds import load_gate
from tests.support.runs import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HEADER, CASE, THRESHOLDS = (
    Draft202012Validator(schemas.schemas()[name])
    for name in ("eval-header", "eval-case", "thresholds")
)


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip(WHITE_SPACE)]


def reader_takes(case: Any) -> bool:
    """Whether the reader takes a case, whatever it makes of it."""
    text = '{"taguru_eval": 1}\n' + json.dumps(case, allow_nan=False)
    try:
        parse_dataset(text.encode(), "eval.jsonl")
    except InputError:
        return False
    return True


def gate_reader_takes(thresholds: Any, file: Path) -> bool:
    file.write_text(json.dumps(thresholds))
    try:
        load_gate(file, "thresholds.json", {"c1", "c2"})
    except InputError:
        return False
    return True


# -- what is published -----------------------------------------------------------------------


def test_the_published_files_are_current() -> None:
    published = {file: file.read_text("utf-8") for file in schemas.DIRECTORY.iterdir()}
    assert published == dict(schemas.rendered()), "run python -m pytest_taguru.engine.schemas"


def test_publishing_writes_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "DIRECTORY", tmp_path / "schemas")
    schemas.publish()
    assert sorted(file.name for file in (tmp_path / "schemas").iterdir()) == [
        "eval-case.schema.json",
        "eval-header.schema.json",
        "thresholds.schema.json",
    ]


def test_every_description_is_of_a_field() -> None:
    structs = {
        name: part
        for schema in schemas.schemas().values()
        for name, part in {schema["title"]: schema, **schema.get("$defs", {})}.items()
    }
    titles = {"eval.jsonl, header": "Header", "eval.jsonl, case": "Case"}
    titles["thresholds.json"] = "Thresholds"
    fields = {
        f"{titles.get(name, name)}.{field}"
        for name, part in structs.items()
        for field in part["properties"]
    }
    assert fields == set(schemas._DESCRIPTIONS)


@pytest.mark.parametrize("name", ["eval-header", "eval-case", "thresholds"])
def test_a_schema_is_valid_and_speaks_for_itself(name: str) -> None:
    schema = schemas.schemas()[name]
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "$id" not in json.dumps(schema)
    assert schema["title"]
    assert schema["description"]
    for part in (schema, *schema.get("$defs", {}).values()):
        assert part["additionalProperties"] is False
        assert all(member["description"] for member in part["properties"].values())


# -- files that are fine, and files that are not ---------------------------------------------


@pytest.mark.parametrize("corpus", ["sake", "orchard", "edge", "corners"])
def test_golden_datasets_are_valid(corpus: str) -> None:
    header, *cases = lines((GOLDEN / corpus / "eval.jsonl").read_text("utf-8"))
    HEADER.validate(json.loads(header))
    assert len(cases) >= 3
    for case in cases:
        CASE.validate(json.loads(case))


@pytest.mark.parametrize("name", ["thresholds-pass.json", "thresholds-fail.json"])
@pytest.mark.parametrize("corpus", ["sake", "orchard", "edge", "corners"])
def test_golden_thresholds_are_valid(corpus: str, name: str) -> None:
    THRESHOLDS.validate(json.loads((GOLDEN / corpus / name).read_text("utf-8")))


def refused_files() -> Iterator[tuple[str, str, str]]:
    for line in lines((GOLDEN / "refusals.jsonl").read_text("utf-8")):
        row = json.loads(line)
        for file in ("eval.jsonl", "thresholds.json"):
            if row["kind"] == {"eval.jsonl": "eval", "thresholds.json": "thresholds"}[file]:
                yield row["name"], file, row["files"][file]


def no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def schema_takes(file: str, text: str) -> bool:
    """Whether a file is JSON, and every line valid by its schema."""
    try:
        if file == "thresholds.json":
            return THRESHOLDS.is_valid(json.loads(text, parse_constant=no_constant))
        header, *cases = (
            json.loads(line.strip(WHITE_SPACE), parse_constant=no_constant) for line in lines(text)
        )
    except ValueError:
        return False  # a file without lines as well
    return HEADER.is_valid(header) and bool(cases) and all(map(CASE.is_valid, cases))


#: What a schema cannot see, of all that the reader refuses: how a number was written, repeated
#: keys, other lines or files, an order of two numbers, and what Python's parser lets pass.
BEYOND_A_SCHEMA = {
    "deep-nesting",
    "duplicate-case-id",
    "duplicate-key-in-case",
    "header-duplicate-key",
    "header-version-exp",
    "header-version-float",
    "limit-float",
    "lone-surrogate-escape",
    "paragraph-float-integral",
    "relevance-float",
    "t-duplicate-keys",
    "t-infinite",
    "t-min-over-max",
    "t-stamp-float",
    "t-unknown-case-id",
}


@pytest.mark.parametrize(
    ("name", "file", "text"), [pytest.param(*row, id=row[0]) for row in refused_files()]
)
def test_reader_and_schema_agree_on_recorded_input(
    name: str, file: str, text: str, tmp_path: Path
) -> None:
    try:
        if file == "eval.jsonl":
            parse_dataset(text.encode(), file)
        else:
            (tmp_path / file).write_bytes(text.encode())
            load_gate(tmp_path / file, file, {"c1"})
        reader = True
    except InputError:
        reader = False
    assert (schema_takes(file, text), reader) in (
        [(True, False)] if name in BEYOND_A_SCHEMA else [(True, True), (False, False)]
    )


# -- random ones -----------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NON_BLANK = TEXT.filter(lambda text: bool(text.strip(WHITE_SPACE)))
PARAGRAPH = st.integers(0, 2**32 - 1)
EPOCH = st.one_of(st.none(), st.integers(0, 2**64 - 1), st.just(2**64 - 1))


def some(**members: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    return members


CASES = st.fixed_dictionaries(
    some(case_id=NON_BLANK, query=NON_BLANK),
    optional=some(
        cues=st.lists(TEXT, max_size=2),
        expected_sources=st.lists(
            st.fixed_dictionaries(
                some(source=NON_BLANK),
                optional=some(
                    paragraphs=st.lists(PARAGRAPH, max_size=2), relevance=st.integers(0, 3)
                ),
            ),
            max_size=2,
        ),
        expected_concepts=st.lists(TEXT, max_size=2),
        expected_labels=st.none() | st.lists(NON_BLANK, max_size=2),
        expected_associations=st.none()
        | st.lists(
            st.fixed_dictionaries(some(subject=NON_BLANK, label=NON_BLANK, object=NON_BLANK)),
            max_size=2,
        ),
        expected_citations=st.none()
        | st.lists(
            st.fixed_dictionaries(
                some(source=NON_BLANK, paragraph=PARAGRAPH),
                optional=some(section=st.none() | TEXT, quote=st.none() | NON_BLANK),
            ),
            max_size=2,
        ),
        options=st.fixed_dictionaries(
            {},
            optional=some(
                limit=st.none() | st.integers(1, 1000),
                floor=st.none() | st.floats(0, 1) | st.sampled_from([0, 1, 1.00000001]),
                tags=st.none() | st.lists(TEXT, max_size=2),
                since=EPOCH,
                until=EPOCH,
            ),
        ),
    ),
)


@given(CASES)
def test_what_the_reader_takes_is_valid(case: dict[str, Any]) -> None:
    assert reader_takes(case)
    CASE.validate(case)


@given(
    st.fixed_dictionaries(
        some(taguru_eval=st.just(1)),
        optional=some(name=st.none() | TEXT, default_target=st.none() | TEXT | st.lists(TEXT)),
    )
)
def test_a_header_that_the_reader_takes_is_valid(header: dict[str, Any]) -> None:
    text = json.dumps(header) + '\n{"case_id": "c", "query": "q"}'
    assert parse_dataset(text.encode(), "eval.jsonl").header.name == header.get("name")
    HEADER.validate(header)


#: Values to put in the place of others. No float without a fraction: the reader refuses `1.0`
#: where an integer is due, which a schema takes for one.
INTRUDERS = st.one_of(
    st.none(),
    st.booleans(),
    TEXT,
    st.sampled_from(["", " ", "\u3000", "\x1c", "\x85"]),
    st.integers(-(2**65), 2**65),
    st.sampled_from([-1, 0, 1, 3, 4, 1000, 1001, 2**32 - 1, 2**32, 2**64 - 1, 2**64]),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda value: value % 1 != 0),
    st.lists(st.integers(0, 3) | TEXT, max_size=2),
    st.dictionaries(TEXT, st.integers(0, 3), max_size=1),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value but its root."""
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for key, member in members:
        yield (*path, key)
        if isinstance(member, dict | list):
            yield from places(member, (*path, key))


def mutated(value: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """A copy with one member replaced, removed or added."""
    value = copy.deepcopy(value)
    *way, last = draw(st.sampled_from(list(places(value))))
    holder = value
    for key in way:
        holder = holder[key]
    match draw(st.sampled_from(["replace", "replace", "remove", "add"])):
        case "replace":
            holder[last] = draw(INTRUDERS)
        case "remove":
            del holder[last]
        case "add" if isinstance(holder, dict):
            holder[draw(NON_BLANK)] = draw(INTRUDERS)
        case "add":
            holder.append(draw(INTRUDERS))
    return value


@given(CASES, st.data())
def test_reader_and_schema_agree_on_changed_cases(
    case: dict[str, Any], data: st.DataObject
) -> None:
    changed = mutated(case, data.draw)
    assert CASE.is_valid(changed) is reader_takes(changed)


FULL_CASE = {
    "case_id": "c",
    "query": "q",
    "cues": ["a"],
    "expected_sources": [{"source": "s", "paragraphs": [0], "relevance": 3}],
    "expected_concepts": ["a"],
    "expected_labels": ["a"],
    "expected_associations": [{"subject": "a", "label": "b", "object": "c"}],
    "expected_citations": [{"source": "s", "paragraph": 0, "section": "x", "quote": "y"}],
    "options": {"limit": 1, "floor": 0.5, "tags": ["t"], "since": 0, "until": 1},
}


@pytest.mark.parametrize(
    ("place", "intruder"),
    [
        (("case_id",), " "),
        (("case_id",), None),
        (("query",), 1),
        (("cues",), None),
        (("cues", 0), None),
        (("expected_sources",), None),
        (("expected_sources", 0), []),
        (("expected_sources", 0, "source"), "\u3000"),
        (("expected_sources", 0, "paragraphs"), None),
        (("expected_sources", 0, "paragraphs", 0), -1),
        (("expected_sources", 0, "paragraphs", 0), 2**32),
        (("expected_sources", 0, "paragraphs", 0), True),
        (("expected_sources", 0, "relevance"), 4),
        (("expected_sources", 0, "relevance"), None),
        (("expected_concepts",), None),
        (("expected_labels", 0), ""),
        (("expected_associations", 0, "object"), " "),
        (("expected_associations", 0), ["a", "b", "c"]),
        (("expected_citations", 0, "paragraph"), None),
        (("expected_citations", 0, "paragraph"), 0.5),
        (("expected_citations", 0, "section"), 1),
        (("expected_citations", 0, "quote"), "\n"),
        (("options",), None),
        (("options",), []),
        (("options", "limit"), 0),
        (("options", "limit"), 1001),
        (("options", "limit"), "5"),
        (("options", "floor"), 1.1),
        (("options", "floor"), -0.1),
        (("options", "tags"), "t"),
        (("options", "tags", 0), 1),
        (("options", "since"), 2**64),
        (("options", "until"), -1),
        (("extra",), 1),
        (("expected_sources", 0, "extra"), 1),
        (("expected_associations", 0, "extra"), 1),
        (("expected_citations", 0, "extra"), 1),
        (("options", "extra"), 1),
    ],
)
def test_both_refuse(place: tuple[Any, ...], intruder: Any) -> None:
    assert CASE.is_valid(FULL_CASE)
    assert reader_takes(FULL_CASE)
    case: Any = copy.deepcopy(FULL_CASE)
    holder = case
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = intruder
    assert not CASE.is_valid(case)
    assert not reader_takes(case)


@pytest.mark.parametrize(
    "missing",
    [
        ("case_id",),
        ("query",),
        ("expected_sources", 0, "source"),
        ("expected_associations", 0, "subject"),
        ("expected_associations", 0, "label"),
        ("expected_associations", 0, "object"),
        ("expected_citations", 0, "source"),
        ("expected_citations", 0, "paragraph"),
    ],
)
def test_both_miss(missing: tuple[Any, ...]) -> None:
    case: Any = copy.deepcopy(FULL_CASE)
    holder = case
    for key in missing[:-1]:
        holder = holder[key]
    del holder[missing[-1]]
    assert not CASE.is_valid(case)
    assert not reader_takes(case)


# -- thresholds ------------------------------------------------------------------------------

FULL_THRESHOLDS = {
    "taguru_evaluate_thresholds": 1,
    "aggregate": {"recall.mrr": {"min": 0.5}, "rerank.ran": {"max": 1, "min": None}},
    "cases": {
        "default": {"recall.ndcg": {"min": 0, "max": 1}},
        "overrides": {"c1": {"diversity.sources": {"max": 5}}},
    },
    "allow_unstable_corpus": True,
}


@given(data=st.data())
def test_reader_and_schema_agree_on_changed_thresholds(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    changed = mutated(FULL_THRESHOLDS, data.draw)
    file = tmp_path_factory.getbasetemp() / "changed-thresholds.json"
    reader = gate_reader_takes(changed, file)
    if is_beyond_a_schema(changed):
        assert not reader
    else:
        assert THRESHOLDS.is_valid(changed) is reader


def is_beyond_a_schema(thresholds: Any) -> bool:
    """Whether a minimum is over its maximum, or an override is for a case that is not there."""
    match thresholds:
        case {"min": float() | int() as low, "max": float() | int() as high} if low > high:
            return True
        case {"overrides": dict(overrides)} if overrides.keys() - {"c1", "c2"}:
            return True
        case dict():
            return any(map(is_beyond_a_schema, thresholds.values()))
    return False


@pytest.mark.parametrize(
    "members",
    [
        {"aggregate": {"recall.mrr": {}}},
        {"aggregate": {"recall.mrr": {"min": None}}},
        {"aggregate": {"recall.mrr": {"min": None, "max": None}}},
        {"aggregate": {"recall.mrr": {"min": "0"}}},
        {"aggregate": {"recall.mrr": {"min": True}}},
        {"aggregate": {"recall.mrr": {"least": 0}}},
        {"aggregate": {"recall.mrr": 0.5}},
        {"aggregate": {"recall.map": {"min": 0}}},
        {"aggregate": None},
        {"cases": None},
        {"cases": {"default": {"rerank.ran": {"min": 0}}}},
        {"cases": {"default": None}},
        {"cases": {"overrides": {"c1": {"budget.items_used": {"min": 0}}}}},
        {"cases": {"overrides": {"c1": None}}},
        {"cases": {"defaults": {}}},
        {"allow_unstable_corpus": 1},
        {"allow_unstable_corpus": None},
        {"extra": {}},
        {"taguru_evaluate_thresholds": 2},
        {"taguru_evaluate_thresholds": "1"},
    ],
)
def test_both_refuse_thresholds(members: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "thresholds.json"
    assert THRESHOLDS.is_valid(FULL_THRESHOLDS)
    assert gate_reader_takes(FULL_THRESHOLDS, file)
    thresholds = {"taguru_evaluate_thresholds": 1, **members}
    assert not THRESHOLDS.is_valid(thresholds)
    assert not gate_reader_takes(thresholds, file)
