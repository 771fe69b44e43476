"""The hooks that a conftest or another plugin may implement. Specifications only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .engine.blocks import CaseBlock
    from .outcome import GateReport


@pytest.hookspec(firstresult=True)
def pytest_taguru_exitstatus(
    session: pytest.Session, report: GateReport, exitstatus: int
) -> int | None:
    """Choose the exit status of a run that had cases; `exitstatus` is pytest's own, None passes."""


@pytest.hookspec()
def pytest_taguru_case(item: pytest.Item, block: CaseBlock) -> None:
    """Look at a case that was just scored, in the process that ran it."""


@pytest.hookspec()
def pytest_taguru_artifact(config: pytest.Config, artifact: dict[str, Any]) -> None:
    """Add to `artifact["extensions"]` before evaluation.json is written; all else is fixed."""
