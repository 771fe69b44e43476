"""What a user installs, and the versions that development uses; `make dist` tries the rest."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import entry_points, metadata
from typing import Any

import pytest

import pytest_taguru
from tests.support.runs import PROJECT

PYPROJECT: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
CONSTRAINTS = (PROJECT / "constraints.txt").read_text("utf-8").splitlines()
PIN = re.compile(r"([\w.-]+)==[\w.!+-]+")


def normal(requirement: str) -> str:
    """The name in a requirement or a pin, as indexes compare it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def wanted() -> set[str]:
    """All that the project names, for users and for development."""
    groups = [PYPROJECT["project"]["dependencies"], *PYPROJECT["dependency-groups"].values()]
    return {normal(name) for group in groups for name in group if isinstance(name, str)}


def test_constraints_are_plain_versions() -> None:
    pins = [line for line in CONSTRAINTS if not line.startswith("#")]
    assert [pin for pin in pins if not PIN.fullmatch(pin)] == []
    names = [normal(pin) for pin in pins]
    assert len(names) == len(set(names))


def test_constraints_cover_all_that_is_named() -> None:
    assert wanted() <= {normal(line) for line in CONSTRAINTS if PIN.fullmatch(line)}


def test_users_are_not_held_to_them() -> None:
    for requirement in PYPROJECT["project"]["dependencies"]:
        assert not re.search(r"==|<|~", requirement), f"{requirement} has an upper bound"
    assert "constraints" not in str(PYPROJECT["project"])


def test_the_version_is_the_same_everywhere() -> None:
    version = PYPROJECT["project"]["version"]
    assert pytest_taguru.__version__ == version == metadata("pytest-taguru")["Version"]
    heading = rf"^## \[({re.escape(version)}|Unreleased)\]"
    assert re.search(heading, (PROJECT / "CHANGELOG.md").read_text("utf-8"), re.M)


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("pytest11", "taguru", "pytest_taguru.plugin"),
        ("console_scripts", "taguru-eval-compare", "pytest_taguru.compare:main"),
    ],
)
def test_entry_points(group: str, name: str, value: str) -> None:
    assert [point.value for point in entry_points(group=group, name=name)] == [value]


def test_the_makefile_uses_them() -> None:
    installs = re.findall(
        r"^.*pip .*install .*--editable.*$", (PROJECT / "Makefile").read_text("utf-8"), re.M
    )
    assert len(installs) == 2
    assert all("$(CONSTRAINED)" in line for line in installs)
