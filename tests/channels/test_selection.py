"""Parts of a dataset, orders, and runs that end early."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from tests.channels.shore import CASES, Shore, section

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from tests.support.replay_server import Answer, Request
    from tests.support.runs import Workspace

#: Case ids, and the names of their items, worked out by hand. The hashes are those of sha256sum.
NAMES = {
    "plain-1": "plain-1",
    "two words": "two words",
    "a::b": "a\\x3a\\x3ab",
    "one:two": "one:two",
    ":first": "\\x3afirst",
    "[x]": "\\x5bx\\x5d",
    "back\\slash": "back\\x5cslash",
    "a\\x3a\\x3ab": "a\\x5cx3a\\x5cx3ab",
    "someone@home": "someone\\x40home",
    "日本酒の蔵": "日本酒の蔵",
    "tab\tand\nline": "tab\\x09and\\x0aline",
    "nul\0": "nul\\x00",
    "next\x85\u2028line": "next\\x85\\u2028line",
    "🦀 emoji": "🦀 emoji",
    "caf\u00e9": "caf\u00e9",
    "cafe\u0301": "cafe\u0301",
    "dir/test_it.py": "dir/test_it.py",
    "-k": "-k",
    "100%": "100%",
    "'\"$HOME": "'\"$HOME",
    "x" * 300: "x" * 106 + "…0d4e2ca9e9cb",
    "x" * 299 + "y": "x" * 106 + "…d71979b42315",
    "x" * 106 + "…0d4e2ca9e9cb": "x" * 106 + "…2fd2a400288a",
    "蔵" * 121: "蔵" * 106 + "…afa75ca6d68e",
}
IDS = list(NAMES)


@pytest.fixture
def zoo(workspace: Workspace) -> Shore:
    """A dataset of awkward ids, every second of which is not found."""
    return Shore(workspace=workspace, cases=IDS, missing=IDS[1::2])


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "xdist"])
def test_every_id_is_run_and_kept_exactly(zoo: Shore, workers: tuple[str, ...]) -> None:
    ended = zoo.run("-v", *workers)
    assert ended.status == 3, ended.shown
    assert zoo.judged() == IDS
    report = ended.artifact()["thresholds"]
    assert [one["case_id"] for one in report["violations"]] == IDS[1::2]


def test_items_have_the_names_that_were_worked_out(zoo: Shore) -> None:
    ended = zoo.run("--collect-only", "-q", "--taguru-only")
    listed = [line for line in ended.stdout.splitlines() if line.startswith("eval.jsonl::")]
    assert listed == [f"eval.jsonl::{name}" for name in NAMES.values()], ended.shown


@pytest.mark.parametrize("case_id", IDS, ids=range(len(IDS)))
def test_each_can_be_selected_by_its_node_id(zoo: Shore, case_id: str) -> None:
    ended = zoo.run(f"eval.jsonl::{NAMES[case_id]}")
    assert ended.status == (3 if case_id in zoo.missing else 0), ended.shown
    assert zoo.judged() == [case_id]
    assert ended.artifact()["inputs"]["selection"] == {"selected": 1, "total": len(IDS)}


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "xdist"])
@pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside of rootdir"])
def test_failed_ones_are_run_again_with_lf(
    zoo: Shore, workers: tuple[str, ...], *, outside: bool
) -> None:
    if outside:
        project = zoo.directory / "project"
        project.mkdir()
        for name in ("pytest.ini", "test_shore.py"):
            (zoo.directory / name).rename(project / name)
        where = ["--rootdir=project", "-c", "project/pytest.ini", "project"]
    else:
        where = []
    first = zoo.run(*where, *workers)
    assert first.status == 3, first.shown
    again = zoo.run("--lf", *where, *workers)
    assert again.status == 3, again.shown
    assert zoo.judged() == IDS[1::2]


def test_the_command_of_a_failure_runs_just_that_case(zoo: Shore) -> None:
    for workers in ((), ("-n", "2")):
        with zoo.serve() as server:
            ended = zoo.run_against(server, "--taguru-concurrency", "3", *workers)
            commands = [
                shlex.split(line.split("run it again: ", 1)[1])
                for line in ended.stdout.splitlines()
                if "run it again: " in line
            ]
            expected = {f"eval.jsonl::{NAMES[case_id]}" for case_id in zoo.missing}
            assert {command[-1] for command in commands} == expected, ended.shown
            awkward = next(one for one in commands if one[-1].endswith("\\x5bx\\x5d"))
            assert awkward[0] == "pytest"
            again = zoo.workspace.run(*awkward[1:])
        assert again.status == 3, again.shown
        assert zoo.judged() == ["[x]"]


def test_a_raw_id_can_be_found_with_k(zoo: Shore) -> None:
    ended = zoo.run("-k", "日本酒 or (back and slash)")
    assert ended.status == 3, ended.shown
    assert zoo.judged() == ["back\\slash", "日本酒の蔵"]


# -- order ---------------------------------------------------------------------------------------

REVERSED = "def pytest_collection_modifyitems(items):\n    items.reverse()\n"


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "xdist"])
def test_the_artifact_is_in_the_order_of_the_dataset(
    workspace: Workspace, workers: tuple[str, ...]
) -> None:
    workspace.write("conftest.py", REVERSED)
    shore = Shore(workspace=workspace)
    ended = shore.run("-v", *workers)
    assert ended.status == 0, ended.shown
    assert shore.judged() == list(CASES)
    if not workers:
        names = [
            line.split("::")[1].split()[0] for line in ended.stdout.splitlines() if "PASSED" in line
        ]
        assert names == ["urchin", "kelp", "mussel", "limpet", "test_tide"]


def test_failed_first_is_a_whole_run_in_the_order_of_the_dataset(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["urchin"])
    assert shore.run().status == 3
    ended = shore.run("--ff", "-v")
    assert ended.status == 3, ended.shown
    shown = [line for line in ended.stdout.splitlines() if "%]" in line]
    assert shown[0].startswith("eval.jsonl::urchin FAILED")
    assert shore.judged() == list(CASES)
    assert "selection" not in ended.artifact()["inputs"]


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")], ids=str)
def test_stepwise_goes_on_where_it_stopped(workers: Sequence[str], workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["mussel"])
    first = shore.run("--sw", *workers)
    assert first.status == 3, first.shown
    assert "cut short: 2 of 4 cases were judged" in first.stdout
    second = shore.run("--sw", *workers)
    assert second.status == 3, second.shown
    assert "cut short: 1 of 3 cases were judged" in second.stdout
    assert shore.is_untouched
    shore.fake.hits["mussel"] = [("shore/mussel.md", 0)]
    third = shore.run("--sw", *workers)
    assert third.status == 0, third.shown
    assert shore.judged() == ["mussel", "kelp", "urchin"]
    assert third.artifact()["inputs"]["selection"] == {"selected": 3, "total": 4}


# -- selection and the gate ----------------------------------------------------------------------


def test_bounds_on_the_whole_set_are_skipped_for_a_part(workspace: Workspace) -> None:
    bounds = {"recall.recall_at_k": {"min": 1}, "citations.recall": {"min": 1}}
    thresholds = {"aggregate": bounds, "cases": {"default": {"recall.mrr": {"min": 0.5}}}}
    shore = Shore(workspace=workspace, missing=["kelp"], thresholds=thresholds)
    ended = shore.run("-k", "kelp or urchin")
    assert ended.status == 3, ended.shown
    report = ended.artifact()["thresholds"]
    assert [(one["scope"], one["metric"]) for one in report["violations"]] == [
        ("case", "recall.mrr")
    ]
    assert [sentence.split(" not judged")[0] for sentence in report["skipped"]] == [
        "aggregate 'citations.recall'",
        "aggregate 'recall.recall_at_k'",
    ]
    assert all("2 of 4 cases were selected" in sentence for sentence in report["skipped"])


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "xdist"])
def test_without_a_selected_case_nothing_is_asked(
    workspace: Workspace, workers: tuple[str, ...]
) -> None:
    shore = Shore(workspace=workspace)
    with shore.serve() as server:
        ended = shore.run_against(server, "-k", "tide", "--junitxml=junit.xml", *workers)
    assert ended.status == 0, ended.shown
    assert server.requests == []
    assert shore.is_untouched
    assert (section(ended), ended.complaints) == ([], [])
    assert "gate" not in (shore.directory / "junit.xml").read_text("utf-8")


STOPS_AFTER = (
    "import pytest\n\n\n@pytest.hookimpl(trylast=True)\n"
    "def pytest_runtest_teardown(item):\n"
    "    if item.name == '{name}':\n        item.session.shouldstop = 'the tide is coming'\n"
)


def test_completeness_is_counted_and_not_read_from_a_status(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["kelp"])
    workspace.write("conftest.py", STOPS_AFTER.format(name="urchin"))
    ended = shore.run()
    assert ended.status == 2, ended.shown  # somebody's plugin stopped the session: not ours to hide
    assert shore.judged() == list(CASES)
    assert ended.artifact()["thresholds"]["passed"] is False


def test_a_session_that_a_plugin_stops_is_cut_short(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["limpet"])
    workspace.write("conftest.py", STOPS_AFTER.format(name="mussel"))
    ended = shore.run()
    assert ended.status == 2, ended.shown
    assert shore.is_untouched
    assert "cut short: 2 of 4 cases were judged; evaluation.json was not written" in section(ended)


def test_exit_from_a_fixture_keeps_its_status(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["limpet"])
    workspace.write(
        "conftest.py",
        "import pytest\n\n\n@pytest.fixture(autouse=True)\ndef low_tide(request):\n"
        "    if request.node.name == 'kelp':\n        pytest.exit('enough', returncode=7)\n",
    )
    ended = shore.run()
    assert ended.status == 7, ended.shown
    assert shore.is_untouched
    assert section(ended) == []  # pytest has no summary for a status that it does not know


def test_an_internal_error_leaves_no_fresh_artifact(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace)
    workspace.write(
        "conftest.py",
        "def pytest_runtest_logfinish(nodeid):\n"
        "    if nodeid.endswith('urchin'):\n        raise RuntimeError('a plugin broke')\n",
    )
    ended = shore.run()
    assert ended.status == 3, ended.shown
    assert "INTERNALERROR" in ended.stdout
    assert shore.is_untouched


# -- Ctrl-C --------------------------------------------------------------------------------------


class Gatekeeper:
    """Holds the search for kelp back until the test ends."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.released = threading.Event()

    def __call__(self, request: Request) -> Answer | None:
        if request.path.endswith("/sources/search") and request.body["query"] == "kelp":
            self.asked.set()
            self.released.wait()
        return None


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    read = ""
    for line in process.stdout:
        read += line
        if text in line:
            return read
    raise AssertionError(f"{text!r} never came:\n{read}")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize(
    "drive",
    [(), ("--taguru-concurrency=1",), ("-n", "2", "--dist", "loadfile")],
    ids=["looking ahead", "one by one", "xdist"],
)
def test_ctrl_c_while_the_server_hangs(workspace: Workspace, drive: tuple[str, ...]) -> None:
    gatekeeper = Gatekeeper()
    shore = Shore(workspace=workspace, missing=["limpet"], hook=gatekeeper)
    with shore.serve() as server:
        process = shore.start(server, "-v", *drive)
        try:
            before = read_until(process, "eval.jsonl::mussel")
            assert gatekeeper.asked.wait(60)
            if "PASSED" not in before.splitlines()[-1]:
                before += read_until(process, "PASSED")
            os.killpg(process.pid, signal.SIGINT)
            ended = shore.finish(process)
        finally:
            gatekeeper.released.set()
            process.kill()
            process.wait()
        assert ended.status == 2, before + ended.shown
        assert (
            "cut short: 2 of 4 cases were judged; evaluation.json was not written" in ended.stdout
        )
        assert "case limpet: recall.recall_at_k 0.000000 < min 1.000000" in ended.stdout
        assert shore.is_untouched
        reads = [request for request in server.requests if request.path == "/contexts/shore"]
        assert len(reads) == 1  # the revision after is not asked for any more


def test_the_earlier_artifact_is_json_still(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["kelp"])
    ended = shore.run("-x")
    assert json.loads(shore.artifact.read_bytes())["note"] == "an earlier run", ended.shown
