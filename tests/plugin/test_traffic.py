"""What a run sends, and what it must never let out: routes, the token, the corpus' text."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.support.fake_taguru import FakeTaguru
from tests.support.replay_server import Answer, Request, refusal, result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.replay_server import LoopbackServer
    from tests.support.runs import Run, Workspace

TOKEN = "canary-token-d41d8cd98f00b204"
SENTENCE = "The canary paragraph hums in the seventh barrel."
GLOSS = "A gloss that only the canary knows."

#: Every route that a run may ask, below the context.
ALLOWED = re.compile(
    r"""
    GET\ (|/embeddings|/sources)
    |POST\ /(sources/search|evidence|resolve|resolve_label|query|citations)
    """,
    re.VERBOSE,
)
CASES = (
    {
        "case_id": "full",
        "query": "hum",
        "cues": ["barrel", "canary"],
        "expected_sources": [{"source": "corpus/water.md"}, {"source": "corpus/rice.md"}],
        "expected_concepts": ["barrel"],
        "expected_labels": ["hums in"],
        "expected_associations": [{"subject": "canary", "label": "hums in", "object": "barrel"}],
        "expected_citations": [
            {"source": "corpus/water.md", "paragraph": 0, "quote": "seventh", "section": "S"},
            {"source": "corpus/rice.md", "paragraph": 7},
        ],
        "options": {"tags": ["t"], "limit": 3},
    },
    {"case_id": "broken", "query": "break", "expected_sources": [{"source": "corpus/rice.md"}]},
    {"case_id": "plain", "query": "hum"},
)


def item(name: str) -> dict[str, Any]:
    return {"name": name, "score": 1.0, "tier": "lexical", "kind": "exact", "gloss": GLOSS}


def answers_with_canaries(request: Request) -> Answer | None:
    """Text of the corpus wherever a server may send some; also in a failed answer's body."""
    route = urlsplit(request.path).path.removeprefix("/contexts/sake/")
    match route:
        case "sources/search" if request.body["query"] == "break":
            return Answer(status=500, body="x" * 300 + SENTENCE)
        case "resolve" | "resolve_label":
            return result([item(request.body["cue"])])
        case "query":
            attributions = [{"source": "corpus/water.md", "paragraph": 0, "text": SENTENCE}]
            return result({"total": 1, "matches": [{"attributions": attributions}]})
        case "citations" if request.body["paragraph"] == 0:
            return result(
                {"text": SENTENCE, "source": "corpus/water.md", "section": "S", "locator": None}
            )
        case "citations":
            return refusal(404, "no such paragraph", "no_paragraph")
        case "evidence":
            return result(evidence(request.body["budget"]))
    return None


def evidence(limits: dict[str, int]) -> dict[str, Any]:
    passage = {"source": "corpus/water.md", "paragraph": 0, "score": 1.0, "text": SENTENCE}
    return {
        "items": [
            {
                "candidate_id": "passage\0sake\0corpus/water.md\0000",
                "kind": "passage",
                "fused_rank": 1,
                "lane_ranks": [{"lane": "passage_bm25", "rank": 1}],
                "citation_refs": [{"source": "corpus/water.md", "paragraph": 0}],
                "passage": passage,
            }
        ],
        "citations": [{"source": "corpus/water.md", "paragraph": 0, "citation": passage}],
        "omitted": [],
        "omitted_total": 0,
        "omitted_by_reason": {},
        "budget": {"items_used": 1, "bytes_used": 99, "tokens_used": 33, "limits": limits},
        "plan": {"selection": {}, "reranker": {"configured": False, "ran": False}},
    }


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    hits = {"hum": [("corpus/water.md", 0), ("corpus/rice.md", 1)]}
    fake = FakeTaguru(hits=hits, text=SENTENCE, hook=answers_with_canaries)
    with fake.serve() as server:
        yield server


#: As much as pytest will say.
LOUD = (
    "-vv",
    "-rA",
    "--showlocals",
    "--full-trace",
    "--durations=0",
    "--log-cli-level=DEBUG",
    "-o",
    "log_cli=true",
    "--log-level=DEBUG",
    "--log-file=run.log",
    "--log-file-level=DEBUG",
    "--junitxml=junit.xml",
    "-o",
    "junit_logging=all",
)
MODES = {
    "baseline": [],
    "budget": ["--taguru-max-items=1"],
    "assembly": ["--taguru-assembly"],
    "strict": ["--taguru-strict"],
    "thresholds": ["--taguru-thresholds=thresholds.json"],
    "serial": ["--taguru-concurrency=1"],
    "xdist": ["-n2"],
}


@pytest.fixture
def loud(workspace: Workspace) -> Workspace:
    """A project with failing cases, a failing ordinary test and every log turned on."""
    workspace.dataset(*CASES)
    workspace.thresholds(
        aggregate={"recall.recall_at_k": {"min": 0.99}},
        cases={"default": {"recall.recall_at_k": {"min": 0.99}, "citations.recall": {"min": 1}}},
    )
    workspace.write(
        "conftest.py",
        "import logging\n"
        "logging.getLogger().setLevel(logging.DEBUG)\n"
        "def pytest_taguru_case(item, block):\n"
        "    logging.getLogger('mine').info('scored %s', item.name)\n",
    )
    workspace.write(
        "test_fails.py",
        "def test_fails(pytestconfig, taguru_http, taguru_url, taguru_run):\n"
        "    everything = dict(locals())\n"
        "    assert not everything\n",
    )
    return workspace


def everything_that_was_let_out(run: Run) -> Iterator[tuple[str, str]]:
    yield "stdout", run.stdout
    yield "stderr", run.stderr
    inputs = {"eval.jsonl", "conftest.py", "pytest.ini", "test_fails.py", "thresholds.json"}
    for file in run.directory.rglob("*"):
        if file.is_file() and file.name not in inputs:
            yield str(file.relative_to(run.directory)), file.read_bytes().decode("utf-8", "replace")


@pytest.mark.parametrize("mode", MODES)
def test_neither_token_nor_text_gets_out(
    mode: str, loud: Workspace, server: LoopbackServer
) -> None:
    run = loud.evaluate(server.url, *LOUD, *MODES[mode], TAGURU_API_TOKEN=TOKEN)
    assert run.status == 1, run.shown  # the ordinary test failed
    places = dict(everything_that_was_let_out(run))
    assert {"evaluation.json", "junit.xml", "stdout", "stderr"} <= places.keys()
    for place, text in places.items():
        for canary in (TOKEN, SENTENCE, "seventh barrel", GLOSS):
            assert canary not in text, f"{canary!r} in {place}"
            assert json.dumps(canary)[1:-1] not in text, f"{canary!r} in {place}"
    assert "scored" in run.stdout or mode == "xdist", "the logs were on"
    assert "mine" in places["run.log"] or mode == "xdist"
    assert '"seventh"' in places["evaluation.json"], "a declared quote is kept"


@pytest.mark.parametrize("mode", MODES)
def test_only_the_listed_routes_are_asked(
    mode: str, loud: Workspace, server: LoopbackServer
) -> None:
    loud.evaluate(server.url, *MODES[mode])
    requests = [(request.method, urlsplit(request.path).path) for request in server.requests]
    assert requests.count(("GET", "/health")) == (2 if mode == "xdist" else 1)
    below = {
        f"{method} {path.removeprefix('/contexts/sake')}"
        for method, path in requests
        if path != "/health"
    }
    assert all(ALLOWED.fullmatch(route) for route in below), below
    search = "POST /evidence" if mode == "assembly" else "POST /sources/search"
    assert below == {
        "GET ",
        "GET /embeddings",
        "GET /sources",
        "POST /citations",
        "POST /query",
        "POST /resolve",
        "POST /resolve_label",
        search,
    }


def test_the_token_is_sent_with_every_request(loud: Workspace, server: LoopbackServer) -> None:
    loud.evaluate(server.url, TAGURU_API_TOKEN=f" {TOKEN}\n")
    assert len(server.requests) > 10
    assert {request.headers.get("authorization") for request in server.requests} == {
        f"Bearer {TOKEN}"
    }


@pytest.mark.parametrize(
    ("environment", "header"),
    [
        ({}, None),
        ({"TAGURU_API_TOKEN": " "}, None),
        ({"TAGURU_API_TOKEN": "one", "TAGURU_API_TOKENS": "a:two"}, "Bearer one"),
        ({"TAGURU_API_TOKEN": "", "TAGURU_API_TOKENS": "a:two,b:three"}, "Bearer two"),
        ({"TAGURU_API_TOKENS": "a:, b:three:x ,c:four"}, "Bearer three:x"),
        ({"TAGURU_API_TOKENS": "a:,b"}, None),
    ],
)
def test_which_token_is_sent(
    environment: dict[str, str],
    header: str | None,
    workspace: Workspace,
    server: LoopbackServer,
) -> None:
    workspace.dataset({"case_id": "c", "query": "hum"})
    run = workspace.evaluate(server.url, **environment)
    assert run.status == 0, run.shown
    assert {request.headers.get("authorization") for request in server.requests} == {header}


def test_the_token_may_come_from_the_config_file(
    workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.dataset({"case_id": "c", "query": "hum"})
    workspace.write("server.env", f"TAGURU_API_TOKEN={TOKEN}\nTAGURU_ADDR=127.0.0.1:1\n")
    workspace.write(
        "test_environment.py",
        "import os\n"
        "def test_it_is_unchanged():\n"
        "    assert not [name for name in os.environ if name.startswith('TAGURU_')]\n",
    )
    run = workspace.evaluate(server.url, "--taguru-config=server.env")
    assert run.status == 0, run.shown
    assert {request.headers.get("authorization") for request in server.requests} == {
        f"Bearer {TOKEN}"
    }


def test_a_netrc_never_replaces_the_token(
    workspace: Workspace, server: LoopbackServer, tmp_path: Path
) -> None:
    netrc = workspace.write("netrc", "machine 127.0.0.1 login somebody password hunter2\n")
    netrc.chmod(0o600)
    workspace.dataset({"case_id": "c", "query": "hum"})
    for environment, header in (({"TAGURU_API_TOKEN": TOKEN}, f"Bearer {TOKEN}"), ({}, None)):
        run = workspace.evaluate(server.url, NETRC=str(tmp_path / "netrc"), **environment)
        assert run.status == 0, run.shown
        assert server.requests[-1].headers.get("authorization") == header


def test_a_redirect_is_not_followed(workspace: Workspace) -> None:
    """Or the token would go where the answer says."""
    with FakeTaguru().serve() as elsewhere:

        def redirect(request: Request) -> Answer | None:
            if request.path.endswith("/sources/search"):
                place = elsewhere.url + request.path
                return Answer(status=307, headers={"location": place})
            return None

        workspace.dataset({"case_id": "c", "query": "hum"})
        with FakeTaguru(hook=redirect).serve() as server:
            run = workspace.evaluate(server.url, TAGURU_API_TOKEN=TOKEN)
    assert elsewhere.requests == []
    (case,) = run.artifact()["cases"]
    assert case["passage"]["outcome"] == "failed"
    assert " answered 307: " in case["passage"]["message"]
    assert run.status == 0, run.shown


def test_a_base_path_is_kept(workspace: Workspace) -> None:
    def strip(request: Request) -> Answer | None:
        assert request.path.startswith("/base/path/"), request.path
        inner = Request(
            method=request.method,
            path=request.path.removeprefix("/base/path"),
            body=request.body,
            headers=request.headers,
        )
        return FakeTaguru().answer(inner)

    workspace.dataset({"case_id": "c", "query": "hum"})
    with FakeTaguru(hook=strip).serve() as server:
        run = workspace.evaluate(server.url + "/base/path//")
        assert run.status == 0, run.shown
        assert run.artifact()["inputs"]["url"] == server.url, "masked"
    paths = {urlsplit(request.path).path for request in server.requests}
    assert {"/base/path/health", "/base/path/contexts/sake/sources/search"} <= paths


def test_nothing_is_sent_without_a_dataset(workspace: Workspace, server: LoopbackServer) -> None:
    workspace.write("pytest.ini", f"[pytest]\ntaguru_url = {server.url}\ntaguru_context = sake\n")
    workspace.write("test_ordinary.py", "def test_ordinary(): pass\n")
    run = workspace.run("--taguru-strict", "--taguru-out=out.json")
    assert run.status == 0, run.shown
    assert server.requests == []
    assert "taguru" not in run.stdout.replace("taguru-0", "").split("collected")[1]
    assert not (workspace.directory / "out.json").exists()


@pytest.mark.parametrize("flag", ["--collect-only", "--help", "--version"])
def test_nothing_is_sent_for_a_listing(
    flag: str, workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.dataset({"case_id": "c-one", "query": "hum"})
    run = workspace.evaluate(server.url, flag)
    assert run.status == 0, run.shown
    assert server.requests == []
    assert not (workspace.directory / "evaluation.json").exists()
    assert ("c-one" in run.stdout) is (flag == "--collect-only")
