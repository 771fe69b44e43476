"""Cases in flight: as many as allowed, the same requests, one end for all."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.artifact_diff import differences
from tests.support.fake_taguru import FakeTaguru
from tests.support.held import NO_TIME_OUT, PATIENCE, Holder, finish, start, start_python
from tests.support.live import LiveServer, find_binary
from tests.support.replay_server import Answer, Recording, Request, refusal, replay
from tests.support.runs import GOLDEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.replay_server import LoopbackServer
    from tests.support.runs import Run, Workspace

EARLIER = b'{"an": "earlier artifact"}\n'
#: Waits for a client whose process ends: nothing else ends its requests.
posix_only = pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")


def cases(count: int) -> list[dict[str, Any]]:
    """Cases that ask six things each, all of them naming the case."""
    return [
        {
            "case_id": f"c{number}",
            "query": f"c{number} ?",
            "cues": [f"c{number} cue", f"c{number} other cue"],
            "expected_sources": [{"source": "corpus/water.md"}],
            "expected_concepts": ["water"],
            "expected_labels": ["flows"],
            "expected_citations": [{"source": f"c{number}", "paragraph": 1}],
        }
        for number in range(count)
    ]


def case_of(request: Request) -> str | None:
    """The case that a request is about; None for those before and after the cases."""
    found = re.search(r'"(c\d+)[ "]', json.dumps(request.body))
    return found.group(1) if found else None


def is_search(request: Request) -> bool:
    return request.path.endswith("/sources/search")


def flags(server: LoopbackServer, *more: str) -> list[str]:
    return [
        "--taguru-eval=eval.jsonl",
        "--taguru-context=sake",
        f"--taguru-url={server.url}",
        *more,
    ]


# -- the same whatever the concurrency ---------------------------------------------------------


@pytest.mark.parametrize("corpus", ["sake", "corners"])
def test_requests_and_artifact_do_not_depend_on_it(corpus: str, workspace: Workspace) -> None:
    workspace.corpus(corpus)
    recorded = next((GOLDEN / corpus / "runs" / "baseline").glob("exchanges.jsonl"))
    context = json.loads((GOLDEN / corpus / "corpus.json").read_text("utf-8"))["context"]
    seen: list[tuple[Counter[str], Any]] = []
    for number in (1, 2, 8, 64):
        with replay(Recording.load(recorded)) as server:
            run = workspace.evaluate(server.url, f"--taguru-concurrency={number}", context=context)
        assert run.status == 0, run.shown
        artifact = run.artifact()
        assert artifact["inputs"].pop("concurrency") == number
        seen.append((server.request_counts, artifact))
    counts, artifact = seen[0]
    assert counts.total() > 20
    for other_counts, other_artifact in seen[1:]:
        assert other_counts == counts
        assert differences(artifact, other_artifact) == []
        assert list(other_artifact) == list(artifact)


@pytest.mark.live
def test_the_real_server_answers_eight_as_one(workspace: Workspace) -> None:
    workspace.corpus("sake")
    with LiveServer(find_binary(), providers=False) as server:
        context = server.seed("sake")
        artifacts = []
        for number in (1, 8):
            run = workspace.evaluate(server.url, f"--taguru-concurrency={number}", context=context)
            assert run.status == 0, run.shown
            artifacts.append(run.artifact())
            assert artifacts[-1]["inputs"].pop("concurrency") == number
    assert artifacts[0]["corpus"]["stable"] is True
    assert differences(*artifacts) == []


def test_the_requests_of_a_case_go_one_after_the_other(workspace: Workspace) -> None:
    workspace.dataset(*cases(24))
    orders: list[dict[str, list[str]]] = []
    for number in (1, 8):
        lock = threading.Lock()
        under_way: Counter[str] = Counter()
        overlaps: list[str] = []

        def hook(
            request: Request,
            lock: threading.Lock = lock,
            under_way: Counter[str] = under_way,
            overlaps: list[str] = overlaps,
        ) -> Answer | None:
            name = case_of(request)
            if name is None:
                return None
            with lock:
                under_way[name] += 1
                if under_way[name] > 1:
                    overlaps.append(name)
            answer = FakeTaguru().answer(request)
            with lock:
                under_way[name] -= 1
            return answer

        with FakeTaguru(hook=hook).serve() as server:
            run = workspace.evaluate(server.url, f"--taguru-concurrency={number}")
        assert run.status == 0, run.shown
        assert overlaps == []
        order: dict[str, list[str]] = defaultdict(list)
        for request in server.requests:
            order[case_of(request) or "around"].append(request.key)
        orders.append(dict(order))
    assert len(orders[0]) == 25
    assert all(len(requests) == 6 for name, requests in orders[0].items() if name != "around")
    assert orders[0] == orders[1]


@pytest.mark.parametrize("number", [1, 2, 8, 64])
def test_as_many_as_allowed_are_under_way_and_no_more(number: int, workspace: Workspace) -> None:
    """Every search waits until so many are under way, which would never be with fewer."""
    changed = threading.Condition()
    now, most = 0, 0

    def hook(request: Request) -> Answer | None:
        nonlocal now, most
        with changed:
            now += 1
            most = max(most, now)
            changed.notify_all()
            if is_search(request):
                changed.wait_for(lambda: most >= number, PATIENCE)
        try:
            return FakeTaguru().answer(request)
        finally:
            with changed:
                now -= 1

    workspace.dataset(*cases(2 * number + 16))
    with FakeTaguru(hook=hook).serve() as server:
        run = workspace.evaluate(server.url, f"--taguru-concurrency={number}")
    assert run.status == 0, run.shown
    assert most == number
    connections = {request.client for request in server.requests}
    assert len(connections) <= number, "connections are kept and used again"


def test_items_report_in_order_whatever_ends_first(workspace: Workspace) -> None:
    """The first case is answered last of the eight that are in flight."""
    others = threading.Semaphore(0)

    def hook(request: Request) -> Answer | None:
        if is_search(request):
            if case_of(request) == "c0":
                for _ in range(7):
                    assert others.acquire(timeout=PATIENCE)
            else:
                others.release()
        return None

    workspace.dataset(*cases(12))
    with FakeTaguru(hook=hook).serve() as server:
        run = workspace.evaluate(server.url, "-v")
    assert run.status == 0, run.shown
    names = re.findall(r"^eval\.jsonl::(c\d+) PASSED", run.stdout, re.M)
    assert names == [f"c{number}" for number in range(12)]
    assert [case["case_id"] for case in run.artifact()["cases"]] == names


# -- which number it is ------------------------------------------------------------------------

SLOW = {"max": 1e9}


@pytest.mark.parametrize(
    ("members", "arguments", "number", "line"),
    [
        ({}, [], 8, "up to 8 cases in flight"),
        ({}, ["--taguru-concurrency=3"], 3, "up to 3 cases in flight"),
        ({}, ["-o", "taguru_concurrency=5"], 5, "up to 5 cases in flight"),
        ({}, ["--taguru-concurrency=1"], 1, "1 case at a time"),
        (
            {"aggregate": {"latency.citation_ms": SLOW}},
            [],
            1,
            "1 case at a time, since a latency is bounded",
        ),
        (
            {"cases": {"default": {"latency.passage_ms": SLOW}}},
            [],
            1,
            "1 case at a time, since a latency is bounded",
        ),
        (
            {"cases": {"overrides": {"c1": {"latency.passage_ms": SLOW}}}},
            [],
            1,
            "1 case at a time, since a latency is bounded",
        ),
        (
            {"aggregate": {"latency.citation_ms": SLOW}},
            ["--taguru-concurrency=4"],
            4,
            "up to 4 cases in flight",
        ),
        (
            {"aggregate": {"latency.citation_ms": SLOW}},
            ["-o", "taguru_concurrency=2"],
            2,
            "up to 2 cases in flight",
        ),
    ],
)
def test_how_many_cases_are_in_flight(
    members: dict[str, Any], arguments: list[str], number: int, line: str, workspace: Workspace
) -> None:
    workspace.dataset(*cases(2))
    workspace.thresholds(**members)
    with FakeTaguru().serve() as server:
        run = workspace.evaluate(server.url, "--taguru-thresholds=thresholds.json", *arguments)
    assert run.status == 0, run.shown
    assert f"taguru: {line}" in run.stdout.splitlines()
    assert run.artifact()["inputs"]["concurrency"] == number


# -- a server that is too busy -----------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 8])
def test_too_busy_is_recorded_and_not_tried_again(number: int, workspace: Workspace) -> None:
    def busy(request: Request) -> Answer | None:
        if is_search(request) and case_of(request) == "c0":
            return Answer(status=429, body='{"error": "slow down"}', headers={"Retry-After": "7"})
        if request.path.endswith("/citations") and case_of(request) == "c1":
            return Answer(status=503, body=" later \n", headers={"retry-after": "0"})
        if request.path.endswith("/resolve") and case_of(request) == "c2":
            return refusal(503, "resting", "overloaded")
        return None

    workspace.dataset(*cases(4))
    with FakeTaguru(hook=busy).serve() as server:
        run = workspace.evaluate(server.url, "-rs", f"--taguru-concurrency={number}")
    assert run.status == 0, run.shown
    assert set(server.request_counts.values()) == {1, 2}, "only the context is read twice"
    assert [key for key, count in server.request_counts.items() if count == 2] == [
        '["GET", "/contexts/sake", null]'
    ]
    first, second, third, fourth = run.artifact()["cases"]
    home = f"{server.url}/contexts/sake"
    assert first["passage"]["message"] == (
        f"{home}/sources/search answered 429: slow down (Retry-After: 7)"
    )
    (check,) = second["citations"]["checks"]
    assert check["message"] == f"{home}/citations answered 503: later (Retry-After: 0)"
    assert check["code"] is None
    concepts = [cue for cue in third["structural"]["cues"] if cue["kind"] == "concept"]
    assert [cue["error"] for cue in concepts] == [f"{home}/resolve answered 503: resting"] * 2
    assert fourth["passage"]["outcome"] == "searched"
    assert run.artifact()["metrics"]["passage.failure_rate"] == {
        "value": 0.25,
        "n": 4,
        "numerator": 1,
    }
    assert "3 skipped" in run.stdout


# -- sessions with fewer connections than cases ------------------------------------------------


@pytest.mark.parametrize(
    "adapter", ["HTTPAdapter()", "HTTPAdapter(pool_maxsize=1, pool_block=True)"]
)
def test_more_cases_than_connections_never_block_for_ever(
    adapter: str, workspace: Workspace
) -> None:
    workspace.dataset(*cases(70))
    workspace.write(
        "conftest.py",
        "import pytest, requests\n"
        "from requests.adapters import HTTPAdapter\n"
        "@pytest.fixture(scope='session')\n"
        "def taguru_http():\n"
        "    with requests.Session() as session:\n"
        f"        session.mount('http://', {adapter})\n"
        "        yield session\n",
    )
    with FakeTaguru().serve() as server:
        run = workspace.evaluate(server.url, "--taguru-concurrency=64")
    assert run.status == 0, run.shown
    assert "70 passed" in run.stdout
    assert len(run.artifact()["cases"]) == 70


# -- the end -----------------------------------------------------------------------------------

#: What ends a run after its first case, whatever else is under way.
ENDS = {
    "-x": (["-x", "--taguru-thresholds=thresholds.json"], "", 3),
    "maxfail": (["--maxfail=1", "--taguru-thresholds=thresholds.json"], "", 3),
    "exit": (
        [],
        "import pytest\ndef pytest_taguru_case(item, block): pytest.exit('enough', 6)\n",
        6,
    ),
    "stop": (
        [],
        "def pytest_taguru_case(item, block): item.session.shouldstop = 'enough'\n",
        2,
    ),
    "fixture": (
        ["-x"],
        "import pytest\n@pytest.fixture(autouse=True)\ndef mine(taguru_case): assert False\n",
        1,
    ),
    "hook": (["-x"], "def pytest_taguru_case(item, block): raise RuntimeError('mine')\n", 1),
}


def held_but_for(*free: str) -> Holder:
    """Holds the searches of all cases but some."""
    return Holder(lambda request: is_search(request) and case_of(request) not in free)


def project(workspace: Workspace, conftest: str = "") -> None:
    workspace.dataset(*cases(30))
    workspace.thresholds(cases={"default": {"recall.mrr": {"min": 1}}})
    workspace.write("conftest.py", NO_TIME_OUT + conftest)
    (workspace.directory / "evaluation.json").write_bytes(EARLIER)


def assert_ended_at_once(run: Run, server: LoopbackServer, sent: Sequence[Request]) -> None:
    """Nothing was sent after the process had ended, and nothing was left."""
    assert server.requests == sent
    reads = [request for request in sent if request.path == "/contexts/sake"]
    assert len(reads) == 1, "the revision after is of no interest any more"
    assert [line for line in run.stderr.splitlines() if not line.startswith("taguru: ")] == []
    assert (run.directory / "evaluation.json").read_bytes() == EARLIER
    assert not list(run.directory.glob(".*.tmp"))


@posix_only
@pytest.mark.parametrize("end", ENDS)
def test_the_end_does_not_wait_for_requests_under_way(end: str, workspace: Workspace) -> None:
    arguments, conftest, status = ENDS[end]
    project(workspace, conftest)
    holder = held_but_for("c0")
    with FakeTaguru(hook=holder).serve() as server:
        process = start(workspace.directory, *flags(server, *arguments))
        try:
            run = finish(process, workspace.directory)
            sent = server.requests
        finally:
            holder.release()
    assert run.status == status, run.shown
    assert_ended_at_once(run, server, sent)
    assert len(holder.held) <= 8
    assert "1 of 30 cases" in run.stdout or end in ("fixture", "hook", "exit"), run.shown


#: Where Ctrl-C comes, as the request that is under way then.
STAGES = {
    "health": ("/health", 0),
    "context": ("/contexts/sake", 0),
    "sources": ("/contexts/sake/sources?limit=1000", 0),
    "case": ("/contexts/sake/citations", 0),
    "after": ("/contexts/sake", 1),
}


@posix_only
@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_while_a_request_is_under_way(stage: str, number: int, workspace: Workspace) -> None:
    path, earlier = STAGES[stage]
    counter = itertools.count()
    holder = Holder(lambda request: request.path == path and next(counter) >= earlier)
    project(workspace)
    with FakeTaguru(hook=holder).serve() as server:
        process = start(
            workspace.directory, *flags(server, f"--taguru-concurrency={number}", "--full-trace")
        )
        try:
            holder.wait(number if stage == "case" else 1)
            os.killpg(process.pid, signal.SIGINT)
            run = finish(process, workspace.directory)
            sent = server.requests
        finally:
            holder.release()
    assert run.status == 2, run.shown
    assert server.requests == sent
    assert [line for line in run.stderr.splitlines() if not line.startswith("taguru: ")] == []
    assert (workspace.directory / "evaluation.json").read_bytes() == EARLIER
    assert "KeyboardInterrupt" in run.stdout
    assert len(holder.held) == (number if stage == "case" else 1)
    assert len([one for one in sent if one.path == "/contexts/sake"]) == {
        "health": 0,
        "after": 2,
    }.get(stage, 1)


#: The alarm goes off while the main thread waits for the first case, and nowhere else: pytest does
#: not survive one in the middle of its own bookkeeping.
ALARM = """
import os, signal, sys, threading, pytest
def ring(number, frame):
    pytest.fail("Timeout: somebody's alarm")
def watch():
    urlopen(os.environ["HELD"]).close()
    while not waits(sys._current_frames()[threading.main_thread().ident]):
        threading.Event().wait(0.001)
    os.kill(os.getpid(), signal.SIGALRM)
def waits(frame):
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    innermost = os.path.basename(codes[0].co_filename)
    return innermost in ("threading.py", "aside.py") and "taguru_case" in [c.co_name for c in codes]
signal.signal(signal.SIGALRM, ring)
@pytest.fixture(autouse=True)
def begun(request):
    if request.node.name == "c0":
        threading.Thread(target=watch, daemon=True).start()
"""
#: Once the first case is through, lets the server go and waits for the threads under way.
LETS_GO = """
import os, threading
from urllib.request import urlopen
def pytest_runtest_logreport(report):
    if report.when == "setup" and report.nodeid.endswith("::c0"):
        threads = [one for one in threading.enumerate() if one.name.startswith("taguru-")]
        urlopen(os.environ["GO"]).close()
        for thread in threads:
            thread.join(50)
"""


@posix_only
@pytest.mark.parametrize("number", [1, 8])
def test_an_alarm_ends_a_case_and_its_requests(number: int, workspace: Workspace) -> None:
    """As pytest-timeout's does: an exception out of a signal's handler, anywhere at all."""
    project(workspace, LETS_GO + ALARM)

    def note(request: Request) -> Answer | None:
        if request.path == "/held":
            holder.wait()
        elif request.path == "/go":
            holder.release()
        else:
            return None
        return Answer()

    holder = Holder(
        lambda request: request.path.endswith("/resolve") and case_of(request) == "c0", note
    )
    with FakeTaguru(hook=holder).serve() as server:
        arguments = flags(server, f"--taguru-concurrency={number}", "-v")
        places = {"HELD": f"{server.url}/held", "GO": f"{server.url}/go"}
        process = start(workspace.directory, *arguments, **places)
        try:
            run = finish(process, workspace.directory)
            sent = server.requests
        finally:
            holder.release()
    assert run.status == 1, run.shown
    assert_ended_at_once(run, server, sent)
    assert "Timeout: somebody's alarm" in run.stdout
    assert "29 of 30 cases were judged" in run.stdout
    assert "29 passed, 1 error" in run.stdout
    of_first = [request.path.rpartition("/")[2] for request in sent if case_of(request) == "c0"]
    assert of_first == ["search", "resolve"], "nothing more of the case that was given up"


@posix_only
@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize("method", ["signal", "thread"])
def test_pytest_timeout_ends_a_run(method: str, number: int, workspace: Workspace) -> None:
    pytest.importorskip("pytest_timeout")
    project(workspace)
    holder = Holder(is_search)
    with FakeTaguru(hook=holder).serve() as server:
        limit = ("-p", "pytest_timeout", "-o", "timeout=0.5", "-o", f"timeout_method={method}")
        process = start_python(
            workspace.directory,
            *("-m", "pytest", "-p", "no:hypothesispytest", "-x", *limit),
            *flags(server, f"--taguru-concurrency={number}"),
        )
        try:
            run = finish(process, workspace.directory)
            sent = server.requests
        finally:
            holder.release()
    assert run.status == 1, run.shown
    assert "Timeout" in run.stdout + run.stderr
    assert server.requests == sent
    assert (workspace.directory / "evaluation.json").read_bytes() == EARLIER
    assert len(holder.held) <= number


@posix_only
def test_a_broken_fixture_of_all_cases_stops_the_look_ahead(workspace: Workspace) -> None:
    """It breaks after the run was opened; nobody will ever want what is fetched ahead."""
    project(
        workspace,
        "import pytest\n"
        "@pytest.fixture(scope='session', autouse=True)\n"
        "def mine(taguru_run): raise RuntimeError('mine')\n",
    )
    holder = Holder(is_search)
    with FakeTaguru(hook=holder).serve() as server:
        process = start(workspace.directory, *flags(server))
        try:
            run = finish(process, workspace.directory)
            sent = server.requests
        finally:
            holder.release()
    assert run.status == 1, run.shown
    assert "30 errors" in run.stdout
    assert_ended_at_once(run, server, sent)
    assert len(holder.held) <= 8


def test_a_case_that_cannot_be_set_up_stops_the_look_ahead(workspace: Workspace) -> None:
    """Others that are under way end; none is begun before it is asked for."""
    project(
        workspace,
        LETS_GO + "import pytest\n"
        "@pytest.fixture(scope='session', autouse=True)\n"
        "def mine(taguru_run): raise RuntimeError('mine')\n",
    )

    def go(request: Request) -> Answer | None:
        if request.path != "/go":
            return None
        holder.wait(2)
        holder.release()
        return Answer()

    holder = Holder(lambda request: is_search(request), go)
    with FakeTaguru(hook=holder).serve() as server:
        run = workspace.evaluate(server.url, "--taguru-concurrency=2", GO=f"{server.url}/go")
        asked = Counter(case_of(request) for request in server.requests)
    assert "30 errors" in run.stdout, run.shown
    del asked[None]
    assert asked == {"c0": 1, "c1": 6}, "one was given up, one ended"


@pytest.mark.parametrize("number", [1, 8])
def test_a_case_that_is_set_up_again_is_fetched_again(number: int, workspace: Workspace) -> None:
    """Not taken from a request that was given up."""
    pytest.importorskip("pytest_rerunfailures")
    project(
        workspace,
        "import pytest\n"
        "tries = []\n"
        "@pytest.fixture(autouse=True)\n"
        "def mine(request):\n"
        "    tries.append(request.node.name)\n"
        "    assert tries.count('c1') != 1 or tries[-1] != 'c1'\n",
    )
    with FakeTaguru(hits={"c1 ?": [("corpus/water.md", 0)]}).serve() as server:
        process = start_python(
            workspace.directory,
            *("-m", "pytest", "-p", "no:hypothesispytest", "-p", "no:timeout"),
            *("-p", "pytest_rerunfailures", "--reruns=1"),
            *flags(server, f"--taguru-concurrency={number}"),
        )
        run = finish(process, workspace.directory)
    assert run.status == 0, run.shown
    assert "30 passed, 1 rerun" in run.stdout
    blocks = run.artifact()["cases"]
    assert [block["case_id"] for block in blocks] == [f"c{one}" for one in range(30)]
    assert {block["passage"]["outcome"] for block in blocks} == {"searched"}
    assert blocks[1]["recall"]["mrr"] == 1.0


HOST = """
import sys, threading, pytest
status = pytest.main(sys.argv[1:])
ours = [one for one in threading.enumerate() if one.name.startswith("taguru-")]
for thread in ours:
    thread.join(50)
print("left:", [one.name for one in ours if one.is_alive()], int(status))
"""


@posix_only
@pytest.mark.parametrize("end", ENDS)
def test_no_thread_is_left_in_a_process_that_goes_on(end: str, workspace: Workspace) -> None:
    arguments, conftest, status = ENDS[end]
    project(workspace, conftest)
    workspace.write("host.py", HOST)
    holder = held_but_for("c0")
    with FakeTaguru(hook=holder).serve() as server:
        words = ("-p", "no:hypothesispytest", "-p", "no:anyio", *flags(server, *arguments))
        process = start_python(workspace.directory, "host.py", *words)
        try:
            run = finish(process, workspace.directory)
        finally:
            holder.release()
    assert run.stdout.splitlines()[-1] == f"left: [] {status}", run.shown
    assert "Exception in thread" not in run.stderr


def test_nothing_of_a_whole_run_is_left_in_its_process(workspace: Workspace) -> None:
    workspace.dataset(*cases(10))
    workspace.write("host.py", HOST)
    with FakeTaguru().serve() as server:
        words = ("-p", "no:hypothesispytest", "-p", "no:anyio", *flags(server))
        run = finish(start_python(workspace.directory, "host.py", *words), workspace.directory)
    assert run.stdout.splitlines()[-1] == "left: [] 0", run.shown
