"""The table of metrics in the reference against the catalogue."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from pytest_taguru.engine.metrics import CASE_METRICS, CATALOGUE
from tests.docs.pages import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = "| metric | kind | case | what it says |\n|---|---|---|---|\n"


def rows(page: str) -> Iterator[tuple[str, str, bool]]:
    """(name, kind, whether "case" is ticked) of each metric in the table, in its order.

    A row may have several names; those that begin with a full stop continue the family of the
    first.
    """
    _, found, table = page.partition(_HEAD)
    assert found, "the table of metrics has another head"
    for line in table.partition("\n\n")[0].splitlines():
        names, kind, ticked, _ = (cell.strip() for cell in line.strip("|").split("|"))
        assert ticked in ("", "✓"), line
        first, *others = re.findall(r"`([^`]+)`", names)
        family = first.partition(".")[0]
        for name in (first, *others):
            yield family + name if name.startswith(".") else name, kind, ticked == "✓"


def test_the_reference_has_every_metric_once_and_no_other() -> None:
    stated = list(rows((DOCS / "reference.md").read_text("utf-8")))
    assert sorted(stated) == [
        (name, entry.definition.statistic, name in CASE_METRICS)
        for name, entry in CATALOGUE.items()
    ]


def test_a_row_may_have_several_names() -> None:
    page = f"before\n{_HEAD}| `a.b`, `.c`, `a.d` | ratio | ✓ | x |\n| `e.f` | y | | z |\n\n| no |\n"
    assert list(rows(page)) == [
        ("a.b", "ratio", True),
        ("a.c", "ratio", True),
        ("a.d", "ratio", True),
        ("e.f", "y", False),
    ]
    with pytest.raises(AssertionError, match="another head"):
        list(rows("no table"))
