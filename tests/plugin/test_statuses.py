"""Exit statuses, and what becomes of an earlier artifact: untouched or replaced, never mixed."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fake_taguru import FakeTaguru
from tests.support.replay_server import Answer, LoopbackServer, Request, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.runs import Run, Workspace

EARLIER = b'{"an": "earlier artifact"}\r\n'

#: The case `found` finds its source at the first rank, `late` at the second, `lost` not at all.
HITS = {
    "found": [("corpus/water.md", 0)],
    "late": [("corpus/rice.md", 0), ("corpus/water.md", 0)],
}
CASES = [
    {"case_id": name, "query": name, "expected_sources": [{"source": "corpus/water.md"}]}
    for name in ("found", "late", "lost")
]
ORDINARY_FAILURE = "def test_ordinary(): assert 1 + 1 == 3\n"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with FakeTaguru(hits=HITS).serve() as server:
        yield server


@pytest.fixture
def project(workspace: Workspace) -> Workspace:
    """Three cases, an ordinary test that passes, an earlier artifact."""
    workspace.dataset(*CASES)
    workspace.write("test_ordinary.py", "def test_ordinary(): pass\n")
    (workspace.directory / "evaluation.json").write_bytes(EARLIER)
    return workspace


def bounds(project: Workspace, **members: Any) -> str:
    project.thresholds(**members)
    return "--taguru-thresholds=thresholds.json"


CASE_BOUND = {"cases": {"default": {"recall.mrr": {"min": 0.5}}}}
AGGREGATE_BOUND = {"aggregate": {"recall.mrr": {"min": 0.9}}}
MET = {"aggregate": {"recall.mrr": {"min": 0.5}}, "cases": {"default": {"recall.mrr": {"min": 0}}}}


def assert_untouched(run: Run) -> None:
    assert (run.directory / "evaluation.json").read_bytes() == EARLIER
    assert not list(run.directory.glob(".evaluation.json*")), "a temporary file was left"


def assert_written(run: Run, *case_ids: str) -> Any:
    artifact = run.artifact()
    assert artifact["taguru_evaluation"] == 1
    assert [case["case_id"] for case in artifact["cases"]] == list(case_ids)
    assert not list(run.directory.glob(".evaluation.json*")), "a temporary file was left"
    return artifact


def assert_no_trace_of_ours(run: Run) -> None:
    for words in ("Traceback", "pytest_taguru/", "During handling of", "INTERNALERROR"):
        assert words not in run.stdout + run.stderr, run.shown


def assert_said_once(run: Run, words: str) -> None:
    assert (run.stdout + run.stderr).count(words) == 1, run.shown
    assert "traceback entries are hidden" not in run.stdout, run.shown


ALL = ("found", "late", "lost")


# -- 0 ---------------------------------------------------------------------------------------


def test_0_without_thresholds(project: Workspace, server: LoopbackServer) -> None:
    run = project.evaluate(server.url)
    assert run.status == 0, run.shown
    artifact = assert_written(run, *ALL)
    assert artifact["thresholds"] is None
    assert [case["recall"]["mrr"] for case in artifact["cases"]] == [1.0, 0.5, 0.0]


def test_0_with_bounds_that_are_met(project: Workspace, server: LoopbackServer) -> None:
    run = project.evaluate(server.url, bounds(project, **MET))
    assert run.status == 0, run.shown
    assert assert_written(run, *ALL)["thresholds"]["passed"] is True


def test_0_with_a_failed_lane_that_no_bound_is_about(project: Workspace) -> None:
    def fail_one(request: Request) -> Answer | None:
        if request.body and request.body.get("query") == "late":
            return refusal(503, "busy", "overloaded")
        return None

    with FakeTaguru(hits=HITS, hook=fail_one).serve() as server:
        run = project.evaluate(server.url, "-rs", bounds(project, **MET))
    assert run.status == 0, run.shown
    assert_written(run, *ALL)
    assert "1 skipped" in run.stdout
    assert "busy" in run.stdout


# -- 1 ---------------------------------------------------------------------------------------


def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.parametrize("earlier", [True, False])
def test_1_if_there_is_no_server(project: Workspace, *, earlier: bool) -> None:
    if not earlier:
        (project.directory / "evaluation.json").unlink()
    url = f"http://127.0.0.1:{unused_port()}"
    run = project.evaluate(url + "/base")
    assert run.status == 1, run.shown
    problems = [line for line in run.complaints if url in line]
    assert len(problems) == 1, run.shown
    assert "0x" not in problems[0], "a reason, not an object"
    assert_no_trace_of_ours(run)
    if earlier:
        assert_untouched(run)
    else:
        assert not (run.directory / "evaluation.json").exists()


def after_the_cases(answer: Answer) -> FakeTaguru:
    """A server that answers so when the context is read once every case was searched for."""
    searched: set[str] = set()

    def hook(request: Request) -> Answer | None:
        if request.body:
            searched.add(request.body["query"])
        gone = request.path == "/contexts/sake" and len(searched) == len(CASES)
        return answer if gone else None

    return FakeTaguru(hits=HITS, hook=hook)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(drop=True), "/contexts/sake"),
        (refusal(500, "boom", "internal"), "answered 500: boom"),
        (refusal(404, "gone", "no_context"), "answered 404: gone"),
        (Answer(body='{"result": {"revision": 7}}'), "/contexts/sake"),
    ],
    ids=["gone", "500", "404", "shape"],
)
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "xdist"])
def test_1_if_the_server_is_gone_after_the_last_case(
    answer: Answer, words: str, workers: list[str], project: Workspace
) -> None:
    with after_the_cases(answer).serve() as server:
        run = project.evaluate(server.url, *workers)
    assert run.status == 1, run.shown
    assert [words in line for line in run.complaints].count(True) == 1, run.shown
    assert_no_trace_of_ours(run)
    assert_untouched(run)


def test_1_even_if_a_bound_is_violated_too(project: Workspace) -> None:
    with after_the_cases(Answer(drop=True)).serve() as server:
        run = project.evaluate(server.url, bounds(project, **CASE_BOUND))
    assert run.status == 1, run.shown
    assert_untouched(run)


def test_1_if_the_artifact_cannot_be_written_in_the_end(
    project: Workspace, server: LoopbackServer
) -> None:
    project.write("out/evaluation.json", "earlier")
    project.write(
        "conftest.py",
        "import shutil\n"
        "def pytest_taguru_case(item, block):\n"
        "    shutil.rmtree('out', ignore_errors=True)\n",
    )
    run = project.evaluate(server.url, "--taguru-out=out/evaluation.json")
    assert run.status == 1, run.shown
    assert ["out/evaluation.json" in line for line in run.complaints].count(True) == 1, run.shown
    assert_no_trace_of_ours(run)
    assert not (project.directory / "out").exists()


@pytest.mark.parametrize("out", ["no/such/evaluation.json", ".", "test_ordinary.py/e.json"])
def test_1_if_the_artifact_can_never_be_written(
    out: str, project: Workspace, server: LoopbackServer
) -> None:
    run = project.evaluate(server.url, f"--taguru-out={out}")
    assert run.status == 1, run.shown
    assert len(run.complaints) == 1, run.shown
    assert out in run.complaints[0]
    assert server.requests == [], "found out before the first request"
    assert_untouched(run)


def test_1_for_ordinary_failures_with_a_whole_artifact(
    project: Workspace, server: LoopbackServer
) -> None:
    project.write("test_ordinary.py", ORDINARY_FAILURE)
    run = project.evaluate(server.url)
    assert run.status == 1, run.shown
    assert_written(run, *ALL)


@pytest.mark.parametrize(
    "failing",
    [
        ORDINARY_FAILURE,
        "import pytest\n"
        "@pytest.fixture\n"
        "def broken(): raise RuntimeError\n"
        "def test_ordinary(broken): pass\n",
        "import pytest\n"
        "@pytest.fixture\n"
        "def broken():\n"
        "    yield\n"
        "    raise RuntimeError\n"
        "def test_ordinary(broken): pass\n",
    ],
    ids=["call", "setup", "teardown"],
)
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "xdist"])
def test_1_for_ordinary_failures_stays_1_if_the_gate_is_violated(
    failing: str, workers: list[str], project: Workspace, server: LoopbackServer
) -> None:
    project.write("test_ordinary.py", failing)
    run = project.evaluate(server.url, *workers, bounds(project, **CASE_BOUND, **AGGREGATE_BOUND))
    assert run.status == 1, run.shown
    assert assert_written(run, *ALL)["thresholds"]["passed"] is False


def test_1_if_a_users_fixture_fails_for_the_cases(
    project: Workspace, server: LoopbackServer
) -> None:
    project.write(
        "conftest.py",
        "import pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def broken(request):\n"
        "    assert 'late' not in request.node.name\n",
    )
    run = project.evaluate(server.url, bounds(project, **CASE_BOUND))
    assert run.status == 1, run.shown
    assert "conftest.py:4" in run.stdout, "somebody's own error looks as always"
    assert_untouched(run)
    assert "2 of 3 cases" in run.stdout


# -- 2 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordinary", ["def test_ordinary(): pass\n", ORDINARY_FAILURE])
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "xdist"])
def test_2_for_an_unknown_context(
    ordinary: str, workers: list[str], project: Workspace, server: LoopbackServer
) -> None:
    project.write("test_ordinary.py", ordinary)
    run = project.evaluate(server.url, *workers, context="nowhere")
    assert run.status == 2, run.shown
    assert run.complaints == [
        f"taguru: unknown context 'nowhere': {server.url}/contexts/nowhere answered 404:"
        " no such context"
    ]
    assert_said_once(run, "unknown context")
    assert_no_trace_of_ours(run)
    assert all(request.method == "GET" for request in server.requests)
    assert_untouched(run)


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "xdist"])
def test_2_for_a_source_that_the_corpus_does_not_have(
    workers: list[str], project: Workspace, server: LoopbackServer
) -> None:
    project.dataset(
        *CASES, {"case_id": "bad", "query": "q", "expected_sources": [{"source": "nowhere.md"}]}
    )
    run = project.evaluate(server.url, *workers)
    assert run.status == 2, run.shown
    assert run.complaints == [
        "taguru: eval.jsonl:5: case 'bad': expected_sources[0]:"
        " the context 'sake' has no source 'nowhere.md'"
    ]
    assert_said_once(run, "nowhere.md")
    assert all(request.method == "GET" for request in server.requests)
    assert_untouched(run)


def test_2_for_a_context_of_the_header(project: Workspace, server: LoopbackServer) -> None:
    header = {"taguru_eval": 1, "default_target": {"context": "nowhere"}}
    lines = ["", *map(json.dumps, [header, *CASES])]
    project.write("eval.jsonl", "\n".join(lines))
    run = project.run("--taguru-eval=eval.jsonl", f"--taguru-url={server.url}")
    assert run.status == 2, run.shown
    assert [line.partition(": http")[0] for line in run.complaints] == [
        "taguru: eval.jsonl:2: unknown context 'nowhere'"
    ]


@pytest.mark.parametrize("fixture", ["", "taguru_run"], ids=["case", "ordinary"])
@pytest.mark.parametrize("drive", ["--tb=auto", "--tb=native", "--full-trace", "-vv"])
def test_no_item_repeats_why_no_case_can_be_run(
    drive: str, fixture: str, project: Workspace, server: LoopbackServer
) -> None:
    """Neither a case nor an ordinary test that asks for the run."""
    project.write("test_ordinary.py", f"def test_ordinary({fixture}): pass\n")
    run = project.evaluate(server.url, drive, context="nowhere")
    assert run.status == 2, run.shown
    assert "\ntaguru: no case can be run; the reason is on stderr\n" in run.stdout
    assert_said_once(run, "unknown context")
    assert_no_trace_of_ours(run)


def test_2_for_a_dataset_that_is_refused(project: Workspace, server: LoopbackServer) -> None:
    project.dataset({"case_id": "c"})
    run = project.evaluate(server.url)
    assert run.status == 2, run.shown
    assert server.requests == []
    assert_untouched(run)


@pytest.mark.parametrize("when", ["before", "after"])
def test_2_when_the_user_interrupts(when: str, project: Workspace, server: LoopbackServer) -> None:
    """An interruption is told from the gate, whether or not a case was violated by then."""
    project.write("test_ordinary.py", "def test_ordinary(): pass\n")
    project.write(
        "conftest.py",
        "def pytest_runtest_setup(item):\n"
        f"    if {'lost' if when == 'after' else 'found'!r} in item.name:\n"
        "        raise KeyboardInterrupt\n",
    )
    bound = {"cases": {"default": {"recall.mrr": {"min": 0.9}}}}
    run = project.evaluate(server.url, bounds(project, **bound))
    assert run.status == 2, run.shown
    assert_untouched(run)
    assert f"{2 if when == 'after' else 0} of 3 cases" in run.stdout, run.shown


# -- 3 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [[], ["-n2"], ["-n0"]], ids=["serial", "xdist", "n0"])
@pytest.mark.parametrize(
    ("members", "scopes"),
    [
        (CASE_BOUND, ["case"]),
        (AGGREGATE_BOUND, ["aggregate"]),
        ({**CASE_BOUND, **AGGREGATE_BOUND}, ["aggregate", "case"]),
        ({"aggregate": {"coverage.labels": {"min": 0}}}, ["aggregate"]),
    ],
    ids=["case", "aggregate", "both", "no-samples"],
)
def test_3_for_a_violated_bound(
    members: dict[str, Any],
    scopes: list[str],
    workers: list[str],
    project: Workspace,
    server: LoopbackServer,
) -> None:
    run = project.evaluate(server.url, *workers, bounds(project, **members))
    assert run.status == 3, run.shown
    thresholds = assert_written(run, *ALL)["thresholds"]
    assert thresholds["passed"] is False
    assert [violation["scope"] for violation in thresholds["violations"]] == scopes
    assert "INTERNALERROR" not in run.stdout


def changing(project: Workspace, **members: Any) -> Run:
    """A run during which somebody writes to the corpus."""
    fake = FakeTaguru(hits=HITS)

    def write(request: Request) -> Answer | None:
        if request.method == "POST":
            fake.graph_revision = 16
        return None

    fake.hook = write
    with fake.serve() as server:
        return project.evaluate(server.url, bounds(project, **members))


def test_3_for_a_corpus_that_changes(project: Workspace) -> None:
    run = changing(project)
    assert run.status == 3, run.shown
    artifact = assert_written(run, *ALL)
    assert artifact["corpus"]["stable"] is False
    assert [v["scope"] for v in artifact["thresholds"]["violations"]] == ["corpus"]


def test_0_for_a_corpus_that_may_change(project: Workspace) -> None:
    run = changing(project, allow_unstable_corpus=True)
    assert run.status == 0, run.shown
    assert assert_written(run, *ALL)["corpus"]["stable"] is False


def test_3_for_an_unmet_case_if_that_is_strict(project: Workspace, server: LoopbackServer) -> None:
    run = project.evaluate(server.url, "--taguru-strict")
    assert run.status == 3, run.shown
    artifact = assert_written(run, *ALL)
    assert artifact["thresholds"] is None
    assert "lost" in json.dumps(artifact["strict"])
    assert "late" not in json.dumps(artifact["strict"])


def test_3_for_a_failed_lane_if_that_is_strict(project: Workspace) -> None:
    def fail(request: Request) -> Answer | None:
        return refusal(503, "busy", "x") if request.path.endswith("/search") else None

    project.dataset({"case_id": "c", "query": "q"})
    with FakeTaguru(hook=fail).serve() as server:
        run = project.evaluate(server.url, "--taguru-strict")
    assert run.status == 3, run.shown
    assert_written(run, "c")


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "xdist"])
@pytest.mark.parametrize("flag", ["-x", "--maxfail=1"])
def test_3_if_a_violated_case_ends_the_run(
    flag: str, workers: list[str], project: Workspace, server: LoopbackServer
) -> None:
    """Under xdist pytest itself says 2 and not 1; both are due to our failed case alone."""
    more = [{"case_id": f"more-{n}", "query": "found"} for n in range(30)]
    project.dataset(CASES[2], *more)
    run = project.evaluate(server.url, flag, *workers, bounds(project, **CASE_BOUND))
    assert run.status == 3, run.shown
    assert_untouched(run)
    assert "of 31 cases" in run.stdout


def test_3_whatever_xfail_says(project: Workspace, server: LoopbackServer) -> None:
    project.write(
        "conftest.py",
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        item.add_marker(pytest.mark.xfail)\n",
    )
    project.write("test_ordinary.py", "def test_ordinary(): assert False\n")
    run = project.evaluate(server.url, bounds(project, **CASE_BOUND))
    assert run.status == 3, run.shown
    assert_written(run, *ALL)


def test_3_for_a_selected_case_only(project: Workspace, server: LoopbackServer) -> None:
    flag = bounds(project, **CASE_BOUND, **AGGREGATE_BOUND)
    run = project.evaluate(server.url, flag, "-k", "lost or late")
    assert run.status == 3, run.shown
    artifact = assert_written(run, "late", "lost")
    assert artifact["inputs"]["selection"] == {"selected": 2, "total": 3}
    assert [v["case_id"] for v in artifact["thresholds"]["violations"]] == ["lost"]
    run = project.evaluate(server.url, flag, "-k", "late or ordinary")
    assert run.status == 0, run.shown
    assert len(assert_written(run, "late")["thresholds"]["skipped"]) == 1


def test_a_case_that_is_skipped_by_a_mark_counts_as_deselected(
    project: Workspace, server: LoopbackServer
) -> None:
    project.write(
        "conftest.py",
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if item.name == 'lost':\n"
        "            item.add_marker(pytest.mark.skip(reason='known'))\n",
    )
    run = project.evaluate(server.url, bounds(project, **CASE_BOUND))
    assert run.status == 0, run.shown
    artifact = assert_written(run, "found", "late")
    assert artifact["inputs"]["selection"] == {"selected": 2, "total": 3}
    assert "lost" not in {request.body["query"] for request in server.requests if request.body}


# -- what is pytest's own --------------------------------------------------------------------


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "xdist"])
def test_a_file_that_cannot_be_collected(
    workers: list[str], project: Workspace, server: LoopbackServer
) -> None:
    project.write("test_ordinary.py", "import no_such_module_anywhere\n")
    run = project.evaluate(server.url, *workers, bounds(project, **CASE_BOUND))
    assert run.status == (1 if workers else 2), run.shown  # as pytest says without the plugin
    if workers:  # it does not mind, and runs what could be collected
        assert_written(run, *ALL)
    else:
        assert server.requests == []
        assert_untouched(run)
    assert "no_such_module_anywhere" in run.stdout


def test_5_if_nothing_was_selected(project: Workspace, server: LoopbackServer) -> None:
    run = project.evaluate(server.url, "-k", "nothing-of-this-name")
    assert run.status == 5, run.shown
    assert server.requests == []
    assert_untouched(run)


def test_4_for_a_usage_error_of_pytest(project: Workspace, server: LoopbackServer) -> None:
    run = project.evaluate(server.url, "--no-such-flag")
    assert run.status == 4, run.shown
    assert server.requests == []
    assert_untouched(run)


def test_the_status_of_pytest_exit(project: Workspace, server: LoopbackServer) -> None:
    project.write(
        "test_ordinary.py",
        "import pytest\ndef test_ordinary(): pytest.exit('enough', returncode=7)\n",
    )
    run = project.evaluate(server.url, bounds(project, **CASE_BOUND))
    assert run.status == 7, run.shown
    assert server.requests == []
    assert_untouched(run)


def test_an_internal_error_leaves_no_fresh_artifact(
    project: Workspace, server: LoopbackServer
) -> None:
    project.write(
        "conftest.py",
        "def pytest_runtest_logfinish(nodeid):\n"
        "    if 'late' in nodeid:\n"
        "        raise RuntimeError('somebody else broke it')\n",
    )
    run = project.evaluate(server.url)
    assert run.status == 3, run.shown
    assert "INTERNALERROR" in run.stdout + run.stderr
    assert_untouched(run)


def test_only_a_listing_changes_nothing(project: Workspace, server: LoopbackServer) -> None:
    run = project.evaluate(server.url, "--collect-only", "-q", bounds(project, **CASE_BOUND))
    assert run.status == 0, run.shown
    for name in ALL:
        assert f"eval.jsonl::{name}" in run.stdout
    assert server.requests == []
    assert_untouched(run)


# -- the hook --------------------------------------------------------------------------------

EXIT_HOOK = """
from pathlib import Path

def pytest_taguru_exitstatus(session, report, exitstatus):
    assert not hasattr(session.config, "workerinput")
    try:
        report.complete = None
    except AttributeError:
        frozen = True
    scopes = [v.scope for v in report.thresholds.violations] if report.thresholds else None
    with Path("calls").open("a") as calls:
        print(report.complete, report.judged, report.total, scopes, frozen, exitstatus, file=calls)
    return {chosen}
"""


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "xdist"])
@pytest.mark.parametrize(("chosen", "status"), [("42", 42), ("0", 0), ("None", 3)])
def test_a_conftest_may_choose_the_status(
    chosen: str, status: int, workers: list[str], project: Workspace, server: LoopbackServer
) -> None:
    project.write("conftest.py", EXIT_HOOK.replace("{chosen}", chosen))
    run = project.evaluate(server.url, *workers, bounds(project, **CASE_BOUND))
    assert run.status == status, run.shown
    calls = (project.directory / "calls").read_text().splitlines()
    assert calls == ["True 3 3 ['case'] True 1"]
    assert_written(run, *ALL)


def test_the_hook_is_told_of_a_run_that_was_cut_short(project: Workspace) -> None:
    project.write("conftest.py", EXIT_HOOK.replace("{chosen}", "None"))
    with after_the_cases(Answer(drop=True)).serve() as server:
        run = project.evaluate(server.url)
    assert run.status == 1, run.shown
    assert (project.directory / "calls").read_text() == "False 3 3 None True 0\n"


def test_the_hook_is_not_called_without_cases(project: Workspace, server: LoopbackServer) -> None:
    project.write("conftest.py", EXIT_HOOK.replace("{chosen}", "42"))
    run = project.evaluate(server.url, "test_ordinary.py", "-k", "ordinary")
    assert run.status == 0, run.shown
    assert not (project.directory / "calls").exists()
    assert_untouched(run)


def test_a_hook_that_fails_is_nobody_elses_error(
    project: Workspace, server: LoopbackServer
) -> None:
    project.write(
        "conftest.py",
        "def pytest_taguru_exitstatus(session, report, exitstatus):\n"
        "    raise RuntimeError('mine')\n",
    )
    run = project.evaluate(server.url)
    assert run.status != 0, run.shown
    assert "RuntimeError: mine" in run.stdout + run.stderr
