"""Fixtures of ours that are overridden where the cases cannot see it."""

from __future__ import annotations

import types
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .collection import file_nodeid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What the decorator makes of a function; pytest has no public name for it.
_Fixture = type(pytest.fixture(lambda: None))


def unseen_overrides(config: pytest.Config, dataset: Path, names: Sequence[str]) -> Iterator[str]:
    """A line for each conftest that overrides a fixture in vain.

    Not where another override is seen: then somebody chose, and the other one is for other tests.
    """
    for name in names:
        holders = [
            Path(plugin.__file__)
            for plugin in config.pluginmanager.get_plugins()
            if isinstance(plugin, types.ModuleType)
            and plugin.__file__
            and plugin.__name__ != f"{__package__}.fixtures"
            and isinstance(vars(plugin).get(name), _Fixture)
        ]
        if all(_is_unseen(holder, config.rootpath, dataset) for holder in holders):
            for holder in sorted(holders):
                yield (
                    f"{file_nodeid(config, holder)}: its fixture {name} is not seen by the cases of"
                    f" {file_nodeid(config, dataset)}, so it is not used; move it to a conftest.py"
                    " in the dataset's directory or above, or into a plugin (-p NAME)"
                )


def _is_unseen(holder: Path, root: Path, dataset: Path) -> bool:
    """Whether a fixture there is one of a conftest beside the way from rootdir to the dataset.

    A conftest of rootdir is seen from everywhere; of one outside it pytest's versions differ.
    """
    directory = holder.parent
    return (
        holder.name == "conftest.py"
        and root in directory.parents
        and directory not in dataset.parents
    )
