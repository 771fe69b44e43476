"""Every command of the documentation is run, and what the pages show is what it prints."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pytest_taguru.changes_view import WORST_SHOWN
from pytest_taguru.engine.dataset import SHOWN_PROBLEMS
from pytest_taguru.settings import DEFAULT_CONCURRENCY
from tests.docs.pages import (
    DOCS,
    Command,
    Ended,
    blocks,
    dead_links,
    may_fail,
    run_session,
    sessions,
    unlike,
)
from tests.support.artifact_diff import differences
from tests.support.live import LiveServer, find_binary
from tests.support.runs import PROJECT, clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.runs import Launcher

README = PROJECT / "README.md"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("howto/*.md")])
#: Pages whose commands begin in the checkout; those of all others begin in the example project.
IN_CHECKOUT = ("tutorial.md", "howto/existing-suite.md")
#: The page whose commands need the real server, and the address that it has there.
LIVE_PAGE = DOCS / "howto" / "first-server.md"
SHOWN_ADDRESS = "127.0.0.1:8248"
#: What the reader of a page about two finished runs has before the first command.
FINISHED_RUNS = (
    "pytest --taguru-eval=eval.jsonl --taguru-replay=recording.jsonl",
    "cp evaluation.json baseline.json",
)
AFTER_RUNS = ("baselines.md", "comparing.md")


def name_of(page: Path) -> str:
    return page.relative_to(DOCS).as_posix()


def commands_of(page: Path) -> list[Command]:
    return list(sessions(page.read_text("utf-8")))


WITH_COMMANDS = [page for page in PAGES if commands_of(page)]


def text_blocks(page: Path) -> list[str]:
    """What a page shows and no session runs."""
    return [block.removesuffix("\n") for block in blocks("text", page.read_text("utf-8"))]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a checkout as readers need, with nothing of pytest's above it."""
    checkout = tmp_path / "pytest-taguru"
    unwanted = shutil.ignore_patterns("__pycache__", ".*_cache", "evaluation.json")
    shutil.copytree(PROJECT / "example_project", checkout / "example_project", ignore=unwanted)
    return checkout


# -- the commands ----------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("bash") is None, reason="the commands are those of a POSIX shell")
@pytest.mark.parametrize("page", [page for page in WITH_COMMANDS if page != LIVE_PAGE], ids=name_of)
def test_the_commands_of_a_page_do_what_it_shows(page: Path, checkout: Path) -> None:
    commands = commands_of(page)
    if name_of(page) in AFTER_RUNS:
        before = [Command(line=line, shown=(), files={}) for line in FINISHED_RUNS]
        commands = [*before, *commands]
    start = checkout if name_of(page) in IN_CHECKOUT else checkout / "example_project"
    check(commands, run_session(commands, start))


def check(commands: list[Command], ended: list[Ended]) -> None:
    """Each command printed what is shown, and failed only if the page says so."""
    assert len(ended) == len(commands)
    for position, (command, end) in enumerate(zip(commands, ended, strict=True)):
        printed = "\n".join(end.printed)
        assert end.status == 0 or may_fail(commands, position), f"$ {command.line}\n{printed}"
        missing = unlike(command.shown, end.printed)
        assert missing is None, f"$ {command.line}\nnot as shown: {missing}\n\n{printed}"


@pytest.mark.live
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page asks the server with curl")
def test_the_commands_that_need_a_server(checkout: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "taguru").symlink_to(find_binary().resolve())
    _, start_line, _ = text_blocks(LIVE_PAGE)
    script = programs / "start"
    line = f"PATH='{programs}' exec /usr/bin/env {start_line}"
    script.write_text(f"#!/bin/sh\ncd '{tmp_path}'\n{line}\n", "utf-8")
    script.chmod(0o755)
    with LiveServer(script, providers=False) as server:
        address = server.url.removeprefix("http://")
        text = LIVE_PAGE.read_text("utf-8").replace(SHOWN_ADDRESS, address)
        commands = list(sessions(text))
        check(commands, run_session(commands, checkout, programs))
    assert (tmp_path / "taguru-data").is_dir()
    assert sum("curl" in command.line for command in commands) == 4


def test_the_tutorial_and_most_guides_have_commands_that_run() -> None:
    names = {name_of(page) for page in WITH_COMMANDS}
    guides = {name_of(page) for page in PAGES if page.parent.name == "howto"}
    assert "tutorial.md" in names
    assert len(names & guides) > len(guides) / 2


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        (("a", "b"), ("a", "", "b"), None),
        (("a",), ("a", "b"), "(the end)"),
        (("a", "…"), ("a", "b"), None),
        (("…", "b"), ("a", "b"), None),
        (("a", "c"), ("a", "b", "c"), "c"),
        (("a", "…", "c"), ("a", "b", "b", "c"), None),
        (("x … z",), ("x y z",), None),
        (("x … z",), ("x y",), "x … z"),
        (("= 1 passed in 0.16s =",), ("==== 1 passed in 12.00s ===",), None),
        ((), ("anything",), None),
    ],
)
def test_output_is_compared_line_by_line(
    shown: tuple[str, ...], printed: tuple[str, ...], expected: str | None
) -> None:
    assert unlike(shown, printed) == expected


def test_a_session_is_one_shell_with_the_files_that_the_page_asks_for(tmp_path: Path) -> None:
    page = (
        "Save this as `greeting.txt`:\n\n```text\nhello\n```\n\n"
        "```console\n$ word=$(cat greeting.txt)\n$ echo $word \\\n> again\nhello again\n"
        "$ (exit 3)\n$ echo $?\n3\n```\n"
    )
    commands = list(sessions(page))
    directory = tmp_path / "session"
    directory.mkdir()
    assert commands[0].files == {"greeting.txt": "hello\n"}
    ended = run_session(commands, directory)
    assert ended[1] == Ended(printed=("hello again", ""), status=0)
    assert ended[2].status == 3
    assert [may_fail(commands, position) for position in range(4)] == [False, False, True, False]
    assert unlike(commands[3].shown, ended[3].printed) is None


@pytest.mark.live
def test_the_recording_of_evidence_is_what_a_real_server_says(
    launcher: Launcher, checkout: Path
) -> None:
    flags = ["--taguru-eval=eval.jsonl", "--taguru-assembly", "--taguru-max-tokens=300"]
    example = checkout / "example_project"
    replay = "--taguru-replay=recording-assembly.jsonl"
    recorded = launcher.run(example, [*flags, replay], clean_environment()).artifact()
    environment = clean_environment(TAGURU_EXAMPLE_LIVE="1", TAGURU_TEST_BIN=str(find_binary()))
    fresh = launcher.run(example, flags, environment).artifact()
    assert differences(recorded, fresh) == []


# -- what the pages say ----------------------------------------------------------------------


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_an_address_is_quoted_for_the_shell(page: Path) -> None:
    assert not re.search(r"--taguru-[a-z-]+=\$", page.read_text("utf-8"))


@pytest.mark.parametrize(
    ("name", "sentence", "limit"),
    [
        ("comparing.md", r"the cases that lost most, up to (\d+)\.", WORST_SHOWN),
        ("compatibility.md", r"names up to (\d+) with their lines", SHOWN_PROBLEMS),
        ("howto/xdist.md", r"up to (\d+) cases are already in flight", DEFAULT_CONCURRENCY),
        ("reference.md", r"cases in flight at once \| (\d+);", DEFAULT_CONCURRENCY),
    ],
)
def test_a_limit_in_the_text_is_that_of_the_program(name: str, sentence: str, limit: int) -> None:
    assert re.findall(sentence, (DOCS / name).read_text("utf-8")) == [str(limit)]


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_no_count_of_metrics_flags_or_hooks_that_goes_stale(page: Path) -> None:
    number = "two|three|four|five|six|seven|eight|nine|ten|[a-z]+teen|twenty"
    counted = rf"\b(?:{number})\s+(?:[a-z]+\s+)?(?:metrics|flags|hooks|fixtures|schemas|pages)\b"
    assert not re.search(counted, page.read_text("utf-8"), re.I)


# -- links -----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page, in_site=True) == []


def test_the_map_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+\.md)\)", (DOCS / "index.md").read_text("utf-8")))
    assert {name_of(page) for page in PAGES} - {"index.md"} <= linked


# -- the site --------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it, but elsewhere."""
    for module in ("sphinx", "myst_parser", "furo"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed; it comes with the dependency group docs")
    built = tmp_path_factory.mktemp("site") / "html"
    ended = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", str(DOCS), str(built)],
        cwd=PROJECT,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return built


def test_the_site_builds_without_a_warning(site: Path) -> None:
    for page in PAGES:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file()


def test_every_page_is_in_the_navigation(site: Path) -> None:
    index = (site / "index.html").read_text("utf-8")
    navigation = index[index.index("sidebar-tree") :]
    navigation = navigation[: navigation.index("</aside>")]
    for page in PAGES:
        target = page.relative_to(DOCS).with_suffix(".html").as_posix()
        assert page.stem == "index" or f'href="{target}"' in navigation


def test_a_browser_shows_the_map(site: Path, tmp_path: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on PATH")
    quiet = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync"
        " --disable-background-networking --disable-component-update"
    )
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    shown = subprocess.run(
        [chromium, *quiet.split(), profile, "--dump-dom", (site / "index.html").as_uri()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "<h1>pytest-taguru" in shown.stdout
    assert 'href="tutorial.html"' in shown.stdout
    # The theme's script ran: it marks the page once it knows the reader's preference.
    assert re.search(r'<body[^>]* data-theme="auto"', shown.stdout)
