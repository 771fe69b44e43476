"""A page read: its blocks and links; its commands run in order, what they print against it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.runs import PROJECT, clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCS = PROJECT / "docs"

_FENCE = re.compile(r"^```(?P<tag>\w*)\n(?P<body>.*?)^```$", re.M | re.S)
#: What asks the reader, in the paragraph before a block, to write it to a file.
_SAVE = re.compile(r"\b[Ss]ave\s+this\s+as\s+`([^`]+)`")
_ECHO_STATUS = "echo $?"
_MARK = "=-=-= end of command"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of a console block, the lines below it, and files to write before it."""

    line: str
    shown: tuple[str, ...]
    files: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a command printed, on both streams, and its exit status."""

    printed: tuple[str, ...]
    status: int


def blocks(tag: str, text: str) -> Iterator[str]:
    """The fenced blocks of a language."""
    return (fence["body"] for fence in _FENCE.finditer(text) if fence["tag"] == tag)


def dead_links(page: Path, *, in_site: bool) -> list[str]:
    """The links within the project that lead nowhere; from the site, to a directory neither."""
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        file, _, anchor = target.partition("#")
        if file.startswith("https://"):
            continue
        linked = page.parent / file if file else page
        is_there = linked.is_file() if in_site else linked.exists()
        if not is_there or (anchor and anchor not in _slugs(linked)):
            dead.append(target)
    return dead


def _slugs(page: Path) -> list[str]:
    """What the headings of a page are called in a link."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings]


def sessions(text: str) -> Iterator[Command]:
    """The commands of a page, in order."""
    files: dict[str, str] = {}
    for fence in _FENCE.finditer(text):
        body = fence["body"]
        if fence["tag"] != "console":
            saved = _SAVE.search(text[: fence.start()].rstrip().rpartition("\n\n")[2])
            if saved:
                files[saved[1]] = body
            continue
        first, *parts = re.split(r"^\$ ", body, flags=re.M)
        assert not first, f"a console block begins with a command, not with {first!r}"
        for part in parts:
            line, *shown = part.splitlines()
            while shown and shown[0].startswith("> "):
                line = f"{line}\n{shown.pop(0)[2:]}"
            yield Command(line=line, shown=tuple(shown), files=files)
            files = {}


def run_session(
    commands: list[Command], directory: Path, programs: Path | None = None
) -> list[Ended]:
    """Run the commands one after another in one shell, as a reader would.

    `programs` is a directory that comes first on PATH.
    """
    script: list[str] = []
    for number, command in enumerate(commands):
        for name, content in command.files.items():
            staged = directory.parent / f"{number}.{name.replace('/', '.')}"
            staged.write_text(content, "utf-8")
            script.append(f"cp '{staged}' '{name}'")
        # `$?` is left as the command left it, for an `echo $?` that may follow.
        script += [command.line, 'left=$?; echo; echo "' + _MARK + ' $left"; (exit $left)']
    bash = shutil.which("bash")
    assert bash is not None
    environment = clean_environment(COLUMNS="80", PYTHONUNBUFFERED="1")
    before = [str(programs)] if programs else []
    path = [*before, sysconfig.get_path("scripts"), environment["PATH"]]
    environment["PATH"] = os.pathsep.join(path)
    ended = subprocess.run(
        [bash, "-c", "\n".join(["exec 2>&1", *script])],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    outputs = re.split(rf"^{_MARK} (\d+)\n", ended.stdout, flags=re.M)
    return [
        Ended(printed=tuple(printed.splitlines()), status=int(status))
        for printed, status in zip(outputs[::2], outputs[1::2], strict=False)
    ]


def may_fail(commands: list[Command], position: int) -> bool:
    """Whether the page goes on to show the exit status."""
    following = commands[position + 1 : position + 2]
    return bool(following) and following[0].line == _ECHO_STATUS


def steady(line: str) -> str:
    """A line of output without what differs from run to run."""
    line = re.sub(r"\d+\.\d+s", "Ns", line)
    line = re.sub(r"=+|-{5,}|_{5,}", "=", line)
    return re.sub(r"\s+", " ", line).strip()


def unlike(shown: tuple[str, ...], printed: tuple[str, ...]) -> str | None:
    """The first shown line that is not where the page has it, or None.

    Every line counts but blank ones. `…` within a line stands for anything in it, alone in a line
    for any number of lines.
    """
    expected = [steady(line) for line in shown if line.strip()]
    rest = [line for line in map(steady, printed) if line]
    skipping = False
    for line in expected:
        if line == "…":
            skipping = True
            continue
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        while skipping and rest and not pattern.fullmatch(rest[0]):
            rest.pop(0)
        if not rest or not pattern.fullmatch(rest.pop(0)):
            return line
        skipping = False
    return "(the end)" if expected and rest and not skipping else None
