"""eval.jsonl: what is taken, what is refused, and how a problem is named."""

from __future__ import annotations

import json
from math import inf, nextafter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from pytest_taguru.engine.budget import float32
from pytest_taguru.engine.dataset import Dataset, ExpectedSource, load_dataset, parse_dataset
from pytest_taguru.engine.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

HEADER = '{"taguru_eval": 1}'
CASE = '{"case_id": "c1", "query": "q"}'


def read(*lines: str) -> Dataset:
    return parse_dataset("\n".join(lines).encode("utf-8"), "some/eval.jsonl")


def problems(*lines: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        read(*lines)
    assert caught.value.status == 2
    return caught.value.problems


def only_case(**members: Any) -> Any:
    return read(HEADER, json.dumps({"case_id": "c1", "query": "q", **members})).cases[0]


def refusal(**members: Any) -> str:
    """The one complaint about a case, past the place that it must name."""
    line = json.dumps({"case_id": "c1", "query": "q", **members})
    (problem,) = problems(HEADER, "", line)
    start = "some/eval.jsonl: line 3: case 'c1': "
    assert problem.startswith(start)
    return problem.removeprefix(start)


# -- what is taken ---------------------------------------------------------------------------


def test_the_least_case() -> None:
    case = only_case()
    assert (case.case_id, case.query, case.cues) == ("c1", "q", [])
    assert case.limit == 10
    assert case.effective_cues == ["q"]
    assert case.relevant_sources == []
    assert not case.is_structural
    assert case.expected_labels is None
    assert case.expected_associations is None
    assert case.expected_citations is None
    assert (case.options.floor, case.options.tags) == (None, None)
    assert (case.options.since, case.options.until) == (None, None)


def test_a_full_case() -> None:
    case = only_case(
        cues=["a", "", " "],
        expected_sources=[
            {"source": "s"},
            {"source": "t", "paragraphs": [0, 4294967295], "relevance": 0},
            {"source": "u", "relevance": 3},
        ],
        expected_concepts=["", "x"],
        expected_labels=["y"],
        expected_associations=[{"subject": "a", "label": "b", "object": "c"}],
        expected_citations=[{"source": "s", "paragraph": 4294967295, "quote": None}],
        options={"limit": 1000, "floor": 0, "tags": [], "since": 0, "until": 2**64 - 1},
    )
    assert case.effective_cues == ["a", "", " "]
    assert [(s.source, s.paragraphs, s.relevance) for s in case.expected_sources] == [
        ("s", [], 1),
        ("t", [0, 4294967295], 0),
        ("u", [], 3),
    ]
    assert [s.source for s in case.relevant_sources] == ["s", "u"]
    assert case.is_structural
    assert case.limit == 1000
    assert case.options.floor == 0
    assert case.options.until == 18446744073709551615


@pytest.mark.parametrize(
    ("declared", "section"), [({}, UNSET), ({"section": None}, None), ({"section": ""}, "")]
)
def test_a_section_has_three_states(declared: dict[str, Any], section: Any) -> None:
    case = only_case(expected_citations=[{"source": "s", "paragraph": 0, **declared}])
    assert case.expected_citations[0].section is section or (
        case.expected_citations[0].section == section == ""
    )


@pytest.mark.parametrize(
    ("members", "structural"),
    [
        ({}, False),
        ({"expected_concepts": []}, False),
        ({"expected_labels": [], "expected_associations": []}, False),
        ({"expected_labels": None, "expected_associations": None}, False),
        ({"cues": ["a"]}, False),
        ({"expected_citations": [{"source": "s", "paragraph": 0}]}, False),
        ({"expected_concepts": [""]}, True),
        ({"expected_labels": ["a"]}, True),
    ],
)
def test_when_a_case_is_structural(members: dict[str, Any], structural: bool) -> None:
    assert only_case(**members).is_structural is structural


@pytest.mark.parametrize("floor", [0, 1, 0.0, 1.0, 0.5, -0.0, 1.00000001, -1e-46, 5e-324])
def test_floors_that_are_from_0_to_1_as_32_bit_floats(floor: float) -> None:
    assert only_case(options={"floor": floor}).options.floor == floor


@pytest.mark.parametrize("edge", [-(2.0**-150), 1 + 2.0**-24])
def test_a_floor_half_a_unit_outside_still_rounds_inside(edge: float) -> None:
    assert float32(edge) in (0, 1)
    assert only_case(options={"floor": edge}).options.floor == edge
    outside = nextafter(edge, inf if edge > 1 else -inf)
    assert float32(outside) not in (0, 1)
    assert refusal(options={"floor": outside}).startswith("options.floor: ")


@pytest.mark.parametrize("floor", [1.0000001, -1e-45, 1.1, -0.1, 2, -1])
def test_floors_that_are_not(floor: float) -> None:
    assert refusal(options={"floor": floor}).startswith("options.floor: ")


def test_lines_count_from_1_with_those_that_are_skipped() -> None:
    dataset = read(
        "", "\t", HEADER, " \u3000\u00a0\u2028", CASE, "\f", '{"case_id":"c2","query":"q"}'
    )
    assert dataset.lines == (5, 7)
    assert [case.case_id for case in dataset.cases] == ["c1", "c2"]
    assert dataset.path == "some/eval.jsonl"


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\v", "\x1c"])
def test_only_a_line_feed_ends_a_line(separator: str) -> None:
    text = f'{HEADER}\n{{"case_id": "c1", "query": "a{separator}b"}}\n'
    if separator in "\v\x1c":  # raw control characters are refused, but as one line
        with pytest.raises(InputError) as caught:
            parse_dataset(text.encode(), "e")
        assert [p.split(": ")[1] for p in caught.value.problems] == ["line 2"]
    else:
        assert parse_dataset(text.encode(), "e").cases[0].query == f"a{separator}b"


def test_a_carriage_return_before_the_line_feed_is_white_space() -> None:
    assert parse_dataset(f"{HEADER}\r\n{CASE}\r\n\r\n".encode(), "e").lines == (2,)


def test_case_ids_are_compared_exactly() -> None:
    ids = ["a", "A", " a", "a ", "é", "e\u0301"]
    lines = [json.dumps({"case_id": case_id, "query": "q"}) for case_id in ids]
    assert [case.case_id for case in read(HEADER, *lines).cases] == ids


@pytest.mark.parametrize(
    ("target", "context"),
    [
        ('{"context": "sake"}', "sake"),
        ('{"context": " sake "}', " sake "),
        ('{"context": "\\u3000"}', None),
        ('{"context": null}', None),
        ('{"context": ["sake"]}', None),
        ('"sake"', None),
        ("null", None),
        ("[]", None),
    ],
)
def test_the_context_of_the_header(target: str, context: str | None) -> None:
    header = read(f'{{"taguru_eval": 1, "default_target": {target}}}', CASE).header
    assert header.default_context == context


def test_a_source_matches_its_paragraphs() -> None:
    whole = ExpectedSource(source="s")
    part = ExpectedSource(source="s", paragraphs=[0, 2])
    assert [whole.matches("s", n) for n in (0, 9, None)] == [True, True, True]
    assert [part.matches("s", n) for n in (0, 1, 2, None)] == [True, False, True, False]
    assert not whole.matches("S", 0)


# -- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"query": "\u3000"}, "query"),
        ({"query": None}, "query"),
        ({"cues": None}, "cues"),
        ({"cues": ["a", 1]}, "cues[1]"),
        ({"cues": {}}, "cues"),
        ({"expected_sources": None}, "expected_sources"),
        ({"expected_sources": ["s"]}, "expected_sources[0]"),
        ({"expected_sources": [{}]}, "expected_sources[0].source"),
        ({"expected_sources": [{"source": ""}]}, "expected_sources[0].source"),
        (
            {"expected_sources": [{"source": "s"}, {"source": "s", "relevance": 4}]},
            "expected_sources[1].relevance",
        ),
        (
            {"expected_sources": [{"source": "s", "paragraphs": [0, 2**32]}]},
            "expected_sources[0].paragraphs[1]",
        ),
        (
            {"expected_sources": [{"source": "s", "paragraphs": None}]},
            "expected_sources[0].paragraphs",
        ),
        ({"expected_concepts": None}, "expected_concepts"),
        ({"expected_labels": ["a", " "]}, "expected_labels[1]"),
        (
            {"expected_associations": [{"subject": "a", "object": "b"}]},
            "expected_associations[0].label",
        ),
        ({"expected_associations": [["a", "l", "b"]]}, "expected_associations[0]"),
        (
            {"expected_citations": [{"source": "s", "paragraph": True}]},
            "expected_citations[0].paragraph",
        ),
        (
            {"expected_citations": [{"source": "s", "paragraph": 1.0}]},
            "expected_citations[0].paragraph",
        ),
        (
            {"expected_citations": [{"source": "s", "paragraph": 0, "section": 1}]},
            "expected_citations[0].section",
        ),
        (
            {"expected_citations": [{"source": "s", "paragraph": 0, "quote": ""}]},
            "expected_citations[0].quote",
        ),
        ({"options": None}, "options"),
        ({"options": []}, "options"),
        ({"options": {"limit": 0}}, "options.limit"),
        ({"options": {"limit": 1001}}, "options.limit"),
        ({"options": {"limit": 10.0}}, "options.limit"),
        ({"options": {"tags": [None]}}, "options.tags[0]"),
        ({"options": {"since": -1}}, "options.since"),
        ({"options": {"until": 2**64}}, "options.until"),
        ({"options": {"until": 10**40}}, "options.until"),
        ({"options": {"sources": []}}, "options.sources"),
        ({"expected_sorces": []}, "expected_sorces"),
    ],
)
def test_a_refusal_names_the_path(members: dict[str, Any], path: str) -> None:
    assert refusal(**members).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"query": "q"}', ("line 2", "case_id")),
        ('{"case_id": " ", "query": "q"}', ("line 2", "case_id")),
        ('{"case_id": 7, "query": "q"}', ("line 2", "case_id")),
        ('{"case_id": "c9"}', ("line 2", "'c9'", "query")),
        ("[]", ("line 2",)),
        ("null", ("line 2",)),
        ('"case"', ("line 2",)),
        ('{"case_id": "a", "query": "q"} {}', ("line 2",)),
        ('{"case_id": "a", "query": "\\udc00"}', ("line 2",)),
        ('{"case_id": "a", "query": "q", "options": {"floor": Infinity}}', ("line 2",)),
        ('{"case_id": "a", "query": "q", "options": {"floor": 1e999}}', ("line 2",)),
        ('{"case_id": "a", "query": "q", /* c */ "cues": []}', ("line 2",)),
        ('{"case_id": "a", "query": "q", "options": {"limit": 3, "limit": 4}}', ("'a'", "limit")),
    ],
)
def test_a_line_that_is_no_case(line: str, named: tuple[str, ...]) -> None:
    (problem,) = problems(HEADER, line)
    assert problem.startswith("some/eval.jsonl: ")
    assert all(name in problem for name in named), problem


@pytest.mark.parametrize(
    "header",
    [
        "{}",
        '{"taguru_eval": 2}',
        '{"taguru_eval": 1.0}',
        '{"taguru_eval": true}',
        '{"taguru_eval": "1"}',
        '{"taguru_eval": null}',
        '{"taguru_eval": 1, "name": 3}',
        '{"taguru_eval": 1, "nam": "x"}',
        '{"taguru_eval": 1, "taguru_eval": 1}',
        '{"taguru_eval": 1, "default_target": {"a": 1, "a": 2}}',
        "[1]",
        "{oops",
    ],
)
def test_a_line_that_is_no_header(header: str) -> None:
    (problem,) = problems(header, CASE)
    assert problem.startswith("some/eval.jsonl: line 1: ")


def test_a_byte_order_mark_is_refused() -> None:
    (problem,) = problems("\ufeff" + HEADER, CASE)
    assert "line 1" in problem


def test_bytes_that_are_not_utf_8() -> None:
    with pytest.raises(InputError) as caught:
        parse_dataset(HEADER.encode() + b"\n\xff\n" + CASE.encode() + b"\n\xc3(\n", "e")
    assert caught.value.problems == ("e: line 2: not UTF-8", "e: line 4: not UTF-8")


@pytest.mark.parametrize(
    ("lines", "word"), [([""], "empty"), (["\n\n", " "], "empty"), ([HEADER, " "], "no case")]
)
def test_a_file_without_cases(lines: list[str], word: str) -> None:
    (problem,) = problems(*lines)
    assert problem.startswith("some/eval.jsonl: ")
    assert word in problem


@pytest.mark.parametrize(("depth", "taken"), [(125, True), (126, True), (127, False)])
def test_nesting_is_at_most_127_deep(depth: int, taken: bool) -> None:
    """The object of the header is one level itself."""
    header = f'{{"taguru_eval": 1, "default_target": {"[" * depth}{"]" * depth}}}'
    if taken:
        assert len(read(header, CASE).cases) == 1
    else:
        assert "127" in problems(header, CASE)[0]


def test_brackets_in_strings_do_not_nest() -> None:
    query = "[{" * 200 + '"'
    assert only_case(query=query).query == query


def test_a_repeated_id_names_the_line_of_the_first() -> None:
    again = '{"case_id": "c1", "query": "other"}'
    assert problems(HEADER, CASE, "", again, again) == (
        "some/eval.jsonl: line 4: case 'c1': case_id: already used in line 2",
        "some/eval.jsonl: line 5: case 'c1': case_id: already used in line 2",
    )


def test_a_message_holds_no_long_value() -> None:
    secret = "x" * 5000
    found = problems(HEADER, json.dumps({"case_id": "c1", "query": "q", "options": secret}))
    assert len(found) == 1
    assert len(found[0]) < 300


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^shown/eval\.jsonl: cannot be read: No such file"):
        load_dataset(tmp_path / "eval.jsonl", "shown/eval.jsonl")
    with pytest.raises(InputError, match=r"^here: cannot be read: Is a directory"):
        load_dataset(tmp_path, "here")


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(header: bytes, case: bytes) -> None:
    """No other exception, whatever a file holds."""
    for content in (header, HEADER.encode() + b"\n" + case, b'{"taguru_eval":' + case):
        found: tuple[str, ...] = ()
        try:
            assert parse_dataset(content, "e").cases
        except InputError as error:
            found = error.problems
        assert all(problem.startswith("e: ") for problem in found)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=3), st.lists))
def test_any_default_target_is_free(target: Any) -> None:
    try:
        text = json.dumps(target, allow_nan=False)
        text.encode("utf-8")
    except ValueError:
        return
    header = f'{{"taguru_eval": 1, "default_target": {text}}}'
    if "\\ud" in text:  # a lone surrogate, which strict JSON does not have
        return
    assert read(header, CASE).header.default_target == target
