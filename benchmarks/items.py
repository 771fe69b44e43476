"""What an item costs when its lanes cost nothing: against plain parametrized tests.

The conftest of the run answers every request at once from memory, so what is left is pytest,
this plugin and the scoring. Also how time and memory grow from 2,000 to 20,000 cases.

usage: python benchmarks/items.py [--cases N] [--runs N] [--growth]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from common import PYTEST, WITH_PLUGIN, Timing, in_turn, median_ratio, median_seconds, write_dataset

_PLAIN = """
import pytest


@pytest.fixture
def number():
    return 1


@pytest.mark.parametrize("case", [f"case-{{n:05d}}" for n in range({cases})])
def test_case(case, number):
    assert number
"""

_CONFTEST = """
import pytest

from pytest_taguru.engine import blocks


class InstantRun:
    def block(self, index):
        return blocks.CaseBlock(
            case_id=f"case-{index:05d}",
            query="q",
            limit=10,
            passage=blocks.Searched(hits=[], latency_ms=0),
            missed=[],
            missed_truncated=0,
            diversity_sources=0,
        )


@pytest.fixture(scope="session")
def taguru_run():
    return InstantRun()
"""

_INSTANT_SERVER = """
import io
import json

import pytest
import requests
from requests.adapters import BaseAdapter

ANSWERS = {{
    "/health": {{"version": "0.9.7"}},
    "/contexts/bench": {{
        "result": {{
            "revision": {{"graph": 1, "passages": 1, "config": 1}},
            "usage": {{"last_write_epoch": 1}},
        }}
    }},
    "/contexts/bench/embeddings": {{"result": {{"provider_model": None}}}},
}}
HITS = [
    {{
        "source": f"doc-{{n:04d}}.md", "paragraph": 0, "score": 1.0, "text": "t" * 400,
        "lanes": {{"bm25": {{"rank": n + 1, "score": 1.0}}}},
    }}
    for n in range({hits})
]
PLAN = {{
    "contexts": [
        {{"context": "bench", "lanes": {{"bm25": {{"ran": True}}, "vector": {{"ran": False}}}}}}
    ]
}}
SEARCH = json.dumps({{"result": {{"plan": PLAN, "hits": HITS}}}}).encode()
SOURCES = [f"doc-{{n:04d}}.md" for n in range(200)]


class Instant(BaseAdapter):
    def send(self, request, **kwargs):
        response = requests.Response()
        response.status_code, response.request, response.url = 200, request, request.url
        path, _, query = request.path_url.partition("?")
        if path in ANSWERS:
            body = json.dumps(ANSWERS[path]).encode()
        elif path.endswith("/search"):
            body = SEARCH
        elif path.endswith("/sources"):
            page = [] if "after" in query else SOURCES
            body = json.dumps({{"result": {{"sources": page}}}}).encode()
        elif path.endswith("/citations"):
            body = b'{{"result":{{"text":"t","source":"s"}}}}'
        elif path.endswith("/query"):
            body = b'{{"result":{{"matches":[],"total":0}}}}'
        else:
            body = b'{{"result":[]}}'
        response.raw = io.BytesIO(body)
        return response

    def close(self):
        pass


@pytest.fixture(scope="session")
def taguru_http():
    session = requests.Session()
    session.mount("http://", Instant())
    return session
"""

_RUN = [*PYTEST, "-q"]
_CASES = [*WITH_PLUGIN, "-q", "--taguru-only", "--taguru-eval=eval.jsonl", "--taguru-context=bench"]


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--growth", action="store_true", help="2,000 against 20,000 cases")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if args.growth:
            growth(Path(name), args.runs)
        else:
            overhead(Path(name), args.cases, args.runs)


def overhead(folder: Path, cases: int, runs: int) -> None:
    """Items against parametrized functions, collected only and run."""
    plain, ours = plain_suite(folder, cases), suite(folder, cases, _CONFTEST)
    empty_plain, empty_ours = plain_suite(folder, 1), suite(folder, 1, _CONFTEST)
    print(f"{cases} items; startup (one item) taken off")
    print(f"{'':>10} {'plain s':>8} {'ours s':>8} {'ratio':>6} {'wanted':>7}")
    for what, flags in (("collect", ["--collect-only", "-qq"]), ("run", [])):
        timings = in_turn(
            {
                "plain": ([*_RUN, *flags], plain),
                "ours": ([*_CASES, *flags], ours),
                "empty plain": ([*_RUN, *flags], empty_plain),
                "empty ours": ([*_CASES, *flags], empty_ours),
            },
            runs,
        )
        net_plain = median_seconds(timings["plain"]) - median_seconds(timings["empty plain"])
        net_ours = median_seconds(timings["ours"]) - median_seconds(timings["empty ours"])
        print(
            f"{what:>10} {net_plain:>8.2f} {net_ours:>8.2f} {net_ours / net_plain:>6.2f}"
            f" {1.5:>7.2f}"
        )


def growth(folder: Path, runs: int) -> None:
    """Time and memory of 2,000 and 20,000 cases, beside as many plain tests."""
    few, many = 2_000, 20_000
    server = _INSTANT_SERVER.format(hits=10)
    timings = in_turn(
        {
            "few": (_CASES, suite(folder, few, server)),
            "many": (_CASES, suite(folder, many, server)),
            "plain few": (_RUN, plain_suite(folder, few)),
            "plain many": (_RUN, plain_suite(folder, many)),
        },
        runs,
    )
    print(f"{'':>12} {few:>9} {many:>9}")
    for name, key in (("ours s", ""), ("plain s", "plain ")):
        row = [median_seconds(timings[f"{key}{size}"]) for size in ("few", "many")]
        print(f"{name:>12} {row[0]:>9.2f} {row[1]:>9.2f}")
    for name, key in (("ours MB", ""), ("plain MB", "plain ")):
        row = [peak(timings[f"{key}{size}"]) for size in ("few", "many")]
        print(f"{name:>12} {row[0]:>9.1f} {row[1]:>9.1f}")
    beyond = (peak(timings["many"]) - peak(timings["few"])) - (
        peak(timings["plain many"]) - peak(timings["plain few"])
    )
    print(f"time grew {median_ratio(timings['many'], timings['few']):.2f} times (wanted 11.00)")
    print(f"memory grew {beyond:.1f} MB beyond plain tests (wanted 60.0)")
    size = (folder / f"cases-{many}" / "evaluation.json").stat().st_size
    print(f"artifact of {many} cases: {size / 1e6:.0f} MB")


def peak(timings: list[Timing]) -> float:
    """The median peak memory."""
    return sorted(timing.peak_mb for timing in timings)[len(timings) // 2]


def suite(folder: Path, cases: int, conftest: str) -> Path:
    """A folder with a dataset whose server answers at once."""
    place = folder / f"cases-{cases}"
    place.mkdir()
    (place / "conftest.py").write_text(conftest)
    (place / "pytest.ini").write_text("[pytest]\n")
    write_dataset(place / "eval.jsonl", cases)
    return place


def plain_suite(folder: Path, cases: int) -> Path:
    """A folder with as many parametrized tests."""
    place = folder / f"plain-{cases}"
    place.mkdir()
    (place / "pytest.ini").write_text("[pytest]\n")
    (place / "test_plain.py").write_text(_PLAIN.format(cases=cases))
    return place


if __name__ == "__main__":
    main()
