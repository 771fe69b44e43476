"""Runs with chosen plugins and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.runs import clean_environment

if TYPE_CHECKING:
    from tests.channels.shore import Shore
    from tests.support.replay_server import LoopbackServer
    from tests.support.runs import Launcher, Run

OURS = ("-p", "pytest_taguru.plugin")
XDIST = ("-n", "2")


def run_beside(
    launcher: Launcher,
    shore: Shore,
    *arguments: str,
    plugins: tuple[str, ...] = (),
    server: LoopbackServer | None = None,
) -> Run:
    """A run in which only this plugin and the named ones are loaded."""
    if server is None:
        with shore.serve() as own:
            return run_beside(launcher, shore, *arguments, plugins=plugins, server=own)
    if XDIST[0] in arguments:
        plugins = ("xdist", *plugins)  # first, since companions look for it
    named = [word for plugin in plugins for word in ("-p", plugin)]
    environment = clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS="")
    flags = [*OURS, *named, *shore.arguments(server.url), *arguments]
    return launcher.run(shore.directory, flags, environment)
