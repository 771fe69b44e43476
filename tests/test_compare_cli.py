"""taguru-eval-compare as somebody runs it: statuses, streams, formats, and judging again."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_taguru import __version__, changes_view
from pytest_taguru.compare import main
from pytest_taguru.engine.comparison import DECIDING, Comparison, compare, read_artifact
from tests.support.artifact_diff import differences

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden" / "compare"
ROWS = [json.loads(line) for line in (GOLDEN / "refusals.jsonl").read_text("utf-8").splitlines()]
MIXED = [str(GOLDEN / "mixed" / name) for name in ("base.json", "head.json")]


class Cli:
    """Runs the command in its own directory, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        try:
            status = main(arguments)
        except SystemExit as left:
            status = int(left.code or 0)
        out, err = self._capsys.readouterr()
        return status, out, err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(capsys)


def artifact(*cases: dict[str, Any], **fields: Any) -> str:
    return json.dumps(
        {"taguru_evaluation": 1, "corpus": {"stable": True}, "cases": cases, **fields}
    )


def mrr(case_id: str, value: float) -> dict[str, Any]:
    return {"case_id": case_id, "recall": {"mrr": value}}


# -- what the original does ------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(file.parent.name for file in GOLDEN.glob("*/run.json")))
def test_golden_pair(name: str, cli: Cli) -> None:
    files = [str(GOLDEN / name / side) for side in ("base.json", "head.json")]
    status, out, err = cli(*files)
    assert status == 0
    expected = (GOLDEN / name / "changes.jsonl").read_text("utf-8").splitlines()
    actual = Path("changes.jsonl").read_text("utf-8").splitlines()
    assert [*differences([*map(json.loads, expected)], [*map(json.loads, actual)])] == []
    warnings = json.loads(actual[0]).get("warnings", [])
    assert err.splitlines() == [f"taguru-eval-compare: warning: {line}" for line in warnings]
    assert out.endswith("\nwrote changes.jsonl\n")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in ROWS])
def test_golden_refusal(row: dict[str, Any], cli: Cli) -> None:
    shutil.copy(GOLDEN / "same" / "base.json", "good.json")
    arguments = row.get("args", ["good.json", "head.json"])
    if "head" in row:
        Path("head.json").write_text(row["head"], "utf-8")
    status, out, err = cli(*arguments)
    assert status == row["exit"]
    if status:
        assert out == ""
        assert err.startswith("taguru-eval-compare: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert not Path("changes.jsonl").exists()
    if "head" in row and status:
        assert "HEAD head.json: " in err


# -- usage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected BASE.json and HEAD.json, got 0 file(s)"),
        ([*MIXED, "--out", "a", "--out", "a"], "--out is given twice"),
        ([*MIXED, "--format", "text", "--format", "text"], "--format is given twice"),
        ([*MIXED, "--out", " "], "--out is blank"),
        ([*MIXED, "--out"], "--out: expected one argument"),
        ([*MIXED, "--format", "xml"], "invalid choice: 'xml'"),
        ([*MIXED, "--fail-on", "added"], "invalid choice: 'added'"),
        ([*MIXED, "--fail", "regressed"], "unrecognized arguments: --fail"),
        ([*MIXED, "--max-drop", "ndcg=1"], "--max-drop: 'ndcg' is not a metric that can drop"),
        ([*MIXED, *["--max-drop", "recall.mrr=0"] * 2], "--max-drop: recall.mrr is given twice"),
        ([MIXED[0], MIXED[1], "--out", MIXED[0]], "would replace a file that is being compared"),
        (["--judge", MIXED[0]], "--judge and --thresholds go together"),
        ([*MIXED, "--thresholds", "t.json"], "--judge and --thresholds go together"),
        (["--judge", MIXED[0], "--thresholds", "t", "--out", "x"], "nothing of a comparison"),
        (["--judge", MIXED[0], "--thresholds", "t", "--format", "markdown"], "text or json"),
    ],
)
def test_usage_error(arguments: list[str], said: str, cli: Cli) -> None:
    status, out, err = cli(*arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_help_teaches(cli: Cli) -> None:
    status, out, _ = cli("--help")
    assert status == 0
    for word in ("Exit status: 0", "--fail-on", "--max-drop", "--judge", *DECIDING):
        assert word in out


def test_version(cli: Cli) -> None:
    assert cli("--version") == (0, f"taguru-eval-compare {__version__}\n", "")


def test_the_side_is_named(cli: Cli) -> None:
    Path("broken.json").write_text("{", "utf-8")
    assert cli("broken.json", MIXED[1])[2].startswith("taguru-eval-compare: BASE broken.json: ")


def test_changes_go_where_they_are_wanted_whole(cli: Cli) -> None:
    Path("to").mkdir()
    Path("to/c.jsonl").write_text("earlier", "utf-8")
    assert cli(*MIXED, "--out", "to/c.jsonl")[0] == 0
    assert len(Path("to/c.jsonl").read_text("utf-8").splitlines()) == 5
    assert [file.name for file in Path("to").iterdir()] == ["c.jsonl"]


def test_a_failed_write_is_status_1_and_leaves_nothing(cli: Cli) -> None:
    status, out, err = cli(*MIXED, "--out", "no/dir/c.jsonl")
    assert (status, out) == (1, "")
    assert "no/dir/c.jsonl: cannot be written" in err


# -- the gate of its own ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "failed"),
    [
        ([], []),
        (["--fail-on", "regressed"], ["1 case(s) regressed: brand-origin-001"]),
        (
            ["--fail-on", "removed", "--fail-on", "warnings"],
            ["1 case(s) removed: limit-one-011", "2 warning(s), first: case 'english-010'"],
        ),
        # One of seven pairs lost 0.5: 0.0714 on average.
        (["--max-drop", "recall.mrr=0.08"], []),
        (["--max-drop", "recall.mrr=0.07"], ["recall.mrr: fell by 0.071429 on average over 7"]),
    ],
)
def test_failing_on_request(flags: list[str], failed: list[str], cli: Cli) -> None:
    status, out, _ = cli(*MIXED, *flags)
    lines = [line for line in out.splitlines() if line.startswith("FAILED ")]
    assert status == (3 if failed else 0)
    assert len(lines) == len(failed)
    for line, reason in zip(lines, failed, strict=True):
        assert line.startswith(f"FAILED {reason}")
    assert Path("changes.jsonl").exists()


def test_reasons_are_on_stderr_too_when_stdout_is_for_a_machine(cli: Cli) -> None:
    status, out, err = cli(*MIXED, "--format", "json", "--fail-on", "regressed")
    assert status == 3
    assert json.loads(out)["failed"] == ["1 case(s) regressed: brand-origin-001"]
    assert "failed: 1 case(s) regressed" in err


# -- the summary -----------------------------------------------------------------------------


def comparison(base: str, head: str) -> Comparison:
    Path("b.json").write_text(base, "utf-8")
    Path("h.json").write_text(head, "utf-8")
    return compare(*(read_artifact(Path(name), name) for name in ("b.json", "h.json")))


def test_text(cli: Cli) -> None:
    _, out, _ = cli(*MIXED)
    lines = out.splitlines()
    assert lines[0].split(": ")[1] == "1 improved, 1 regressed, 1 added, 1 removed, 9 unchanged"
    table = lines[lines.index("Deciding metrics, whole runs") + 2 :][:9]
    assert [row.split()[0] for row in table] == list(DECIDING)
    assert table[1].split() == ["recall.mrr", "8", "0.875", "0.500", "-0.375"]
    assert "Other aggregates that moved" not in out
    assert "  brand-origin-001: recall.recall_at_k 1.000 -> 0.500 (-0.500), recall.mrr" in out
    assert "this can neither show a change nor rule one out" in out
    assert "\x1b" not in out


def test_other_aggregates_only_if_they_moved(cli: Cli) -> None:
    directory = GOLDEN / "assembly"
    _, out, _ = cli(str(directory / "base.json"), str(directory / "head.json"))
    _, _, others = out.partition("Other aggregates that moved\n")
    names = [line.split()[0] for line in others.partition("\n\n")[0].splitlines()[1:]]
    assert "latency.evidence_ms" in names  # HEAD only
    assert "latency.passage_ms" in names
    assert "lanes.both" not in names
    assert not {*names} & {*DECIDING}


def test_the_ten_worst_cases_by_what_they_lost(cli: Cli) -> None:
    base = artifact(*(mrr(f"c{number:02}", 1) for number in range(12)))
    head = artifact(*(mrr(f"c{number:02}", 1 - number / 20) for number in range(12)))
    lines = changes_view.summary_lines(comparison(base, head))
    start = lines.index("Worst cases (10 of 11 that regressed)") + 1
    assert [line.split(":")[0].strip() for line in lines[start : start + 10]] == [
        f"c{number:02}" for number in range(11, 1, -1)
    ]


def test_wide_names_are_aligned(cli: Cli) -> None:
    metrics = {name: {"value": 1, "n": 1} for name in ("指標", "x.longer_name")}
    definitions = {name: {"statistic": "ratio"} for name in metrics}
    moved = {name: {"value": 2, "n": 1} for name in metrics}
    lines = changes_view.summary_lines(
        comparison(
            artifact(metrics=metrics, definitions=definitions),
            artifact(metrics=moved, definitions=definitions),
        )
    )
    narrow, wide = (next(line for line in lines if name in line) for name in metrics)
    # Each of the two letters takes two columns on a terminal but one character here.
    assert len(wide) - len(narrow) == 2
    assert narrow.rstrip().endswith("+1.000")


def test_no_control_characters_reach_a_terminal(cli: Cli) -> None:
    base, head = artifact(mrr("a\x1b[2J\n", 1)), artifact(mrr("a\x1b[2J\n", 0))
    text = "\n".join(changes_view.summary_lines(comparison(base, head)))
    assert "\x1b" not in text
    assert "a\\x1b[2J\\n: recall.mrr" in text
    assert "\x1b" not in changes_view.markdown(comparison(base, head))


def test_colour_is_for_deciding_metrics_only(cli: Cli) -> None:
    lines = changes_view.summary_lines(
        comparison(artifact(mrr("a", 1)), artifact(mrr("a", 0))), colour=True
    )
    assert [line for line in lines if line.startswith("\x1b[31m  recall.mrr")]
    assert not [line for line in lines if "\x1b[32m" in line]


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
)
def test_colour_on_a_terminal(
    environment: dict[str, str], coloured: bool, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert ("\x1b[31m" in cli(*MIXED)[1]) is coloured


def test_json(cli: Cli) -> None:
    _, out, _ = cli(*MIXED, "--format", "json")
    summary = json.loads(out)
    assert summary["counts"]["regressed"] == 1
    assert [it["metric"] for it in summary["statistics"]] == list(DECIDING)
    assert summary["worst"][0]["case_id"] == "brand-origin-001"
    assert len(summary["warnings"]) == 2
    assert summary["changes"] == "changes.jsonl"


def test_what_chance_may_explain_and_what_not(cli: Cli) -> None:
    base = artifact(*(mrr(f"c{number}", 0.5) for number in range(20)))
    # 12 down, 8 up: p = 0.503. Nothing to conclude, and the text must not read as all clear.
    mixed = artifact(*(mrr(f"c{number}", 0.0 if number < 12 else 1.0) for number in range(20)))
    down = artifact(*(mrr(f"c{number}", 0.0) for number in range(20)))
    unsure = "\n".join(changes_view.summary_lines(comparison(base, mixed)))
    assert "recall.mrr fell, which chance alone could explain" in unsure
    assert "that is not proof that nothing changed" in unsure
    sure = "\n".join(changes_view.summary_lines(comparison(base, down)))
    assert "recall.mrr fell by more than chance would explain (p <0.001 after Holm)" in sure


# -- Markdown --------------------------------------------------------------------------------


def test_markdown(cli: Cli) -> None:
    _, out, _ = cli(*MIXED, "--format", "markdown", "--fail-on", "regressed")
    assert out.startswith("**Retrieval comparison.** 12 case(s) in BASE, 12 in HEAD: 1 improved")
    assert "- **FAILED** 1 case(s) regressed: brand-origin-001\n" in out
    assert "| recall.mrr | 8 | 0.875 | 0.500 | -0.375 |\n" in out
    assert "Left out" not in out


def test_markdown_is_text_and_not_markup(cli: Cli) -> None:
    name = "a|b `c` <img> *d* [e](f) @g"
    page = changes_view.markdown(comparison(artifact(mrr(name, 1)), artifact(mrr(name, 0))))
    assert r"- a\|b \`c\` \<img\> \*d\* \[e\](f) &#64;g: recall.mrr" in page


@pytest.mark.parametrize("length", [20, 3_000, 5_900, 80_000])
def test_markdown_keeps_its_bound_and_says_what_is_missing(length: int, cli: Cli) -> None:
    ids = [f"{number:02}{'青' * length}" for number in range(12)]
    page = changes_view.markdown(
        comparison(
            artifact(*(mrr(case_id, 1) for case_id in ids), inputs={"context": "x"}),
            artifact(*(mrr(case_id, 0) for case_id in ids), inputs={"context": "y"}),
        )
    )
    assert len(page.encode()) <= 60_000
    shown = sum(f"- {number:02}青" in page for number in range(12))
    assert ("_Left out here: " in page) is (shown < 10)
    if shown < 10:
        assert f"{10 - shown} worst case(s)" in page
    assert "| diversity.sources |" in page


def test_markdown_counts_the_warnings_it_leaves_out(cli: Cli) -> None:
    base = artifact(*(mrr(f"c{number:02}", 1) for number in range(14)))
    head = artifact(*({"case_id": f"c{number:02}"} for number in range(14)))
    page = changes_view.markdown(comparison(base, head))
    assert "14 warning(s):" in page
    assert "_Left out here: 4 warning(s)._" in page


# -- judging again ---------------------------------------------------------------------------


@pytest.mark.parametrize("corpus", ["sake", "orchard", "edge", "corners"])
@pytest.mark.parametrize("verdict", ["pass", "fail"])
def test_judged_again_like_the_run_itself(corpus: str, verdict: str, cli: Cli) -> None:
    directory = TESTS / "golden" / corpus
    file = directory / "runs" / f"thresholds-{verdict}" / "evaluation.json"
    thresholds = directory / f"thresholds-{verdict}.json"
    expected = json.loads(file.read_text("utf-8"))["thresholds"]
    run = json.loads((file.parent / "run.json").read_text("utf-8"))
    status, out, _ = cli("--judge", str(file), "--thresholds", str(thresholds), "--format", "json")
    report = json.loads(out)
    for violation in [*expected.get("violations", []), *report.get("violations", [])]:
        if violation["scope"] == "corpus":  # whose reason is in each program's own words
            del violation["reason"]
    assert report == expected
    assert status == run["exit"] == (0 if expected["passed"] else 3)


def test_the_verdict_in_words(cli: Cli) -> None:
    directory = TESTS / "golden" / "sake"
    file = directory / "runs" / "thresholds-fail" / "evaluation.json"
    status, out, _ = cli(
        "--judge", str(file), "--thresholds", str(directory / "thresholds-fail.json")
    )
    violations = json.loads(file.read_text("utf-8"))["thresholds"]["violations"]
    assert status == 3
    lines = [line for line in out.splitlines() if line.startswith("violated: ")]
    assert len(lines) == len(violations)
    assert out.splitlines()[-1].endswith(f"failed, {len(violations)} violation(s)")


def test_a_partial_run_has_no_aggregate_bounds(cli: Cli) -> None:
    artifact = json.loads((GOLDEN / "same" / "base.json").read_text("utf-8"))
    artifact["inputs"]["selection"] = {"selected": 12, "total": 40}
    Path("part.json").write_text(json.dumps(artifact), "utf-8")
    bounds = {"aggregate": {"recall.mrr": {"min": 1}}, "cases": {"overrides": {"unseen": {}}}}
    Path("t.json").write_text(json.dumps({"taguru_evaluate_thresholds": 1, **bounds}), "utf-8")
    status, out, _ = cli("--judge", "part.json", "--thresholds", "t.json", "--format", "json")
    assert status == 0
    (skipped,) = json.loads(out)["skipped"]
    assert "12 of 40 cases were selected" in skipped
    assert (
        "skipped: aggregate 'recall.mrr'"
        in cli("--judge", "part.json", "--thresholds", "t.json")[1]
    )


def test_a_metric_that_the_artifact_does_not_have(cli: Cli) -> None:
    artifact = json.loads((GOLDEN / "same" / "base.json").read_text("utf-8"))
    del artifact["metrics"]["recall.mrr"]
    artifact["metrics"]["rerank.ran"] = {"value": None, "n": 0, "numerator": None}
    Path("earlier.json").write_text(json.dumps(artifact), "utf-8")
    bounds = {"recall.mrr": {"min": 0}, "rerank.ran": {"min": 0}}
    thresholds = {"taguru_evaluate_thresholds": 1, "aggregate": bounds}
    Path("t.json").write_text(json.dumps(thresholds), "utf-8")
    status, out, _ = cli("--judge", "earlier.json", "--thresholds", "t.json")
    assert status == 3
    assert out.splitlines() == [
        "violated: recall.mrr is not among the artifact's metrics: another release may have written"
        " it, so evaluate again",
        "violated: rerank.ran no samples for this metric (n=0)",
        "earlier.json by t.json: failed, 2 violation(s)",
    ]


LATER, ODD = (
    json.dumps({"inputs": {}, "corpus": {"stable": True}, "cases": [], **fields})
    for fields in (
        {"taguru_evaluation": 2, "metrics": {}},
        {"taguru_evaluation": 1, "metrics": {"recall.mrr": {"n": "many"}}},
    )
)


@pytest.mark.parametrize(
    ("judged", "thresholds", "said"),
    [
        ("{}", "{}", "a.json: "),
        (LATER, "{}", "a.json: taguru_evaluation is 2, and this version reads 1 only"),
        (ODD, '{"taguru_evaluate_thresholds": 1}', "a.json: metrics.recall.mrr: "),
        (None, '{"taguru_evaluate_thresholds": 2}', "t.json: "),
        (
            None,
            '{"taguru_evaluate_thresholds": 1, "aggregate": {"x": {"min": 1}}}',
            "t.json: aggregate: unknown metric 'x'",
        ),
        (
            None,
            '{"taguru_evaluate_thresholds": 1, "cases": {"overrides": {"x": {}}}}',
            "t.json: cases.overrides.x: the dataset has no case 'x'",
        ),
    ],
)
def test_what_cannot_be_judged(judged: str | None, thresholds: str, said: str, cli: Cli) -> None:
    content = (GOLDEN / "same" / "base.json").read_text("utf-8") if judged is None else judged
    Path("a.json").write_text(content, "utf-8")
    Path("t.json").write_text(thresholds, "utf-8")
    status, out, err = cli("--judge", "a.json", "--thresholds", "t.json")
    assert (status, out) == (2, "")
    assert err.startswith(f"taguru-eval-compare: {said}")


# -- as a process ----------------------------------------------------------------------------


def test_neither_pytest_nor_requests_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from pytest_taguru.compare import main; main(sys.argv[1:]);"
        "print(*sorted({'pytest', '_pytest', 'requests', 'wcwidth'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *MIXED, "--out", str(tmp_path / "c.jsonl")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == ""


def test_output_that_the_terminal_cannot_show(tmp_path: Path) -> None:
    for name, value in (("b.json", 1), ("h.json", 0)):
        (tmp_path / name).write_text(artifact(mrr("青嶺", value)), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest_taguru.compare", "b.json", "h.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\\u9752\\u5dba: recall.mrr" in done.stdout
    assert done.stderr == ""


def test_a_reader_that_has_seen_enough_changes_no_status(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "pytest_taguru.compare", *MIXED, "--fail-on", "regressed"],
            cwd=tmp_path,
            stdout=nobody,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="no such file here")
def test_an_artifact_from_a_pipe(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_taguru.compare", "/dev/stdin", MIXED[1]],
        cwd=tmp_path,
        input=Path(MIXED[0]).read_bytes(),
        capture_output=True,
        check=True,
    )
    assert b"1 improved, 1 regressed" in done.stdout


# -- the documentation -----------------------------------------------------------------------

DOCS = TESTS.parent / "docs"
COMMANDS = [
    line.removeprefix("$ taguru-eval-compare ")
    for page in ("comparing.md", "baselines.md")
    for line in (DOCS / page).read_text("utf-8").splitlines()
    if line.startswith("$ taguru-eval-compare ")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_documentation(command: str, cli: Cli) -> None:
    shutil.copy(MIXED[0], "baseline.json")
    shutil.copy(MIXED[1], "evaluation.json")
    bounds = {"taguru_evaluate_thresholds": 1, "aggregate": {"recall.mrr": {"min": 0.9}}}
    Path("thresholds.json").write_text(json.dumps(bounds), "utf-8")
    status, out, err = cli(*command.split())
    assert status == (3 if "--" in command else 0)
    assert out
    assert "Traceback" not in err


def test_the_page_lists_the_metrics_that_decide() -> None:
    page = (DOCS / "comparing.md").read_text("utf-8")
    section = page.partition("## What decides\n")[2].partition("\n## ")[0]
    listed = [line for line in section.splitlines() if line.startswith("- ")]
    assert re.findall(r"`([a-z_.]+)`", "\n".join(listed)) == [*DECIDING]


def test_the_rows_shown_in_the_documentation_are_real(cli: Cli) -> None:
    page = (DOCS / "comparing.md").read_text("utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0].splitlines()
    printed = {" ".join(line.split()) for line in cli(*MIXED)[1].splitlines()}
    assert {" ".join(line.split()) for line in shown} <= printed
