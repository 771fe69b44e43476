"""Drawn corpora, datasets, thresholds and flags through both programs, on the same context.

A run of the suite draws the same examples each time, about three minutes' worth. To look for
longer, and each time elsewhere, give a factor for the number of examples:

    TAGURU_FUZZ=20 python -m pytest tests/fuzz

What such a search finds becomes a small test with a name, in `test_found.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import event, given

from .both import Arena, verdict
from .budget import budget
from .strategies import Example, examples

if TYPE_CHECKING:
    from tests.support.runs import Launcher

pytestmark = pytest.mark.live


def check(arena: Arena, example: Example, launcher: Launcher | None = None) -> None:
    """Both programs must agree."""
    status, differing = verdict(arena, example, launcher)
    event(f"status {status}")
    assert differing == []


@budget(500)
@given(example=examples())
def test_engine_on_a_bare_server(bare: Arena, example: Example) -> None:
    check(bare, example)


@budget(400)
@given(example=examples())
def test_engine_on_an_equipped_server(equipped: Arena, example: Example) -> None:
    check(equipped, example)


@budget(20)
@given(example=examples())
def test_whole_runs(bare: Arena, launcher: Launcher, example: Example) -> None:
    check(bare, example, launcher)


@budget(20)
@given(example=examples())
def test_whole_runs_with_providers(equipped: Arena, launcher: Launcher, example: Example) -> None:
    check(equipped, example, launcher)
