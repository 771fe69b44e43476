"""pytest-xdist: the same artifact, the same lines, whoever runs the cases."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.channels.shore import CASES, Shore, case, section
from tests.support.artifact_diff import differences
from tests.support.replay_server import Answer, Recording, replay
from tests.support.runs import GOLDEN, clean_environment, plugin_flags, run_in_subprocess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.replay_server import Request
    from tests.support.runs import Run, Workspace

SAKE = sorted((GOLDEN / "sake" / "runs").iterdir())


def posts(counts: Counter[str]) -> Counter[str]:
    """The requests for cases, without those around them, which each worker makes."""
    return Counter({key: many for key, many in counts.items() if json.loads(key)[0] == "POST"})


def run_sake(workspace: Workspace, golden: Path, *arguments: str) -> Run:
    workspace.corpus("sake")
    described = json.loads((golden / "run.json").read_text("utf-8"))
    recording = Recording.load(golden / "exchanges.jsonl")
    with replay(recording) as server:
        ended = workspace.evaluate(server.url, *plugin_flags(described["flags"]), *arguments)
    assert ended.status == described["exit"], ended.shown
    expected = json.loads((golden / "evaluation.json").read_text("utf-8"))
    assert differences(expected, ended.artifact()) == []
    assert posts(server.request_counts) == posts(recording.request_counts)
    return ended


@pytest.mark.parametrize("golden", SAKE, ids=lambda golden: golden.name)
def test_golden_runs_are_as_recorded_under_two_workers(golden: Path, workspace: Workspace) -> None:
    ended = run_sake(workspace, golden, "-n", "2")
    assert ended.artifact()["inputs"]["concurrency"] == 2


GROUPS = (
    "import pytest\n\n\n@pytest.hookimpl(tryfirst=True)\n"
    "def pytest_collection_modifyitems(items):\n    for at, item in enumerate(items):\n"
    "        item.add_marker(pytest.mark.xdist_group(f'group@{at % 3}'))\n"
)


@pytest.mark.parametrize(
    "drive",
    [
        "-n 0",
        "-n 1",
        "-n 4 --dist load",
        "-n 2 --dist worksteal",
        "-n 2 --dist loadfile",
        "-n 2 --dist loadscope",
        "-n 2 --dist loadgroup",
        "-n 3 --dist loadgroup with groups",
        "-p no:xdist",
    ],
)
def test_every_way_to_distribute(drive: str, workspace: Workspace) -> None:
    if drive.endswith(" with groups"):
        workspace.write("conftest.py", GROUPS)
    arguments = drive.removesuffix(" with groups").split()
    golden = GOLDEN / "sake" / "runs" / "thresholds-fail"
    ended = run_sake(workspace, golden, *arguments)
    workers = int(arguments[1]) if arguments[0] == "-n" else 0
    assert ended.artifact()["inputs"]["concurrency"] == (workers or 8)
    assert len(section(ended)) > 5  # once: section() refuses a second one
    assert ended.complaints == []


def test_without_xdist_installed(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["kelp"])
    workspace.write("blocked/xdist/__init__.py", "raise ImportError('xdist is not installed')\n")
    blocked = str(shore.directory / "blocked")
    without = ["-p", "no:xdist", "-p", "no:xdist.looponfail"]
    workspace.write(
        "test_shore.py",
        "import pytest\n\n\ndef test_tide():\n"
        "    with pytest.raises(ImportError):\n        import xdist\n",
    )
    with shore.serve() as server:
        ended = run_in_subprocess(
            shore.directory,
            [*without, *shore.arguments(server.url)],
            clean_environment(PYTHONPATH=blocked),
        )
    assert ended.status == 3, ended.shown
    assert shore.judged() == list(CASES)
    assert "1 failed, 4 passed" in ended.stdout


# -- what is said once ---------------------------------------------------------------------------


def test_preflight_problems_are_said_once(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace)
    shore.fake.sources = ("shore/limpet.md",)
    problems = {}
    for drive in ((), ("-n", "2")):
        ended = shore.run(*drive)
        assert ended.status == 2, ended.shown
        assert shore.is_untouched
        assert len(ended.complaints) == 3, ended.shown
        for name in ("mussel", "kelp", "urchin"):
            assert ended.stderr.count(f"shore/{name}.md") == 1
            assert f"shore/{name}.md" not in ended.stdout, ended.shown
        problems[drive] = ended.complaints
        assert section(ended)[0] == "0 of 4 cases judged"
    assert problems[()] == problems["-n", "2"]


def test_notes_of_all_workers_are_said_once(workspace: Workspace) -> None:
    def old(request: Request) -> Answer | None:
        return Answer(body="ok") if request.path == "/health" else None

    shore = Shore(workspace=workspace, hook=old)
    notes = []
    for drive in ((), ("-n", "2")):
        ended = shore.run(*drive)
        assert ended.status == 0, ended.shown
        assert len(ended.complaints) == 1, ended.shown
        assert sum(line.startswith("note: ") for line in section(ended)) == 1
        notes += ended.complaints
    assert all(note.endswith("does not say its version") for note in notes)


def test_the_section_is_that_of_a_serial_run(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["kelp"])
    with shore.serve() as server:
        serial = shore.run_against(server, "--taguru-strict")
        distributed = shore.run_against(server, "--taguru-strict", "-n", "2")
    assert section(serial) == section(distributed)
    assert (serial.status, distributed.status) == (3, 3)
    assert "taguru: 2 workers, one case at a time each" in distributed.stdout
    assert "taguru: up to 8 cases in flight" in serial.stdout


# -- the corpus, seen by several -----------------------------------------------------------------

NAMED_WORKERS = (
    "import os\nimport pytest\nimport requests\n\n\n"
    "@pytest.fixture(scope='session')\ndef taguru_http():\n"
    "    with requests.Session() as session:\n"
    "        session.headers['x-worker'] = os.environ.get('PYTEST_XDIST_WORKER', 'none')\n"
    "        yield session\n"
)


def revision(graph: int) -> Answer:
    """A context, as GET /contexts/shore has it."""
    counters = {"graph": graph, "passages": 9, "config": 0}
    context = {"name": "shore", "usage": {"last_write_epoch": 1796135789}, "revision": counters}
    return Answer(body=json.dumps({"result": context}))


def test_workers_that_saw_different_corpora_make_it_unstable(workspace: Workspace) -> None:
    def by_worker(request: Request) -> Answer | None:
        if request.path != "/contexts/shore":
            return None
        return revision({"gw0": 15, "gw1": 16}[request.headers["x-worker"]])

    workspace.write("conftest.py", NAMED_WORKERS)
    shore = Shore(workspace=workspace, hook=by_worker)
    with shore.serve() as server:
        ended = shore.run_against(server, "-n", "2")
    assert ended.status == 3, ended.shown
    written = ended.artifact()
    assert written["corpus"]["stable"] is False
    assert [one["metric"] for one in written["thresholds"]["violations"]] == ["corpus.stable"]
    assert shore.judged() == list(CASES)
    readers = Counter(
        request.headers["x-worker"]
        for request in server.requests
        if request.path == "/contexts/shore"
    )
    assert readers == {"gw0": 2, "gw1": 2}


def test_an_overridden_url_is_named_as_such(workspace: Workspace) -> None:
    workspace.write(
        "conftest.py",
        "import os\nimport pytest\n\n\n@pytest.fixture(scope='session')\n"
        "def taguru_url():\n    return os.environ['SHORE']\n",
    )
    shore = Shore(workspace=workspace)
    with shore.serve() as server:
        ended = shore.workspace.run(
            *shore.arguments("http://127.0.0.1:9"), "-n", "2", SHORE=server.url
        )
    assert ended.status == 0, ended.shown
    assert f"server {server.url} (from the fixture taguru_url), context shore" in section(ended)
    assert ended.artifact()["inputs"]["url"] == server.url


# -- crashes -------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_worker_that_is_killed_after_its_cases(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace)
    workspace.write(
        "conftest.py",
        "def pytest_collection_modifyitems(items):\n    items.reverse()\n",
    )
    workspace.write(
        "test_shore.py",
        "import os\nimport signal\n\n\ndef test_tide():\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n",
    )
    ended = shore.run("-n", "1")
    assert ended.status == 1, ended.shown
    assert shore.is_untouched
    assert section(ended)[0] == "4 of 4 cases judged"
    assert (
        "a process of this run ended before it could read the corpus once more;"
        " evaluation.json was not written"
    ) in section(ended)


def test_what_was_judged_before_a_crash_counts(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["limpet"])
    workspace.write(
        "conftest.py",
        "import os\n\n\ndef pytest_taguru_case(item, block):\n"
        "    if block.case_id == 'kelp':\n        os._exit(1)\n",
    )
    ended = shore.run("-n", "1", "--max-worker-restart=3")
    assert ended.status == 1, ended.shown
    assert shore.is_untouched
    shown = section(ended)
    assert "cut short: 3 of 4 cases were judged; evaluation.json was not written" in shown
    assert "case limpet: recall.recall_at_k 0.000000 < min 1.000000" in shown


def test_a_crash_before_any_case_takes_nothing_away(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace)
    workspace.write("test_shore.py", "import os\n\n\ndef test_tide():\n    os._exit(1)\n")
    ended = shore.run("-n", "1")
    assert ended.status == 1, ended.shown
    assert shore.judged() == list(CASES)


# -- what travels --------------------------------------------------------------------------------

PEEK = """
import pytest

sizes = []


class Peek:
    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report):
        block = getattr(report, "taguru_block", None)
        if block is not None:
            sizes.append((report.when, type(block).__name__))
        return (yield)


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Peek())


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        print("BLOCKS", sorted(set(sizes)), len(sizes))
"""


def test_blocks_travel_on_call_reports_as_text(workspace: Workspace) -> None:
    workspace.write("conftest.py", PEEK)
    shore = Shore(workspace=workspace)
    ended = shore.run("-n", "2", "-s")
    assert "BLOCKS [('call', 'str')] 4" in ended.stdout, ended.shown


@pytest.mark.parametrize("awkward", ["\ud800", "\x00\x07\x1b[31m", "🦀 ]]> &amp;", "x" * 1_000_000])
def test_messages_that_would_break_the_channel(awkward: str, workspace: Workspace) -> None:
    body = json.dumps({"error": f"no: {awkward}"})

    def broken(request: Request) -> Answer | None:
        return Answer(status=500, body=body) if request.method == "POST" else None

    shore = Shore(workspace=workspace, hook=broken)
    ended = shore.run("-n", "2", "-rs")
    assert ended.status == 0, ended.shown
    assert "1 passed, 4 skipped" in ended.stdout, ended.shown
    messages = {one["passage"]["message"] for one in ended.artifact()["cases"]}
    assert len(messages) == 1
    assert all(len(message.encode()) <= 203 for message in messages)


def test_cases_of_every_kind(workspace: Workspace) -> None:
    """A bound, a failed call and a strict violation in one run, as without workers."""
    labels: dict[str, Any] = {"expected_labels": ["tide"], "expected_citations": []}

    def busy(request: Request) -> Answer | None:
        if request.path.endswith("/resolve_label"):
            return Answer(status=503, body='{"error": "too busy"}')
        return None

    shore = Shore(
        workspace=workspace, missing=["kelp"], hook=busy, extra=(case("limpet-2", **labels),)
    )
    shore.fake.sources += ("shore/limpet-2.md",)
    artifacts = []
    for drive in ((), ("-n", "2")):
        ended = shore.run("--taguru-strict", *drive)
        assert ended.status == 3, ended.shown
        assert "2 failed, 4 passed" in ended.stdout, ended.shown
        assert "failed resolve calls: limpet-2" in section(ended)
        artifacts.append(ended.artifact())
    assert [artifact["inputs"].pop("concurrency") for artifact in artifacts] == [8, 2]
    assert differences(*artifacts) == []
    assert [one["case_id"] for one in artifacts[1]["strict"]["violations"]] == ["kelp", "limpet-2"]
