"""Fixtures that several test files share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.runs import Launcher, Workspace, tried_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

settings.register_profile("patient", deadline=None)  # a loaded machine is no defect
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to try another copy of the plugin than the one beside these tests."""
    complaint = None if hasattr(config, "workerinput") else tried_elsewhere()
    if complaint:
        raise pytest.UsageError(complaint)


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    """Starts pytest runs."""
    with Launcher() as launcher:
        yield launcher


@pytest.fixture
def workspace(launcher: Launcher, tmp_path: Path) -> Workspace:
    """A project of its own for a test."""
    return Workspace(launcher, tmp_path)
