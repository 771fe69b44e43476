"""What a person sees, under every way to ask pytest for less or more of it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import CASES, Shore, busy, section
from tests.support.runs import GOLDEN, plugin_flags

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.replay_server import Answer, Request
    from tests.support.runs import Workspace

BOTH = pytest.mark.parametrize("way", [(), ("-n", "2")], ids=["serial", "xdist"])
VIOLATION = "kelp: recall.recall_at_k 0.000000 < min 1.000000 (eval.jsonl:4)"

#: Written by hand from the figures of the original program's artifacts.
SECTIONS = {
    "thresholds-fail": GOLDEN / "sake" / "runs" / "thresholds-fail",
    "assembly-rerank": GOLDEN / "sake" / "runs" / "assembly-rerank",
    "search-503": GOLDEN / "faults" / "search-503",
}


@BOTH
@pytest.mark.parametrize("name", SECTIONS)
def test_the_section(name: str, way: tuple[str, ...], workspace: Workspace) -> None:
    golden: Path = SECTIONS[name]
    described = json.loads((golden / "run.json").read_text("utf-8"))
    workspace.corpus("sake")
    ended = workspace.evaluate(
        "http://127.0.0.1:8248",
        f"--taguru-replay={golden / 'exchanges.jsonl'}",
        *plugin_flags(described["flags"]),
        *way,
    )
    assert ended.status == described["exit"], ended.shown
    expected = (GOLDEN / "terminal" / f"{name}.txt").read_text("utf-8").splitlines()
    assert section(ended) == [line.strip() for line in expected], ended.shown


def test_many_violations_are_counted(workspace: Workspace) -> None:
    cases = [f"case-{number:02}" for number in range(13)]
    ended = Shore(workspace=workspace, cases=cases, missing=cases).run("--taguru-strict")
    assert ended.status == 3, ended.shown
    shown = section(ended)
    assert re.fullmatch(r"thresholds VIOLATED: 13 bounds \([0-9a-f]{12}\)", shown[4])
    assert [line.split()[1] for line in shown[5:15]] == [f"{name}:" for name in cases[:10]]
    assert shown[15] == "… and 3 more bounds on single cases"
    assert shown[16] == "strict VIOLATED by 13 cases"
    assert shown[17] == "case case-00: 1 unmet expectation"
    assert shown[27] == "… and 3 more cases"


def test_violated_bounds_are_counted_where_a_case_has_two(workspace: Workspace) -> None:
    """Five cases break two bounds each, the sixth one; ten are shown."""
    cases = ["a", "b", "c", "d", "e", "f"]
    two = {"recall.recall_at_k": {"min": 1}, "recall.mrr": {"min": 1}}
    bounds = {"cases": {"default": two, "overrides": {"f": {"recall.mrr": {"min": 0}}}}}
    ended = Shore(workspace=workspace, cases=cases, missing=cases, thresholds=bounds).run()
    assert ended.status == 3, ended.shown
    shown = section(ended)
    assert shown[4].startswith("thresholds VIOLATED: 11 bounds (")
    assert [line.split(":")[0] for line in shown[5:15]] == [
        f"case {name}" for name in ("a", "a", "b", "b", "c", "c", "d", "d", "e", "e")
    ]
    assert shown[15] == "… and 1 more bound on single cases"


# -- the last lines ------------------------------------------------------------------------------

ONLY_REPORTS = "no thresholds: this run only reports"


@BOTH
def test_a_run_of_some_cases_says_how_many_were_written(
    way: tuple[str, ...], workspace: Workspace
) -> None:
    shore = Shore(workspace=workspace)
    assert section(shore.run("-k", "kelp", *way))[-1] == "wrote evaluation.json (1 of 4 cases)"
    assert shore.judged() == ["kelp"]
    assert section(shore.run(*way))[-1] == "wrote evaluation.json"


@BOTH
def test_a_run_that_nothing_can_violate_says_so(way: tuple[str, ...], workspace: Workspace) -> None:
    ended = Shore(workspace=workspace, missing=["kelp"], thresholds=None).run(*way)
    assert ended.status == 0, ended.shown
    assert section(ended)[-2:] == [ONLY_REPORTS, "wrote evaluation.json"]
    assert "thresholds: none, this run only reports\n" in ended.stdout


@pytest.mark.parametrize(
    ("flags", "reports"),
    [
        (["--taguru-strict"], False),
        (["--taguru-baseline=earlier.json"], True),
        (["--taguru-baseline=earlier.json", "--taguru-baseline-fail-on=regressed"], False),
        (["--taguru-baseline=earlier.json", "--taguru-max-drop=recall.mrr=0.1"], False),
    ],
    ids=["strict", "a baseline", "a baseline that fails", "a baseline with a drop"],
)
def test_what_can_be_violated_without_thresholds(
    flags: list[str], reports: bool, workspace: Workspace
) -> None:
    shore = Shore(workspace=workspace, thresholds=None)
    shore.run("--taguru-out=earlier.json")
    ended = shore.run(*flags)
    assert ended.status == 0, ended.shown
    assert (ONLY_REPORTS in section(ended)) is reports, ended.shown
    assert ("this run only reports" in ended.stdout) is reports


# -- verbosity and tracebacks --------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("drive", ["-q", "-qq", "-v", "-vv", "--color=yes", "-rA", "--no-header"])
def test_the_section_is_there_however_talkative(
    drive: str, way: tuple[str, ...], workspace: Workspace
) -> None:
    ended = Shore(workspace=workspace, missing=["kelp"]).run(drive, *way)
    assert ended.status == 3, ended.shown
    text = re.sub(r"\x1b\[[0-9;]*m", "", ended.stdout)
    assert text.count("taguru evaluation") == 1
    assert text.count("  case kelp: recall.recall_at_k 0.000000 < min 1.000000\n") == 1
    assert ended.stderr == ""
    if drive.startswith("-v") and not way:
        items = [line.split()[0] for line in text.splitlines() if re.search(r" +\[ *\d+%\]$", line)]
        assert items == ["test_shore.py::test_tide", *(f"eval.jsonl::{name}" for name in CASES)]


@pytest.mark.parametrize("style", ["auto", "long", "short", "line", "native", "no"])
def test_a_failure_in_every_style(style: str, workspace: Workspace) -> None:
    ended = Shore(workspace=workspace, missing=["kelp"]).run(f"--tb={style}", "-vv")
    assert ended.status == 3, ended.shown
    lines = ended.stdout.splitlines()
    # Among the failures and in pytest's short summary; --tb=line of pytest 9 shows it twice.
    places = {"no": {1}, "line": {2, 3}}.get(style, {2})
    assert sum(line.endswith(VIOLATION) for line in lines) in places
    assert any(line.startswith("FAILED eval.jsonl::kelp - ") for line in lines)
    assert "Traceback" not in ended.stdout
    assert "def judge" not in ended.stdout
    if style not in ("no", "line"):
        at = lines.index(VIOLATION)
        assert lines[at - 1].strip("_ ") == "case kelp"
        assert lines[at + 1] == (
            "  missed: expected_sources: 'shore/kelp.md' not found among passage hits"
        )
        assert lines[at + 2].startswith("  run it again: pytest --taguru-eval=eval.jsonl ")


@BOTH
def test_a_failed_call_is_a_skip_with_lane_and_message(
    way: tuple[str, ...], workspace: Workspace
) -> None:
    shore = Shore(workspace=workspace, hook=busy)
    ended = shore.run("-rs", *way)
    assert ended.status == 0, ended.shown
    assert "4 passed, 1 skipped" in ended.stdout
    skips = [line for line in ended.stdout.splitlines() if line.startswith("SKIPPED")]
    assert len(skips) == 1
    assert re.fullmatch(
        r"SKIPPED \[1\] eval\.jsonl:4: not judged, the passage call failed:"
        r" http://127\.0\.0\.1:\d+/contexts/shore/sources/search answered 503: too busy",
        skips[0],
    )
    assert "failed passage calls: kelp" in section(ended)


def test_a_violated_bound_is_a_failure_even_if_a_call_failed(workspace: Workspace) -> None:
    def busy_graph(request: Request) -> Answer | None:
        return busy_answer(request) if request.path.endswith("/resolve") else None

    cases = {"expected_concepts": ["tide"]}
    shore = Shore(workspace=workspace, hook=busy_graph, missing=["limpet"])
    workspace.dataset(
        {"case_id": "limpet", "query": "limpet", **cases, **expecting("limpet")},
        {"case_id": "mussel", "query": "mussel", **cases, **expecting("mussel")},
    )
    ended = shore.run("-rs")
    assert ended.status == 3, ended.shown
    assert "1 failed, 1 passed, 1 skipped" in ended.stdout
    assert "  resolve call failed: " in ended.stdout
    assert "SKIPPED [1] eval.jsonl:3: not judged, the resolve call failed: " in ended.stdout


def expecting(name: str) -> dict[str, object]:
    return {"expected_sources": [{"source": f"shore/{name}.md"}]}


def busy_answer(request: Request) -> Answer:
    from tests.support.replay_server import Answer

    return Answer(status=503, body='{"error": "too busy"}')


def test_without_the_section(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["kelp"])
    for drive in (["--no-summary"], ["-p", "no:terminalreporter"]):
        ended = shore.run(*drive)
        assert ended.status == 3, ended.shown
        assert "taguru evaluation" not in ended.stdout
        assert shore.judged() == list(CASES)


def test_an_own_fixture_that_fails_looks_as_always(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace)
    workspace.write(
        "conftest.py",
        "import pytest\n\n\n@pytest.fixture(scope='session')\ndef taguru_url():\n"
        "    raise RuntimeError('the harbour is closed')\n",
    )
    ended = shore.run()
    assert ended.status == 1, ended.shown
    assert "1 passed, 4 errors" in ended.stdout
    assert "E       RuntimeError: the harbour is closed" in ended.stdout
    assert "cut short: 0 of 4 cases were judged; evaluation.json was not written" in section(ended)
    assert shore.is_untouched
