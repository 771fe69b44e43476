"""The fixtures that a user may override."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .collection import EvalCase
from .engine.connections import new_session
from .engine.errors import EvaluationError, InputError
from .engine.http import HttpTransport
from .engine.recording import Recorder, Replayer
from .engine.run import Run
from .engine.target import parse_url
from .junit import case_properties, wants_properties
from .settings import is_worker
from .state import NO_CASE, STATE, NoCaseError
from .unseen import unseen_overrides

if TYPE_CHECKING:
    from collections.abc import Iterator

    import requests

    from .engine.blocks import CaseBlock
    from .engine.client import Transport
    from .engine.target import Target
    from .state import State

_NOBODYS = object()
#: The fixtures of this file.
_OVERRIDABLE = ("taguru_url", "taguru_http", "taguru_run", "taguru_case")


def _of_another_plugin(request: pytest.FixtureRequest) -> Any:
    """The value of the fixture of the same name in another plugin, or _NOBODYS.

    A conftest's fixture overrides one of a plugin, but among plugins the one registered last
    wins, and this one registers when it is asked for, after all others. So it gives way.
    """
    name = str(request.fixturename)
    try:
        return request.getfixturevalue(name)
    except pytest.FixtureLookupError as error:
        if error.argname != name:
            raise
        return _NOBODYS


@pytest.fixture(scope="session")
def taguru_url(request: pytest.FixtureRequest) -> Any:
    """The server's base URL. Override it to start a server and return its address."""
    given = _of_another_plugin(request)
    return request.config.stash[STATE].settings.target.base if given is _NOBODYS else given


@pytest.fixture(scope="session")
def taguru_http(request: pytest.FixtureRequest) -> Iterator[requests.Session]:
    """The requests.Session of the run. Override it for adapters, proxies, certificates, headers."""
    given = _of_another_plugin(request)
    if given is not _NOBODYS:
        yield given
        return
    with new_session(request.config.stash[STATE].settings.concurrency) as session:
        yield session


@pytest.fixture(scope="session")
def taguru_run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """The run: preflight before the first case, the revision after at teardown.

    It asks for taguru_url and taguru_http.
    """
    __tracebackhide__ = True
    given = _of_another_plugin(request)
    if given is not _NOBODYS:
        yield given
        return
    state = request.config.stash[STATE]
    # Before the first request: a wrong server may well be why it fails.
    state.note([*unseen_overrides(request.config, state.settings.eval.path, _OVERRIDABLE)])
    # As arguments of this fixture they would be looked up again for each case.
    url, http = map(request.getfixturevalue, ("taguru_url", "taguru_http"))
    try:
        run = _open(state, url, http)
    except EvaluationError as error:
        state.fail(error)
        request.session.shouldstop = f"taguru: {NO_CASE}"
        raise NoCaseError from None
    state.run = run
    run.look_ahead(*_coming(request, state))
    yield run
    if _is_cut_short(request.session, state):
        state.abandon_run()
    else:
        state.close_run()


@pytest.fixture
def taguru_case(request: pytest.FixtureRequest, taguru_run: Run) -> CaseBlock:
    """The scored block of this item's case; its lanes have run."""
    __tracebackhide__ = True  # an error of a hook or an adapter is shown as its own
    item: EvalCase = request.node
    given = _of_another_plugin(request)
    block: CaseBlock = taguru_run.block(item.index) if given is _NOBODYS else given
    item.block = block
    if wants_properties(request.config):
        properties = dict(case_properties(item, block))
        kept = [one for one in item.user_properties if one[0] not in properties]
        item.user_properties[:] = [*kept, *properties.items()]  # a rerun replaces its own
    item.ihook.pytest_taguru_case(item=item, block=block)
    return block


def _open(state: State, url: object, http: requests.Session) -> Run:
    __tracebackhide__ = True
    settings = state.settings
    target = _chosen_target(settings.target, url)
    state.url, state.url_origin = target.masked, target.origin
    transport: Transport
    if settings.replay is not None:
        transport = Replayer(settings.replay)
    else:
        transport = HttpTransport(http, target.base, settings.token)
    if settings.record is not None:
        state.recorder = Recorder(transport, settings.record.path, settings.record.shown)
        transport = state.recorder
    run = Run(
        transport,
        base=target.base,
        masked=target.masked,
        route=settings.route,
        dataset=settings.dataset,
    )
    state.note(run.opening.notes)
    return run


def _chosen_target(configured: Target, url: object) -> Target:
    """The fixture's URL; where it is not the configured one, the fixture named it."""
    if not isinstance(url, str):
        raise InputError("the fixture taguru_url must return the base URL as a string")
    chosen = parse_url(url, "the fixture taguru_url")
    return configured if chosen.base == configured.base else chosen


def _is_cut_short(session: pytest.Session, state: State) -> bool:
    """Whether cases were not reached, or broke off: then nothing more is asked of the server."""
    # A worker of xdist cannot know: its items may be done elsewhere.
    return not is_worker(session.config) and any(
        isinstance(item, EvalCase) and item.index not in state.done for item in session.items
    )


def _coming(request: pytest.FixtureRequest, state: State) -> tuple[list[int], int]:
    """The cases still to run here, in their order, and how many may be in flight."""
    if is_worker(request.config):
        # A worker holds every item but runs its share: the workers are the concurrency.
        return [], 1
    return [
        item.index
        for item in request.session.items
        if isinstance(item, EvalCase) and not any(map(item.get_closest_marker, ("skip", "skipif")))
    ], state.settings.concurrency
