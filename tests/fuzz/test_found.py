"""What fuzzing found, one small test for each; values are those of the original program."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import requests

from pytest_taguru.engine.client import readable, segment
from pytest_taguru.engine.dataset import parse_dataset
from pytest_taguru.engine.errors import InputError
from pytest_taguru.engine.http import new_session

if TYPE_CHECKING:
    from tests.support.runs import Workspace


def test_messages_escape_only_what_a_path_must_not_hold() -> None:
    # Every printable ASCII character that names may hold, as the original's messages have it.
    name = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ é\0\x7f"
    assert readable(f"/contexts/{segment(name)}/citations") == (
        "/contexts/!%22%23$%25&'()*+,-.%2F:;%3C=%3E%3F@[%5C]^_%60%7B|%7D~%20%C3%A9%00%7F/citations"
    )


def test_messages_leave_a_query_as_it_was_sent() -> None:
    route = "/contexts/a%26b/sources?limit=1000&after=c%26d"
    assert readable(route) == "/contexts/a&b/sources?limit=1000&after=c%26d"


def problems(*members: str, header: str = "") -> tuple[str, ...]:
    """What is wrong with a dataset of one case that has these members."""
    case = ",".join(['"case_id": "c"', '"query": "q"', *members])
    text = f'{{"taguru_eval": 1{header}}}\n{{{case}}}\n'
    with pytest.raises(InputError) as caught:
        parse_dataset(text.encode(), "eval.jsonl")
    return caught.value.problems


@pytest.mark.parametrize(
    ("member", "path"),
    [
        ('"options": {"since": -0}', "options.since"),
        ('"options": {"limit": -0}', "options.limit"),
        ('"expected_sources": [{"source": "s", "relevance": -0}]', "expected_sources[0].relevance"),
        (
            '"expected_sources": [{"source": "s", "paragraphs": [1, -0]}]',
            "expected_sources[0].paragraphs[1]",
        ),
        (
            '"expected_citations": [{"source": "s", "paragraph": -0}]',
            "expected_citations[0].paragraph",
        ),
    ],
)
def test_minus_zero_is_no_integer(member: str, path: str) -> None:
    (problem,) = problems(member)
    assert problem.startswith(f"eval.jsonl: line 2: case 'c': {path}: expected an integer")
    assert problem.endswith("got -0.0")


def test_minus_zero_is_a_number() -> None:
    text = b'{"taguru_eval": 1}\n{"case_id": "-0", "query": "-0", "options": {"floor": -0}}\n'
    assert parse_dataset(text, "eval.jsonl").cases[0].options.floor == 0


def test_an_integer_too_long_for_a_number_is_refused_even_where_anything_goes() -> None:
    digits = "1" * 400
    (problem,) = problems(header=f', "default_target": {{"port": [{digits}]}}')
    assert problem == "eval.jsonl: line 1: a number is out of range"
    longest = "1" + "0" * 308  # 1e308 is a number
    text = f'{{"taguru_eval": 1, "default_target": {longest}}}\n{{"case_id": "c", "query": "q"}}'
    assert len(parse_dataset(text.encode(), "eval.jsonl").cases) == 1


def test_an_absurd_concurrency_does_not_fill_the_memory() -> None:
    # The pool of requests holds a place for each connection from its first use on.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with new_session(2**64 - 1) as session, pytest.raises(requests.ConnectionError):
        session.get(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    ("ceiling", "status"), [("18446744073709551615", 0), ("18446744073709551616", 2), ("0", 2)]
)
def test_ceilings_are_64_bits_wide(workspace: Workspace, ceiling: str, status: int) -> None:
    workspace.dataset({"case_id": "c", "query": "q"})
    run = workspace.evaluate(
        "http://127.0.0.1:9", "--collect-only", f"--taguru-max-tokens={ceiling}"
    )
    assert run.status == status, run.shown
