"""The artifact as a stream of cases, and the store that they wait in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_taguru.engine import store as store_module
from pytest_taguru.engine.artifact import (
    EvalInput,
    Head,
    Inputs,
    StrictReport,
    Tail,
    without_cases,
    write_artifact,
)
from pytest_taguru.engine.blocks import CaseBlock, Hit, HitLanes, LaneScore, Searched
from pytest_taguru.engine.corpus import Corpus, Revision
from pytest_taguru.engine.metrics import definitions
from pytest_taguru.engine.run import tally
from pytest_taguru.engine.store import BlockStore, encode_block

if TYPE_CHECKING:
    from pathlib import Path

REVISION = Revision(graph=1, passages=2, config=3)


def block(number: int) -> CaseBlock:
    """A case whose strings hold all that could disturb a layout."""
    lanes = HitLanes(bm25=LaneScore(rank=1, score=0.1 + number))
    return CaseBlock(
        case_id=f'case {number} ☕ \n\u2028\0"\\{{[',
        query='], "metrics": {}',
        cues=[] if number % 2 else ["a\n    b"],
        limit=10,
        passage=Searched(hits=[Hit("s", number, 1e16, lanes)], latency_ms=0),
        missed=[],
        missed_truncated=0,
        diversity_sources=1,
    )


def head() -> Head:
    return Head(
        generated_at="2026-12-01T00:00:00Z",
        inputs=Inputs(
            eval=EvalInput(path="eval.jsonl", name=None, cases=3),
            context="c",
            url="http://h",
            out="o",
            mode="baseline",
        ),
        corpus=Corpus(
            revision_before=REVISION,
            revision_after=REVISION,
            stable=True,
            last_write_epoch_before=1,
            last_write_epoch_after=1,
            sources_count=0,
        ),
        thresholds=None,
        definitions=definitions(),
    )


def tail(blocks: list[CaseBlock], **added: Any) -> Tail:
    return Tail(metrics=tally(blocks, None, strict=False, rerank_asked=False).metrics, **added)


@pytest.mark.parametrize("count", [1, 2, 300])
def test_the_stream_is_byte_for_byte_what_an_in_memory_writer_gives(
    tmp_path: Path, count: int
) -> None:
    blocks = [block(number) for number in range(count)]
    strict = StrictReport(passed=True, violations=[])
    begin, end = head(), tail(blocks, strict=strict, extensions={"mine": [1, {}]})
    file = tmp_path / "evaluation.json"
    write_artifact(file, "evaluation.json", begin, map(encode_block, blocks), end)
    whole = {**msgspec.to_builtins(begin), "cases": blocks, **msgspec.to_builtins(end)}
    in_memory = msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"
    assert file.read_bytes() == in_memory
    assert [case["case_id"] for case in json.loads(in_memory)["cases"]] == [
        one.case_id for one in blocks
    ]


def test_the_keys_stand_in_the_documented_order(tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    write_artifact(file, "e", head(), [encode_block(block(1))], tail([block(1)]))
    artifact = json.loads(file.read_bytes())
    assert list(artifact) == [
        "taguru_evaluation", "generated_at", "matching", "inputs", "corpus", "thresholds",
        "definitions", "cases", "metrics",
    ]  # fmt: skip
    assert list(artifact["definitions"]) == sorted(artifact["definitions"])
    assert list(artifact["metrics"]) == list(artifact["definitions"])
    assert "cases" not in without_cases(head(), tail([block(1)]))


@pytest.mark.parametrize("memory", [10_000_000, 1_000], ids=["in memory", "spilled"])
def test_blocks_come_back_in_the_order_of_the_dataset_the_last_of_a_case(
    monkeypatch: pytest.MonkeyPatch, memory: int
) -> None:
    monkeypatch.setattr(store_module, "MEMORY_BYTES", memory)
    store = BlockStore()
    for index in (7, 3, 9, 1):
        store.put(index, encode_block(block(index)))
    store.put(3, encode_block(block(33)))
    assert len(store) == 4
    assert 3 in store
    assert 2 not in store
    assert [one.passage for one in store.blocks()] == [block(i).passage for i in (1, 33, 7, 9)]
    store.put(2, encode_block(block(2)))
    assert [json.loads(one)["passage"]["hits"][0]["paragraph"] for one in store.encoded()] == [
        1, 2, 33, 7, 9,
    ]  # fmt: skip
    store.close()
