"""The plugin and the original program, one after the other, against the same real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.artifact_diff import differences
from tests.support.live import RERANK_MODEL, LiveServer, find_binary
from tests.support.runs import plugin_flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.runs import Workspace

pytestmark = pytest.mark.live

CORPORA = ("sake", "orchard", "edge", "corners")
FLAGS = {
    "baseline": [],
    "thresholds-pass": ["--thresholds", "thresholds-pass.json"],
    "thresholds-fail": ["--thresholds", "thresholds-fail.json"],
    "budget-items": ["--max-items", "2"],
    "budget-bytes": ["--max-bytes", "700"],
    "budget-tokens": ["--max-tokens", "180"],
    "budget-wide": ["--max-bytes", "5000"],
    "budget-all": ["--max-items", "2000", "--max-bytes", "1100", "--max-tokens", "250"],
    "budget-thresholds": ["--max-items", "1", "--thresholds", "thresholds-fail.json"],
    "assembly": ["--assembly"],
    "assembly-budget": [
        *("--assembly", "--max-items", "3", "--max-bytes", "1500", "--max-tokens", "300")
    ],
    "assembly-thresholds": ["--assembly", "--thresholds", "thresholds-fail.json"],
    "assembly-rerank": ["--assembly", "--rerank", RERANK_MODEL],
    "assembly-rerank-other": ["--assembly", "--rerank", "another-model"],
}


@pytest.fixture(scope="session")
def bare() -> Iterator[LiveServer]:
    """A server without providers, as it is installed."""
    with LiveServer(find_binary(), providers=False) as server:
        yield server


@pytest.fixture(scope="session")
def equipped() -> Iterator[LiveServer]:
    """A server with embeddings and a reranker."""
    with LiveServer(find_binary(), providers=True) as server:
        yield server


@pytest.fixture(scope="session")
def seeded(bare: LiveServer, equipped: LiveServer) -> dict[str, tuple[LiveServer, str]]:
    """Every corpus on its server, by name, with its context."""
    servers = {name: equipped if name == "orchard" else bare for name in CORPORA}
    return {name: (server, server.seed(name)) for name, server in servers.items()}


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS.keys())
@pytest.mark.parametrize("corpus", CORPORA)
def test_both_write_the_same(
    corpus: str,
    flags: list[str],
    workspace: Workspace,
    seeded: dict[str, tuple[LiveServer, str]],
) -> None:
    server, context = seeded[corpus]
    workspace.corpus(corpus)
    original = server.evaluate(workspace.directory, context, flags)
    run = workspace.evaluate(server.url, *plugin_flags(flags), context=context)
    assert original.status in (0, 3), original.shown
    assert run.status == original.status, run.shown
    assert differences(original.artifact("original.json"), run.artifact()) == []


def test_both_refuse_an_unknown_context(workspace: Workspace, bare: LiveServer) -> None:
    workspace.corpus("sake")
    original = bare.evaluate(workspace.directory, "nowhere", [])
    run = workspace.evaluate(bare.url, context="nowhere")
    assert original.status == run.status == 2, run.shown
    assert not list(workspace.directory.glob("*evaluation.json"))


def test_both_refuse_a_source_that_is_not_there(
    workspace: Workspace, seeded: dict[str, tuple[LiveServer, str]]
) -> None:
    server, context = seeded["sake"]
    workspace.dataset(
        {"case_id": "c", "query": "q", "expected_sources": [{"source": "nowhere.md"}]}
    )
    original = server.evaluate(workspace.directory, context, [])
    run = workspace.evaluate(server.url, context=context)
    assert original.status == run.status == 2, run.shown
    assert "nowhere.md" in original.stderr
    assert "nowhere.md" in run.stderr


def test_a_recording_of_a_live_run_replays(
    workspace: Workspace, seeded: dict[str, tuple[LiveServer, str]]
) -> None:
    server, context = seeded["edge"]
    workspace.corpus("edge")
    recorded = workspace.evaluate(
        server.url, "--taguru-record=live.jsonl", "--taguru-out=recorded.json", context=context
    )
    assert recorded.status == 0, recorded.shown
    replayed = workspace.evaluate(
        server.url, "--taguru-replay=live.jsonl", "--taguru-out=replayed.json", context=context
    )
    assert replayed.status == 0, replayed.shown
    assert differences(recorded.artifact("recorded.json"), replayed.artifact("replayed.json")) == []


def test_a_write_during_the_run_is_noticed(
    workspace: Workspace, seeded: dict[str, tuple[LiveServer, str]]
) -> None:
    server, _ = seeded["sake"]
    workspace.corpus("sake")
    server.call("PUT", "/contexts/shifting", {"description": "written to while it is read"})
    names = ["corpus/water.md", "corpus/brewery.md"]
    passages = dict.fromkeys(names, "青嶺の仕込み水は霧沢川の伏流水である。")
    server.call("POST", "/contexts/shifting/sources", {"passages": passages})
    workspace.dataset({"case_id": "c", "query": "青嶺"})
    workspace.thresholds()
    workspace.write(
        "conftest.py",
        "import requests\n"
        "def pytest_taguru_case(item, block):\n"
        "    answer = requests.post(\n"
        f"        {server.url + '/contexts/shifting/sources'!r},\n"
        "        json={'passages': {'late.md': 'a late addition'}},\n"
        "        timeout=60,\n"
        "    )\n"
        "    assert answer.ok\n",
    )
    run = workspace.evaluate(server.url, "--taguru-thresholds=thresholds.json", context="shifting")
    assert run.status == 3, run.shown
    artifact = run.artifact()
    assert artifact["corpus"]["stable"] is False
    assert [v["metric"] for v in artifact["thresholds"]["violations"]] == ["corpus.stable"]
