"""What fuzzing found, one small test for each; values are those of the original program."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import requests

from pytest_taguru.compare import main as compare_main
from pytest_taguru.engine.client import readable, segment
from pytest_taguru.engine.connections import new_session
from pytest_taguru.engine.dataset import parse_dataset
from pytest_taguru.engine.errors import InputError
from tests.support.live import LiveServer, find_binary
from tests.support.replay_server import Recording, replay
from tests.support.runs import GOLDEN

if TYPE_CHECKING:
    from tests.support.runs import Workspace

    from .both import Arena


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


# -- differences that stay: see docs/compatibility.md ------------------------------------------


@pytest.mark.live
def test_a_bound_is_the_number_that_it_says(workspace: Workspace, bare: Arena) -> None:
    # One found of eleven is 0.09090909090909091. The original reads these digits as the next
    # larger number, so that a run violates a bound that was copied from its own artifact.
    bare.server.call("PUT", "/contexts/elevenths", {"description": "one edge"})
    edge = {"subject": "a", "label": "l", "object": "b", "weight": 1.0}
    bare.server.call("POST", "/contexts/elevenths/associations", [edge])
    names = ["a", *(f"missing {number}" for number in range(10))]
    workspace.dataset({"case_id": "c", "query": "q", "cues": ["a"], "expected_concepts": names})
    bound = {"coverage.concepts": {"min": 1 / 11, "max": 1 / 11}}
    workspace.thresholds(cases={"default": bound})
    gated = ["--thresholds", "thresholds.json"]
    original = bare.server.evaluate(workspace.directory, "elevenths", gated)
    assert original.status == 3
    (violation,) = original.artifact("original.json")["thresholds"]["violations"]
    assert violation["reason"] == "0.090909 < min 0.090909"
    run = workspace.evaluate(
        bare.server.url, "--taguru-thresholds=thresholds.json", context="elevenths"
    )
    assert run.status == 0, run.shown
    assert run.artifact()["metrics"]["coverage.concepts"]["mean"] == 1 / 11


@pytest.mark.live
@pytest.mark.parametrize(("digits", "status"), [("085", 0), ("086", 2)])
def test_a_floor_is_the_number_that_it_says(
    workspace: Workspace, bare: Arena, digits: str, status: int
) -> None:
    # Both are -(2 ** -150), which a 32-bit float rounds to 0. The original reads the second as
    # the next number below, and refuses it.
    floor = f"-7.006492321624{digits}e-46"
    assert float(floor) == -(2.0**-150)
    case = f'{{"case_id": "c", "query": "q", "options": {{"floor": {floor}}}}}'
    workspace.write("eval.jsonl", f'{{"taguru_eval": 1}}\n{case}\n')
    context = f"edge{digits}"
    bare.server.call("PUT", f"/contexts/{context}", {"description": "here"})
    original = bare.server.evaluate(workspace.directory, context, [])
    assert original.status == status, original.shown
    run = workspace.evaluate(bare.server.url, context=context)
    assert run.status == 0, run.shown


@pytest.mark.live
@pytest.mark.parametrize("answer", [{}, {"provider_model": 5}, ["m"], None])
def test_a_model_that_cannot_be_read_is_not_known(workspace: Workspace, answer: Any) -> None:
    # The original says that there is none.
    workspace.corpus("sake")
    recorded = GOLDEN / "sake" / "runs" / "baseline" / "exchanges.jsonl"
    exchanges = [json.loads(line) for line in recorded.read_text("utf-8").split("\n") if line]
    (asked,) = (one for one in exchanges if one["path"].endswith("/embeddings"))
    asked["response"] = json.dumps({"result": answer, "status": "ok"})
    with replay(Recording(exchanges)) as server:
        original = LiveServer(find_binary(), providers=False)
        original.url = server.url
        ended = original.evaluate(workspace.directory, "sake", [])
        run = workspace.evaluate(server.url)
    assert ended.status == 0, ended.shown
    assert ended.artifact("original.json")["corpus"]["embeddings"] == {"provider_model": None}
    assert run.status == 0, run.shown
    assert "embeddings" not in run.artifact()["corpus"]
    assert "note: the embedding model is not known: " in run.stdout


@pytest.mark.live
@pytest.mark.parametrize("name", ["line\nend", "tab\tstop", "carriage\rreturn"])
def test_tabs_and_line_ends_belong_to_a_name(workspace: Workspace, bare: Arena, name: str) -> None:
    # The original drops them on the way into the URL and asks for another context.
    bare.server.call("PUT", f"/contexts/{quote(name)}", {"description": "here"})
    workspace.dataset({"case_id": "c", "query": "q"})
    assert bare.server.evaluate(workspace.directory, name, []).status == 2
    run = workspace.evaluate(bare.server.url, context=name)
    assert run.status == 0, run.shown
    assert run.artifact()["inputs"]["context"] == name


@pytest.mark.parametrize(
    "member",
    # How deep is too deep depends on the release of Python: some take 5,000 levels.
    [pytest.param('"\\ud800"', id="half"), pytest.param("[" * 99999 + "]" * 99999, id="deep")],
)
def test_an_artifact_is_json_to_its_end(
    workspace: Workspace, capsys: pytest.CaptureFixture[str], member: str
) -> None:
    # The original does not look into members that it passes over, and takes both.
    base = workspace.write("base.json", f'{{"taguru_evaluation": 1, "extensions": {member}}}')
    head = workspace.write("head.json", json.dumps({"taguru_evaluation": 1}))
    out = workspace.directory / "changes.jsonl"
    assert compare_main([str(base), str(head), "--out", str(out)]) == 2
    assert "BASE" in capsys.readouterr().err
    assert not out.exists()


def test_a_repeated_key_of_an_artifact_counts_once(workspace: Workspace) -> None:
    # The original refuses it: "duplicate field". Neither program writes such an artifact.
    base = workspace.write("base.json", '{"taguru_evaluation": 2, "taguru_evaluation": 1}')
    head = workspace.write("head.json", json.dumps({"taguru_evaluation": 1}))
    out = workspace.directory / "changes.jsonl"
    assert compare_main([str(base), str(head), "--out", str(out)]) == 0
