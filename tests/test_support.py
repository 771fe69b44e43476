"""The tools of the tests can fail: the comparison sees what is planted, the servers do as told."""

from __future__ import annotations

import copy
import json
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.support import live
from tests.support.artifact_diff import differences
from tests.support.fake_taguru import FakeTaguru
from tests.support.replay_server import Answer, LoopbackServer, Recording, Request, replay
from tests.support.runs import (
    GOLDEN,
    PROJECT,
    clean_environment,
    plugin_flags,
    run_in_subprocess,
)

if TYPE_CHECKING:
    from pathlib import Path

RUN = GOLDEN / "sake" / "runs" / "thresholds-fail"


@pytest.fixture
def artifact() -> Any:
    return json.loads((RUN / "evaluation.json").read_text("utf-8"))


# -- the comparison --------------------------------------------------------------------------


def changed(value: Any, *place: Any, to: Any) -> Any:
    value = copy.deepcopy(value)
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    if to is KeyError:
        del holder[place[-1]]
    else:
        holder[place[-1]] = to
    return value


def test_every_golden_artifact_is_like_itself() -> None:
    files = list(GOLDEN.glob("*/**/evaluation.json"))
    assert len(files) >= 67
    for file in files:
        loaded = json.loads(file.read_text("utf-8"))
        assert differences(loaded, copy.deepcopy(loaded)) == []


@pytest.mark.parametrize(
    ("place", "to"),
    [
        (("generated_at",), "2020-02-02T02:02:02Z"),
        (("inputs", "url"), "http://[::1]:1"),
        (("inputs", "out"), "elsewhere.json"),
        (("inputs", "eval", "path"), "../eval.jsonl"),
        (("inputs", "concurrency"), 8),
        (("inputs", "selection"), {"selected": 1, "total": 12}),
        (("inputs", "server_version"), "0.9.7"),
        (("extensions",), {"any": "thing"}),
        (("strict",), {}),
        (("baseline",), {}),
        (("corpus", "last_write_epoch_after"), 1),
        (("cases", 0, "passage", "latency_ms"), 77),
        (("metrics", "latency.resolve_ms", "mean"), 77.5),
        (("metrics", "recall.mrr", "mean"), 0.66666666666666663),
        (("definitions", "recall.mrr", "description"), "other words"),
        (("definitions", "recall.mrr", "caveat"), None),
    ],
)
def test_differences_that_are_none(place: tuple[Any, ...], to: Any, artifact: Any) -> None:
    if place == ("metrics", "recall.mrr", "mean"):
        to = artifact["metrics"]["recall.mrr"]["mean"] + 1e-14
    assert differences(artifact, changed(artifact, *place, to=to)) == []


@pytest.mark.parametrize(
    ("place", "to"),
    [
        (("taguru_evaluation",), 2),
        (("generated_at",), None),
        (("inputs", "mode"), "assembly"),
        (("inputs", "budget"), {}),
        (("inputs", "url"), None),
        (("corpus", "stable"), False),
        (("corpus", "stable"), 1),
        (("corpus", "embeddings"), KeyError),
        (("corpus", "sources_count"), 9.5),
        (("thresholds",), None),
        (("thresholds", "sha256"), "0" * 64),
        (("thresholds", "violations", 0, "reason"), "other words"),
        (("thresholds", "violations", 0), KeyError),
        (("cases", 0), KeyError),
        (("cases", 0, "query"), "another"),
        (("cases", 0, "added"), 1),
        (("cases", 0, "passage", "latency_ms"), "1"),
        (("cases", 0, "passage", "latency_ms"), KeyError),
        (("cases", 0, "passage", "hits", 0, "score"), 3.0617567),
        (("cases", 0, "passage", "hits", 0, "lanes", "bm25", "rank"), 2),
        (("cases", 0, "missed", 0), "other words"),
        (("metrics", "latency.resolve_ms", "n"), 1),
        (("metrics", "recall.mrr", "mean"), 0.1),
        (("metrics", "recall.mrr", "mean"), None),
        (("definitions", "recall.mrr", "unit"), "ms"),
        (("definitions", "recall.mrr", "scopes"), ["run"]),
    ],
)
def test_differences_that_are_seen(place: tuple[Any, ...], to: Any, artifact: Any) -> None:
    found = differences(artifact, changed(artifact, *place, to=to))
    assert found
    assert str(place[0]) in found[0]


def test_another_order_of_keys_is_seen(artifact: Any) -> None:
    turned = dict(reversed(artifact.items()))
    assert any("order" in line for line in differences(artifact, turned))
    cases = changed(artifact, "cases", to=artifact["cases"][::-1])
    assert differences(artifact, cases)


URL = "http://127.0.0.1:8248/contexts/sake/query"


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (f"{URL} answered 503: busy", "http://127.0.0.1:50000/contexts/sake/query {}", False),
        (f"{URL} answered 503: busy", f"{URL} answered 503: busy", True),
        (f"{URL} answered 503: busy", f"{URL} answered 503: idle", False),
        (f"{URL} answered 503: busy", f"{URL} answered 500: busy", False),
        (f"{URL} answered 503: busy", f"{URL}/more answered 503: busy", False),
        (
            f"{URL} answered 503: busy",
            "http://127.0.0.1:50000/contexts/sake/query answered 503: busy",
            True,
        ),
        (f"{URL}: io: Peer disconnected", f"{URL}: connection closed", True),
        (f"{URL}: io: Peer disconnected", "", False),
        (f"{URL}: io: Peer disconnected", None, False),
        (f"{URL}: io: Peer disconnected", "x" * 203, True),
        (f"{URL}: io: Peer disconnected", "x" * 204, False),
    ],
)
def test_failure_messages(expected: str, actual: str | None, *, same: bool) -> None:
    assert (differences({"message": expected}, {"message": actual}) == []) is same


def test_a_message_is_cut_for_the_address_it_names() -> None:
    full = "http://127.0.0.1:8248/x answered 500: " + "杜" * 60
    short = full.encode()[:200].decode(errors="ignore") + "…"
    longer = full.replace(":8248", ":50000")
    ours = longer.encode()[:200].decode(errors="ignore") + "…"
    assert differences({"message": short}, {"message": ours}) == []
    assert differences({"message": short}, {"message": ours.replace("杜…", "…")})
    assert differences({"message": short}, {"message": longer[:100]})


def test_lines_of_changes() -> None:
    header = {"kind": "header", "metrics": [], "warnings": ["one", "two"]}
    assert differences([header], [{**header, "warnings": ["eins", "zwei"]}]) == []
    assert differences([header], [{**header, "statistics": {}}]) == []
    assert differences([header], [{**header, "warnings": ["eins"]}])
    latency = {"metric": "latency.passage_ms", "sides": {"base": 1.0, "head": 2.0}}
    assert differences([latency], [{**latency, "delta": 9}]) == []
    assert differences([header], [header, header])


# -- the servers -----------------------------------------------------------------------------


def exchange(response: str, **members: Any) -> dict[str, Any]:
    plain = {"method": "POST", "path": "/a", "request": {"x": 1, "y": 2}, "status": 200}
    return {**plain, "response": response, **members}


def ask(server: LoopbackServer, body: Any, path: str = "/a") -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        return session.post(server.url + path, json=body, timeout=10)


def test_equal_requests_get_their_answers_in_order_and_the_last_again() -> None:
    headers = {"Retry-After": "7"}
    recording = Recording(
        [
            exchange("one"),
            exchange("two", status=503, headers=headers),
            exchange("other", path="/b"),
        ]
    )
    with replay(recording) as server:
        answers = [ask(server, {"y": 2, "x": 1}) for _ in range(3)]
        assert [answer.text for answer in answers] == ["one", "two", "two"]
        assert [answer.status_code for answer in answers] == [200, 503, 503]
        assert answers[1].headers["retry-after"] == "7"
        assert ask(server, {"x": 1, "y": 2}, "/b").text == "other"
        for body, path in (({"x": 1}, "/a"), ({"x": 1, "y": 2}, "/c")):
            unknown = ask(server, body, path)
            assert (unknown.status_code, unknown.json()["code"]) == (404, "unrecorded")
    assert sum(server.request_counts.values()) == 6
    assert server.request_counts != recording.request_counts


def test_a_dropped_request_gets_no_byte() -> None:
    with replay(Recording([exchange("", drop=True)])) as server:
        with pytest.raises(requests.ConnectionError):
            ask(server, {"x": 1, "y": 2})
        assert len(server.requests) == 1


def test_a_stopped_server_has_hung_up() -> None:
    with FakeTaguru().serve() as server, requests.Session() as session:
        session.trust_env = False
        assert session.get(server.url + "/health", timeout=10).ok
        server.stop()
        with pytest.raises(requests.ConnectionError):
            session.get(server.url + "/health", timeout=10)


def test_requests_are_answered_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=10)

    def meet(request: Request) -> Answer:
        meeting.wait()
        return Answer(body="met")

    with LoopbackServer(meet) as server:
        other = threading.Thread(target=ask, args=(server, None))
        other.start()
        assert ask(server, None).text == "met"
        other.join()


# -- which plugin is tried -------------------------------------------------------------------


@pytest.mark.parametrize("directly", [True, False])
def test_a_copy_of_the_tests_does_not_try_the_plugin_of_another_checkout(
    tmp_path: Path, *, directly: bool
) -> None:
    tests, copy = PROJECT / "tests", tmp_path / "copy"
    shutil.copytree(tests / "support", copy / "tests" / "support")
    for name in ("__init__.py", "conftest.py"):
        shutil.copy(tests / name, copy / "tests")
    if directly:  # then the copy is what `python -m pytest` itself imports
        shutil.copytree(PROJECT / "pytest_taguru", copy / "pytest_taguru")
    run = run_in_subprocess(copy, ["tests"], clean_environment())
    assert run.status == pytest.ExitCode.USAGE_ERROR, run.shown
    assert f"imports pytest_taguru from {PROJECT / 'pytest_taguru'}, but" in run.stderr
    assert f"tests of {copy / 'pytest_taguru'};" in run.stderr
    assert "Traceback" not in run.shown


# -- the rest --------------------------------------------------------------------------------


def test_flags_of_the_original_as_ours() -> None:
    assert plugin_flags(["--assembly", "--max-items", "3", "--rerank", "m"]) == [
        "--taguru-assembly",
        "--taguru-max-items=3",
        "--taguru-rerank=m",
    ]
    assert plugin_flags([]) == []


@pytest.mark.parametrize(
    ("required", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_a_missing_binary_skips_unless_it_must_be_there(
    required: str,
    outcome: type[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TAGURU_TEST_BIN", raising=False)
    monkeypatch.setenv("TAGURU_REQUIRE_LIVE", required)
    with pytest.raises(outcome, match="no taguru server"):
        live.find_binary()
    binary = tmp_path / "taguru"
    binary.touch(mode=0o755)
    assert live.find_binary() == binary
