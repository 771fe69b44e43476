"""A run asked for: its settings read, its parts registered where they belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import fixtures
from .collection import Collection, warn_of_lost_rootdir
from .gate import Gatekeeper, Reports
from .settings import is_worker, only_lists, read_settings, worker_count
from .state import STATE, State

if TYPE_CHECKING:
    import pytest


def activate(config: pytest.Config) -> None:
    """Read and check everything, then register. Raises InputError or RunError."""
    settings = read_settings(config)
    state = State(settings=settings)
    config.stash[STATE] = state
    register = config.pluginmanager.register
    if not worker_count(config):
        register(Collection(settings, config), "taguru_collection")
        register(fixtures, "taguru_fixtures")
        register(Reports(), "taguru_reports")
    if is_worker(config):
        from .workers import Worker

        register(Worker(config, state), "taguru_worker")
        return
    from .terminal import Terminal

    warn_of_lost_rootdir(config, settings.eval.path)
    gate = None
    if not only_lists(config):
        gate = Gatekeeper(config, state)
        register(gate, "taguru_gate")
    register(Terminal(config, state, gate), "taguru_terminal")
