"""The door: declares options and hooks; registers the parts when a run is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import hooks, options

if TYPE_CHECKING:
    from .engine.errors import EvaluationError


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare flags and ini options."""
    options.add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks of this plugin."""
    pluginmanager.add_hookspecs(hooks)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Start a run, if one is asked for; else leave everything as it is."""
    option = config.option
    config.addinivalue_line("markers", "taguru: a case of the dataset of --taguru-eval")
    if not config.getoption(options.EVAL) or option.help or option.version:
        return
    # Nothing above this line may import the engine: an unused plugin costs nothing.
    from .activation import activate
    from .engine.errors import EvaluationError

    try:
        activate(config)
    except EvaluationError as error:
        _give_up(error)


def _give_up(error: EvaluationError) -> None:
    from .texts import complain

    complain(error.problems)
    pytest.exit("taguru: nothing was run", returncode=error.status)
