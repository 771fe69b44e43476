"""Without --taguru-eval nothing of the plugin shows: no import, no output, no file, no request."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_taguru.texts import SWITCHES
from tests.support.fake_taguru import FakeTaguru
from tests.support.held import finish, start_python

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.replay_server import LoopbackServer
    from tests.support.runs import Workspace

#: What of ours is imported to declare flags and hooks.
DECLARING = {
    "pytest_taguru",
    "pytest_taguru.plugin",
    "pytest_taguru.hooks",
    "pytest_taguru.options",
}
ORDINARY = "import pytest\ndef test_ordinary(tmp_path): assert 1 + 1 == 2\n"
#: Flags of ours that mean nothing without a dataset.
IDLE = (
    "--taguru-strict",
    "--taguru-out=out.json",
    "--taguru-url=ftp://nobody@nowhere",
    "--taguru-thresholds=no-such-file.json",
    "--taguru-config=no-such-file.env",
    "--taguru-concurrency=none",
    "--taguru-record=recording.jsonl",
    "--taguru-replay=no-such-recording.jsonl",
)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with FakeTaguru().serve() as server:
        yield server


#: -X importtime does not tell what importlib.import_module loads; this does not tell what was
#: loaded and thrown away.
LISTS_MODULES = """
import sys
from pathlib import Path
def pytest_unconfigure():
    Path("modules").write_text("\\n".join(list(sys.modules)))
"""


def modules(directory: Path, *arguments: str) -> set[str]:
    """Every module that a run imports."""
    (directory / "conftest.py").write_text(LISTS_MODULES)
    words = ("-X", "importtime", "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider")
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = finish(start_python(directory, *words, *arguments, **environment), directory)
    assert run.status == 0, run.shown
    names = re.findall(r"^import time: +\d+ \| +\d+ \| +([\w.]+)$", run.stderr, re.M)
    assert "_pytest.config" in names
    return {*names, *(directory / "modules").read_text().splitlines()}


def test_nothing_is_imported_that_pytest_alone_would_not(workspace: Workspace) -> None:
    workspace.write("test_ordinary.py", ORDINARY)
    alone = modules(workspace.directory)
    assert not [name for name in alone if name.partition(".")[0] == "pytest_taguru"]
    added = modules(workspace.directory, "-p", "pytest_taguru.plugin", *IDLE) - alone
    assert added >= DECLARING
    theirs = {name.partition(".")[0] for name in added - DECLARING}
    assert theirs <= sys.stdlib_module_names, added - DECLARING
    heavy = {"asyncio", "http", "concurrent", "socket", "ssl", "multiprocessing", "tempfile"}
    assert not theirs & heavy, added - DECLARING


def test_a_run_does_import_them(workspace: Workspace, server: LoopbackServer) -> None:
    """So the test above could fail."""
    workspace.dataset({"case_id": "c", "query": "q"})
    arguments = ("--taguru-eval=eval.jsonl", "--taguru-context=sake", f"--taguru-url={server.url}")
    found = modules(workspace.directory, "-p", "pytest_taguru.plugin", *arguments)
    assert {"msgspec", "requests", "urllib3", "pytest_taguru.engine.http"} <= found


def seen(text: str) -> str:
    """What was printed, without durations and the list of installed plugins."""
    text = re.sub(r"(?m)^plugins: .*\n", "", text)
    return re.sub(r"in \d+\.\d+s ?=*", "in …", text)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-v",),
        ("--collect-only",),
        ("--fixtures",),
        ("--setup-show",),
        ("-rA", "--durations=0", "--durations-min=99"),
        ("-n1", "--dist=each"),
    ],
    ids=" ".join,
)
def test_it_changes_no_byte_of_the_output(
    arguments: tuple[str, ...], workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.write("test_ordinary.py", ORDINARY)
    workspace.dataset({"case_id": "c", "query": "q"})
    without = workspace.run("-p", "no:taguru", *arguments)
    before = {file.relative_to(workspace.directory) for file in workspace.directory.rglob("*")}
    assert without.status == 0, without.shown
    for more in ((), (*IDLE, f"--taguru-url={server.url}", "--taguru-only")):
        run = workspace.run(*arguments, *more)
        assert run.status == 0, run.shown
        if "-n1" not in arguments:
            assert seen(run.stdout) == seen(without.stdout)
        assert run.stderr == without.stderr
        after = {file.relative_to(workspace.directory) for file in workspace.directory.rglob("*")}
        assert after == before
    assert server.requests == []


def test_nothing_is_registered(workspace: Workspace) -> None:
    workspace.write("test_ordinary.py", ORDINARY)
    workspace.write(
        "conftest.py",
        "def pytest_sessionfinish(session):\n"
        "    manager = session.config.pluginmanager\n"
        "    ours = [name for name, one in manager.list_name_plugin()\n"
        "            if 'taguru' in name and one is not None]\n"
        "    stash = getattr(session.config.stash, '_storage', {})\n"
        "    values = [one for one in stash.values() if 'taguru' in type(one).__module__]\n"
        "    print('ours:', ours, values, [item.name for item in session.items])\n",
    )
    run = workspace.run("-s")
    assert "ours: ['taguru'] [] ['test_ordinary']" in run.stdout, run.shown


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\n{}"),
        ("tox.ini", "[pytest]\n{}"),
        ("pyproject.toml", "[tool.pytest.ini_options]\n{}"),
    ],
)
def test_ini_options_alone_start_nothing(
    name: str, text: str, workspace: Workspace, server: LoopbackServer
) -> None:
    (workspace.directory / "pytest.ini").unlink()
    quote = '"' if name.endswith("toml") else ""
    values = {
        "taguru_url": server.url,
        "taguru_context": "sake",
        "taguru_out": "artifact.json",
        "taguru_thresholds": "no-such-file.json",
        "taguru_config": "no-such-file.env",
        "taguru_strict": "true",
        "taguru_assembly": "true",
    }
    lines = "".join(f"{key} = {quote}{value}{quote}\n" for key, value in values.items())
    workspace.write(name, text.format(lines))
    workspace.dataset({"case_id": "c", "query": "q"})
    workspace.write("test_ordinary.py", ORDINARY)
    run = workspace.run("-p", "no:cacheprovider")
    assert run.status == 0, run.shown
    assert "1 passed" in run.stdout
    assert f"configfile: {name}" in run.stdout
    for line in run.stdout.splitlines() + run.stderr.splitlines():
        assert "taguru" not in line or line.startswith(("plugins: ", "rootdir: ")), line
    assert server.requests == []
    assert not (workspace.directory / "artifact.json").exists()


#: Every flag, as the documentation has them.
FLAGS = {
    "--taguru-eval",
    "--taguru-context",
    "--taguru-url",
    "--taguru-config",
    "--taguru-out",
    "--taguru-thresholds",
    "--taguru-assembly",
    "--taguru-max-items",
    "--taguru-max-bytes",
    "--taguru-max-tokens",
    "--taguru-rerank",
    "--taguru-concurrency",
    "--taguru-only",
    "--taguru-strict",
    "--taguru-record",
    "--taguru-replay",
}


def test_help_lists_every_flag_in_one_group(workspace: Workspace) -> None:
    run = workspace.run("--help")
    assert run.status == 0, run.shown
    heading = r"retrieval quality gate \(taguru\):"
    (group,) = re.findall(rf"(?ms)^{heading}\n(.*?)\n\n", run.stdout)
    found = re.findall(r"(?m)^  (--taguru-[\w-]+)", group)
    assert len(found) == len(set(found))
    assert set(found) >= FLAGS
    outside = run.stdout.replace(group, "")
    assert not re.findall(r"(?m)^ +--taguru-[\w-]+", outside)
    assert group.count("\n") < 3 * len(found), "a line or two each"
    # The command that runs a case again takes the next word along with any flag but these.
    assert set(re.findall(r"(?m)^  (--taguru-[\w-]+)(?!=|[\w-])", group)) == set(SWITCHES)


def test_help_lists_every_ini_option(workspace: Workspace) -> None:
    run = workspace.run("--help")
    found = set(re.findall(r"(?m)^  (taguru_\w+) \(\w+\):", run.stdout))
    twins = {flag.removeprefix("--").replace("-", "_") for flag in FLAGS}
    without_twin = {"taguru_eval", "taguru_only", "taguru_record", "taguru_replay"}
    assert found >= (twins - without_twin) | {"taguru_junit_properties"}
    assert not found & without_twin


@pytest.mark.parametrize("flag", ["--help", "-h", "--version", "-V", "-VV"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("--taguru-eval=missing",),
        ("--taguru-eval=missing", "--taguru-eval=another"),
        ("--taguru-eval=/dev/null/eval.jsonl", *IDLE),
    ],
    ids=["missing", "twice", "all wrong"],
)
def test_help_and_version_touch_nothing(
    flag: str, arguments: tuple[str, ...], workspace: Workspace, server: LoopbackServer
) -> None:
    plain = workspace.run(flag)
    run = workspace.run(flag, *arguments, f"--taguru-url={server.url}", TAGURU_CONFIG="missing")
    assert run.status == 0, run.shown
    assert run.stderr == plain.stderr
    assert run.stdout == plain.stdout
    assert server.requests == []
    assert sorted(file.name for file in workspace.directory.iterdir()) == ["pytest.ini"]


@pytest.mark.parametrize("flag", ["--collect-only", "--setup-plan", "--fixtures"])
def test_what_only_shows_asks_and_writes_nothing(
    workspace: Workspace, server: LoopbackServer, flag: str
) -> None:
    workspace.dataset({"case_id": "one", "query": "q"})
    before = sorted(workspace.directory.iterdir())
    run = workspace.evaluate(server.url, flag, "-q", "-p", "no:cacheprovider")
    assert run.status == 0, run.shown
    assert "taguru evaluation" not in run.stdout
    assert ("eval.jsonl::one" in run.stdout) is (flag != "--fixtures")
    assert ("taguru_case" in run.stdout) is (flag != "--collect-only")
    assert not server.requests
    assert [
        path for path in sorted(workspace.directory.iterdir()) if "pycache" not in path.name
    ] == before
