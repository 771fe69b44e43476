"""docs/drives.md, row by row."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.channels.shore import CASES, RECALL_OF_1, Shore, busy, section
from tests.support.replay_server import Answer, Request, refusal
from tests.support.runs import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.runs import Run, Workspace

WORKERS = ("-n", "2", "--dist", "loadfile")


@dataclass(frozen=True)
class Row:
    """A row of the table, for one of the two ways to run."""

    drive: str
    wrong: str
    status: int
    artifact: str
    lines: tuple[str, ...]
    workers: bool

    def __str__(self) -> str:
        return f"{self.drive or 'plain'}, {self.wrong}{', -n 2' if self.workers else ''}"


def rows() -> Iterator[Row]:
    """The table of the document."""
    text = (PROJECT / "docs" / "drives.md").read_text("utf-8")
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 6 or cells[0].startswith(("pytest", "---")):
            continue
        drive, wrong, serial, distributed, artifact, lines = cells
        for status, workers in ((serial, False), (distributed, True)):
            if status != "–":
                found = tuple(re.findall("`([^`]+)`", lines))
                yield Row(drive.strip("`"), wrong, int(status), artifact, found, workers)


ROWS = list(rows())

# -- what is wrong -------------------------------------------------------------------------------


def test_the_table_was_read() -> None:
    assert sum(not row.workers for row in ROWS) == 50
    assert sum(row.workers for row in ROWS) == 51
    assert {row.wrong for row in ROWS} == set(WRONG)


def fixture_for(name: str, body: str) -> str:
    """A conftest with a fixture that does something before one case."""
    return (
        "import os\nimport pytest\n\n\n@pytest.fixture(autouse=True)\ndef low_tide(request):\n"
        f"    if request.node.name == {name!r}:\n        {body}\n"
    )


def mark(name: str, marker: str) -> str:
    """A conftest that marks one case."""
    return (
        "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n    for item in items:\n"
        f"        if item.name == {name!r}:\n            item.add_marker(pytest.mark.{marker})\n"
    )


def changing(request: Request) -> Answer | None:
    """Every search is at the same time somebody's write."""
    if request.path.endswith("/sources/search"):
        server_state["graph"] += 1
    return None


server_state = {"graph": 0}


def context_lost(request: Request) -> Answer | None:
    """The context is fine until something was searched."""
    if request.path.endswith("/sources/search"):
        server_state["graph"] = -1
    if request.path == "/contexts/shore" and server_state["graph"] < 0:
        return refusal(500, "out of order", "internal")
    return None


TESTS = {
    "fail": "def test_tide():\n    assert 'low' == 'high'\n",
    "exit": "import pytest\n\n\ndef test_tide():\n    pytest.exit('enough')\n",
    "broken": "import a_module_that_is_not_there\n",
    "kill": "import os\n\n\ndef test_tide():\n    os._exit(1)\n",
}

MISSING_KELP = {"missing": ["kelp"]}
#: For each entry of the table's second column: how the suite is made, and files over it.
WRONG: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "nothing": ({}, {}),
    "no thresholds file": ({"thresholds": None}, {}),
    "a case bound": (MISSING_KELP, {}),
    "an aggregate bound": (
        {"thresholds": {"aggregate": {"diversity.sources": {"min": 2}}, "cases": RECALL_OF_1}},
        {},
    ),
    "the corpus changes": ({"hook": changing}, {}),
    "a call fails": ({"hook": busy}, {}),
    "an ordinary test": ({}, {"test_shore.py": TESTS["fail"]}),
    "an ordinary test, a case bound": (MISSING_KELP, {"test_shore.py": TESTS["fail"]}),
    "a case bound, but kelp is marked xfail": (
        MISSING_KELP,
        {"conftest.py": mark("kelp", "xfail")},
    ),
    "a case bound, but kelp is marked skip": (
        MISSING_KELP,
        {"conftest.py": mark("kelp", "skip")},
    ),
    "a case bound, but kelp is marked xfail(run=False)": (
        MISSING_KELP,
        {"conftest.py": mark("kelp", "xfail(run=False)")},
    ),
    "kelp is marked xfail(strict=True) and holds": (
        {},
        {"conftest.py": mark("kelp", "xfail(strict=True)")},
    ),
    "a fixture skips kelp": ({}, {"conftest.py": fixture_for("kelp", "pytest.skip('no boots')")}),
    "a fixture fails for kelp": (
        {},
        {"conftest.py": fixture_for("kelp", "raise ValueError('no boots')")},
    ),
    "a fixture fails for limpet, a case bound": (
        MISSING_KELP,
        {"conftest.py": fixture_for("limpet", "raise ValueError('no boots')")},
    ),
    "the server is down": ({}, {}),
    "the context cannot be read after the cases": ({"hook": context_lost}, {}),
    "an unknown context": ({"hook": lambda _: None}, {}),
    "an unknown source": ({}, {}),
    "a broken dataset": ({"extra": ({"case_id": "crab"},)}, {}),
    "pytest.exit in an ordinary test": ({}, {"test_shore.py": TESTS["exit"]}),
    "a file of ordinary tests that cannot be collected": ({}, {"test_shore.py": TESTS["broken"]}),
    "an ordinary test kills its worker": ({}, {"test_shore.py": TESTS["kill"]}),
    "a fixture kills its worker at kelp": (
        {},
        {"conftest.py": fixture_for("kelp", "os._exit(1)")},
    ),
}


@pytest.fixture
def shore(workspace: Workspace) -> Callable[[str], Shore]:
    def make(wrong: str) -> Shore:
        server_state["graph"] = 0
        members, files = WRONG[wrong]
        made = Shore(workspace=workspace, **members)
        for name, text in files.items():
            workspace.write(name, text)
        if wrong == "an unknown context":
            made.fake.context = "another"
        if wrong == "an unknown source":
            made.fake.sources = tuple(name for name in made.fake.sources if "kelp" not in name)
        return made

    return make


def run(shore: Shore, row: Row) -> Run:
    arguments = [*(WORKERS if row.workers else ()), *shlex.split(row.drive)]
    with shore.serve() as server:
        if row.wrong == "the server is down":
            server.stop()
        if row.wrong == "the corpus changes":
            answer = shore.fake.answer

            def counted(request: Request) -> Answer:
                shore.fake.graph_revision = server_state["graph"]
                return answer(request)

            server._answer = counted
        return shore.run_against(server, *arguments)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row(row: Row, shore: Callable[[str], Shore]) -> None:
    suite = shore(row.wrong)
    ended = run(suite, row)
    assert ended.status == row.status, ended.shown
    assert "INTERNALERROR" not in ended.stdout + ended.stderr
    if row.artifact == "kept":
        assert suite.is_untouched
    else:
        assert_written(suite, ended, row.artifact)
    shown, complaints = section(ended), ended.complaints
    for line in row.lines:
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        places = complaints if line.startswith("taguru:") else shown
        assert sum(bool(pattern.fullmatch(place)) for place in places) == 1, (line, ended.shown)
    if not row.lines:
        assert (shown, complaints) == ([], [])


def assert_written(suite: Shore, ended: Run, state: str) -> None:
    written = ended.artifact()
    if state == "whole":
        assert suite.judged() == list(CASES)
        assert "selection" not in written["inputs"]
    else:
        many, total = map(int, state.split(" of "))
        assert written["inputs"]["selection"] == {"selected": many, "total": total}
        judged = suite.judged()
        assert len(judged) == many
        assert judged == sorted(judged, key=CASES.index)
