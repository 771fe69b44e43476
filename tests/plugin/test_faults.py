"""What goes wrong around a run: servers that fail, disks, signals, a corpus that changes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from tests.support.fake_taguru import FakeTaguru
from tests.support.held import PATIENCE, Holder, finish, start
from tests.support.live import LiveServer, find_binary
from tests.support.raw_server import CERTIFICATE, Connection, RawServer
from tests.support.replay_server import Answer, LoopbackServer, Request, refusal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from tests.support.runs import Run, Workspace

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a POSIX system")

EARLIER = b'{"an": "earlier artifact"}\n'
NAMES = [f"c{number}" for number in range(6)]
CASES = [
    {"case_id": name, "query": name, "expected_sources": [{"source": "corpus/water.md"}]}
    for name in NAMES
]
HITS = {name: [("corpus/water.md", 0)] for name in NAMES}
SERIAL = "--taguru-concurrency=1"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with FakeTaguru(hits=HITS).serve() as server:
        yield server


@pytest.fixture
def project(workspace: Workspace) -> Workspace:
    """Six cases and an earlier artifact."""
    workspace.dataset(*CASES)
    (workspace.directory / "evaluation.json").write_bytes(EARLIER)
    return workspace


def flags(url: str, *more: str) -> list[str]:
    return ["--taguru-eval=eval.jsonl", "--taguru-context=sake", f"--taguru-url={url}", *more]


def assert_quiet(run: Run) -> None:
    """Nothing of ours but our own words."""
    shown = run.stdout + run.stderr
    for words in ("Traceback", "pytest_taguru/", "INTERNALERROR", "Exception in thread", " at 0x"):
        assert words not in shown, run.shown


def assert_untouched(run: Run) -> None:
    assert (run.directory / "evaluation.json").read_bytes() == EARLIER
    assert temporary(run.directory) == []


def temporary(directory: Path) -> list[str]:
    return [file.name for file in directory.rglob("*") if file.name.endswith(".tmp")]


def is_search(request: Request, *names: str) -> bool:
    return request.path.endswith("/sources/search") and request.body["query"] in names


# -- the server --------------------------------------------------------------------------------


def test_401_halfway(project: Workspace) -> None:
    """A token that is withdrawn: the rest of the cases, and then the run, cannot be judged."""
    withdrawn = threading.Event()

    def hook(request: Request) -> Answer | None:
        if is_search(request, "c2"):
            withdrawn.set()
        return refusal(401, "no such token", "unauthorized") if withdrawn.is_set() else None

    with FakeTaguru(hits=HITS, hook=hook).serve() as server:
        run = project.evaluate(server.url, SERIAL, "-rs", TAGURU_API_TOKEN="canary-token")
    assert run.status == 1, run.shown
    assert "2 passed, 4 skipped" in run.stdout
    home = f"{server.url}/contexts/sake"
    assert run.stdout.count(f"{home}/sources/search answered 401: no such token") >= 1
    assert [line for line in run.complaints if f"{home} answered 401: no such token" in line]
    assert "canary" not in run.stdout + run.stderr
    assert_quiet(run)
    assert_untouched(run)


def test_401_for_some_cases_only(project: Workspace) -> None:
    def hook(request: Request) -> Answer | None:
        return refusal(401, "no", "unauthorized") if is_search(request, "c2", "c5") else None

    with FakeTaguru(hits=HITS, hook=hook).serve() as server:
        run = project.evaluate(server.url)
    assert run.status == 0, run.shown
    outcomes = [case["passage"]["outcome"] for case in run.artifact()["cases"]]
    assert outcomes == ["searched", "searched", "failed", "searched", "searched", "failed"]
    assert run.artifact()["metrics"]["recall.mrr"]["n"] == 4
    assert "failed passage calls: c2, c5" in run.stdout


@pytest.mark.parametrize("number", [1, 8])
def test_a_server_that_dies_between_cases(number: int, project: Workspace) -> None:
    def die(request: Request) -> Answer | None:
        if is_search(request, "c2"):
            threading.Thread(target=dying.stop).start()
            port = urlsplit(dying.url).port
            with contextlib.suppress(ConnectionRefusedError):
                while True:  # until nobody listens any more
                    socket.create_connection(("127.0.0.1", port or 0)).close()
        return None

    with FakeTaguru(hits=HITS, hook=die).serve() as dying:
        run = project.evaluate(dying.url, f"--taguru-concurrency={number}", "-rs")
    assert run.status == 1, run.shown
    assert "connection refused" in run.complaints[-1]
    assert "skipped" in run.stdout
    assert_quiet(run)
    assert_untouched(run)


@pytest.mark.parametrize(
    "route", ["/health", "/contexts/sake", "/contexts/sake/sources?limit=1000"]
)
@pytest.mark.parametrize("status", [302, 308])
def test_a_redirect_before_the_cases_ends_the_run(
    status: int, route: str, project: Workspace
) -> None:
    with FakeTaguru(hits=HITS).serve() as elsewhere:

        def hook(request: Request) -> Answer | None:
            place = {"location": elsewhere.url + request.path}
            return Answer(status=status, headers=place) if request.path == route else None

        with FakeTaguru(hits=HITS, hook=hook).serve() as server:
            run = project.evaluate(server.url, TAGURU_API_TOKEN="canary-token")
    assert run.status == 1, run.shown
    assert f"answered {status}" in run.complaints[0]
    assert elsewhere.requests == []
    assert_quiet(run)
    assert_untouched(run)


def reset(connection: Connection) -> None:
    connection.read()
    connection.reset()


def no_http(connection: Connection) -> None:
    connection.read()
    connection.send(b"* OK IMAP4rev1 ready\r\n")


def half(connection: Connection) -> None:
    connection.read()
    connection.send(b'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"version": ')


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (reset, "connection reset by the server"),
        (no_http, "the answer is not HTTP"),
        (half, "the answer was cut short"),
    ],
    ids=["resets", "another protocol", "half an answer"],
)
def test_no_server_of_ours(
    script: Callable[[Connection], None], reason: str, project: Workspace
) -> None:
    with RawServer(script) as server:
        run = project.evaluate(server.url)
        assert len(server.connections) == 1
    assert run.status == 1, run.shown
    assert run.complaints == [f"taguru: no taguru server at {server.url}: {reason}"]
    assert_quiet(run)
    assert_untouched(run)


def test_a_certificate_that_does_not_verify(project: Workspace) -> None:
    def script(connection: Connection) -> None:
        connection.read()
        connection.send(b"HTTP/1.1 503 Not Today\r\ncontent-length: 0\r\n\r\n")

    with RawServer(script, secure=True) as server:
        run = project.evaluate(server.url, TAGURU_API_TOKEN="canary-token")
        assert server.connections == []
        trusting = project.evaluate(server.url, REQUESTS_CA_BUNDLE=str(CERTIFICATE))
    reason = "the server's certificate does not verify"
    assert run.complaints == [f"taguru: no taguru server at {server.url}: {reason}"]
    assert run.status == 1, run.shown
    assert_quiet(run)
    assert trusting.complaints == [
        f"taguru: the server at {server.url} is not healthy: {server.url}/health answered 503"
    ]


def test_a_server_on_ipv6(project: Workspace) -> None:
    fake = FakeTaguru(hits=HITS)

    def script(connection: Connection) -> None:
        while True:
            head, _, body = connection.read().partition(b"\r\n\r\n")
            method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
            request = Request(
                method=method, path=path, body=json.loads(body) if body else None, headers={}
            )
            answer = fake.answer(request).body.encode()
            length = b"content-length: %d\r\n\r\n" % len(answer)
            connection.send(b"HTTP/1.1 200 OK\r\n" + length + answer)

    try:
        ipv6 = RawServer(script, host="::1")
    except OSError:
        pytest.skip("no IPv6 on loopback")
    with ipv6 as server:
        run = project.evaluate(server.url)
        assert run.status == 0, run.shown
        assert run.artifact()["inputs"]["url"] == server.url
        port = urlsplit(server.url).port
        variable = project.run(
            "--taguru-eval=eval.jsonl", "--taguru-context=sake", TAGURU_ADDR=f"[::]:{port}"
        )
        assert variable.status == 0, variable.shown
        assert variable.artifact()["inputs"]["url"] == server.url


# -- a corpus that changes ---------------------------------------------------------------------

WRITES = """
import os, requests
def pytest_taguru_case(item, block):
    if item.index == 3:
        url = f"{os.environ['LIVE']}/contexts/{os.environ['LIVE_CONTEXT']}/sources"
        body = {"passages": {"corpus/new.md": "A paragraph that came during the run."}}
        answer = requests.post(url, json=body, timeout=50)
        assert answer.ok, answer.text
"""


@pytest.mark.live
@pytest.mark.parametrize(("allowed", "status"), [(False, 3), (True, 0)])
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "xdist"])
def test_a_write_between_two_cases(
    allowed: bool, status: int, workers: tuple[str, ...], workspace: Workspace
) -> None:
    workspace.corpus("sake")
    workspace.write("conftest.py", WRITES)
    workspace.thresholds(allow_unstable_corpus=allowed)
    with LiveServer(find_binary(), providers=False) as server:
        context = server.seed("sake")
        run = workspace.evaluate(
            server.url,
            "--taguru-thresholds=thresholds.json",
            *workers,
            context=context,
            LIVE=server.url,
            LIVE_CONTEXT=context,
        )
    assert run.status == status, run.shown
    corpus = run.artifact()["corpus"]
    assert corpus["stable"] is False
    before, after = corpus["revision_before"], corpus["revision_after"]
    assert after["passages"] > before["passages"]
    assert after["graph"] == before["graph"]
    report = run.artifact()["thresholds"]
    assert report["passed"] is allowed
    violations = [(one["scope"], one["metric"]) for one in report.get("violations", [])]
    assert violations == ([] if allowed else [("corpus", "corpus.stable")])
    assert "warning: the corpus was written to during the run" in run.stdout


# -- where files go ----------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["out", "record"])
@pytest.mark.parametrize(
    "place", ["a-directory", "a-fifo", "/dev/full", "/proc/new.json", "eval.jsonl/new", "n" * 300]
)
def test_a_place_that_takes_no_file_is_found_before_the_first_request(
    place: str, flag: str, project: Workspace, server: LoopbackServer
) -> None:
    (project.directory / "a-directory").mkdir()
    os.mkfifo(project.directory / "a-fifo")
    run = project.evaluate(server.url, f"--taguru-{flag}={place}")
    assert run.status == 1, run.shown
    (line,) = run.complaints
    assert line.startswith(f"taguru: {place}: cannot be written: ")
    assert server.requests == []
    assert_quiet(run)
    assert_untouched(run)


def test_a_symbolic_link_is_written_through(project: Workspace, server: LoopbackServer) -> None:
    (project.directory / "store").mkdir()
    real = project.write("store/real.json", "{}")
    (project.directory / "link.json").symlink_to(Path("store") / "real.json")
    run = project.evaluate(server.url, "--taguru-out=link.json")
    assert run.status == 0, run.shown
    assert (project.directory / "link.json").is_symlink()
    assert len(json.loads(real.read_bytes())["cases"]) == 6
    assert [file.name for file in (project.directory / "store").iterdir()] == ["real.json"]


FULL = """
import errno, os, stat
real = os.fsync
def fsync(handle):
    if stat.S_ISREG(os.fstat(handle).st_mode):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    real(handle)
os.fsync = fsync
"""


@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "xdist"])
def test_a_disk_that_is_full_in_the_end(
    workers: tuple[str, ...], project: Workspace, server: LoopbackServer
) -> None:
    project.write("conftest.py", FULL)
    run = project.evaluate(server.url, *workers)
    assert run.status == 1, run.shown
    assert run.complaints == ["taguru: evaluation.json: cannot be written: No space left on device"]
    assert "6 passed" in run.stdout
    assert_quiet(run)
    assert_untouched(run)


SMALL_FILES = f"""
import resource
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
def pytest_taguru_case(item, block):
    resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 16}, hard))
"""


@pytest.mark.parametrize("number", [1, 8])
def test_a_recording_that_does_not_fit(number: int, project: Workspace) -> None:
    """The cases are judged all the same; the recording alone is missing, and that is said once."""
    project.write("conftest.py", SMALL_FILES)
    (project.directory / "recording.jsonl").write_bytes(b"an earlier recording")
    fake = FakeTaguru(hits=HITS, text="a canary paragraph " * 4000)
    with fake.serve() as server:
        run = project.evaluate(
            server.url,
            "--taguru-record=recording.jsonl",
            f"--taguru-concurrency={number}",
            "--showlocals",
        )
    assert run.status == 1, run.shown
    assert "6 passed" in run.stdout
    assert run.complaints == ["taguru: recording.jsonl: cannot be written: File too large"]
    assert len(run.artifact()["cases"]) == 6
    assert (project.directory / "recording.jsonl").read_bytes() == b"an earlier recording"
    assert temporary(project.directory) == []
    assert_quiet(run)
    assert "a canary paragraph" not in run.stdout + run.stderr


def test_an_artifact_that_does_not_fit(project: Workspace) -> None:
    cases = [{**CASES[0], "case_id": f"{number}", "query": "q" * 900} for number in range(90)]
    project.dataset(*cases)
    project.write("conftest.py", SMALL_FILES)
    with FakeTaguru().serve() as server:
        run = project.evaluate(server.url, "-q")
    assert run.status == 1, run.shown
    assert run.complaints == ["taguru: evaluation.json: cannot be written: File too large"]
    assert_quiet(run)
    assert_untouched(run)


def test_a_recording_of_a_run_that_had_no_cases(project: Workspace, server: LoopbackServer) -> None:
    """Only an ordinary test used the run: no recording, and nothing left of one."""
    project.write("test_ordinary.py", "def test_ordinary(taguru_run): assert taguru_run.opening\n")
    run = project.evaluate(server.url, "--taguru-record=r.jsonl", "-m", "not taguru")
    assert run.status == 0, run.shown
    assert not (project.directory / "r.jsonl").exists()
    assert_untouched(run)


# -- signals -----------------------------------------------------------------------------------

#: Stops at a stage: asks the server for a path that the test holds back.
WAITS = """
import os, stat
from pathlib import Path
from urllib.request import urlopen
STAGE = os.environ["STAGE"]
def wait(stage):
    if stage == STAGE:
        urlopen(os.environ["HERE"])
real_fsync, real_replace = os.fsync, Path.replace
def fsync(handle):
    wait("written" if stat.S_ISREG(os.fstat(handle).st_mode) else "renamed")
    real_fsync(handle)
def replace(self, target):
    wait("renaming")
    return real_replace(self, target)
os.fsync, Path.replace = fsync, replace
def pytest_taguru_artifact(config, artifact):
    wait("judged")
def pytest_taguru_case(item, block):
    if item.name == "c3":
        wait("case")
"""


def killed(project: Workspace, stage: str, number: int, *arguments: str) -> subprocess.Popen[str]:
    """A run that a signal ended when it had come to a stage."""
    project.write("conftest.py", WAITS)
    holder = Holder(lambda request: request.path == "/here")
    with FakeTaguru(hits=HITS, hook=holder).serve() as server:
        process = start(
            project.directory,
            *flags(server.url, *arguments),
            STAGE=stage,
            HERE=f"{server.url}/here",
        )
        try:
            holder.wait()
            os.kill(process.pid, number)
            run = finish(process, project.directory)
        finally:
            holder.release()
    assert run.status == -number, run.shown
    return process


SIGNALS = [
    getattr(signal, name) for name in ("SIGTERM", "SIGKILL", "SIGHUP") if hasattr(signal, name)
]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: signal.Signals(number).name)
@pytest.mark.parametrize("stage", ["case", "judged", "written", "renaming", "renamed"])
def test_a_run_that_is_killed_leaves_the_earlier_artifact_or_the_new_one(
    stage: str, number: int, project: Workspace
) -> None:
    killed(project, stage, number, "--taguru-record=recording.jsonl")
    content = (project.directory / "evaluation.json").read_bytes()
    if stage == "renamed":
        artifact = json.loads(content)
        assert [case["case_id"] for case in artifact["cases"]] == NAMES
        assert "metrics" in artifact
    else:
        assert content == EARLIER
    assert not (project.directory / "recording.jsonl").exists()
    left = temporary(project.directory)
    if hasattr(os, "O_TMPFILE") and stage != "renaming":
        assert left == [], "a file without a name vanishes with its process"
    else:
        # Between being named and being renamed, a moment that only this test makes long, and
        # where a system has no nameless files, a whole or partial temporary file is left.
        assert all(name.startswith((".evaluation.json.", ".recording.jsonl.")) for name in left)


@pytest.mark.parametrize("number", SIGNALS[:2], ids=lambda number: signal.Signals(number).name)
@pytest.mark.parametrize("stage", ["setup", "case"])
def test_a_worker_that_is_killed(stage: str, number: int, project: Workspace) -> None:
    hook = (
        "def pytest_taguru_case(item, block):"
        if stage == "case"
        else "def pytest_runtest_setup(item):"
    )
    project.write(
        "conftest.py",
        f"import os\n{hook}\n    if item.name == 'c3': os.kill(os.getpid(), {int(number)})\n",
    )
    with FakeTaguru(hits=HITS).serve() as server:
        run = project.evaluate(server.url, "-n2")
    assert run.status == 1, run.shown
    assert "5 of 6 cases were judged" in run.stdout
    assert "crashed while running 'eval.jsonl::c3'" in run.stdout
    assert "INTERNALERROR" not in run.stdout
    assert_untouched(run)


@pytest.mark.parametrize("number", SIGNALS[:2], ids=lambda number: signal.Signals(number).name)
def test_a_controller_that_is_killed(number: int, project: Workspace) -> None:
    """Its workers end as well, and nothing was written."""
    killed(project, "case", number, "-n2")
    assert (project.directory / "evaluation.json").read_bytes() == EARLIER
    assert temporary(project.directory) == []


def test_the_tests_are_patient() -> None:
    """Longer than a request of the plugin may take, or a hang would pass for an end."""
    assert PATIENCE > 35
