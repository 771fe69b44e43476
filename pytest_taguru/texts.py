"""What an item's outcome says in words."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from .engine.words import counted, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

    from .engine.blocks import CaseBlock, FailedCall


def failure_text(block: CaseBlock, broken: Sequence[str], where: str, again: str) -> str:
    """Why a case failed: the first line alone says it, then what was missed and how to rerun.

    `where` is the dataset's file and line, `again` a command line.
    """
    lines = [f"{printable(block.case_id)}: {'; '.join(broken)} ({printable(where)})"]
    lines += [f"  missed: {printable(miss)}" for miss in block.missed]
    if block.missed_truncated:
        lines.append(f"  … and {block.missed_truncated} more")
    lines += [
        f"  {call.lane} call failed: {printable(call.message)}" for call in block.failed_calls()
    ]
    lines.append(f"  run it again: {again}")
    return "\n".join(lines)


def skip_text(failed: Sequence[FailedCall]) -> str:
    """Why a case could not be judged."""
    first, *rest = failed
    more = f" (and {counted(len(rest), 'more failed call')})" if rest else ""
    return f"not judged, the {first.lane} call failed: {printable(first.message)}{more}"


def rerun_command(item: pytest.Item) -> str:
    """A command line for this case alone, with the run's own options."""
    arguments = [str(argument) for argument in item.config.invocation_params.args]
    # A worker of xdist was not started with the user's words, but it was told them.
    arguments = getattr(item.config, "workerinput", {}).get("mainargv", ["", *arguments])[1:]
    flags: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if not name.startswith("--taguru-"):
            continue
        given = [word] if equals or name in SWITCHES else [word, next(words, "")]
        if name not in _NOT_AGAIN:
            flags += given
    file = os.path.relpath(item.path, item.config.invocation_params.dir)
    return shlex.join(["pytest", *flags, "--taguru-only", f"{file}::{item.name}"])


#: Our flags that take no value.
SWITCHES = ("--taguru-assembly", "--taguru-only", "--taguru-strict")
_NOT_AGAIN = ("--taguru-only", "--taguru-record")


def complain(lines: Iterable[str]) -> None:
    """Say what went wrong or is worth a note, a line each, to whoever reads stderr."""
    for line in lines:
        sys.stderr.write(f"taguru: {printable(line)}\n")
    sys.stderr.flush()
