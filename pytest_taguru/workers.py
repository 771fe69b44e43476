"""pytest-xdist: what a worker knows beyond its reports, shipped to the controller at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import Struct

from .engine.corpus import Bracket
from .engine.errors import EvaluationError, InputError, RunError

if TYPE_CHECKING:
    from .state import State

KEY = "taguru"


class _Problem(Struct):
    status: int
    lines: list[str]


class _Parcel(Struct):
    """What travels, as JSON text: execnet takes plain types only."""

    url: str
    url_origin: str
    brackets: list[Bracket]
    notes: list[str]
    fatal: list[_Problem]
    interrupted: bool


_DECODER = msgspec.json.Decoder(_Parcel)


class Worker:
    """Registered in a worker."""

    def __init__(self, config: pytest.Config, state: State) -> None:
        self._output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]
        self._state = state
        self._interrupted = False

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember that a test, or somebody, ended this worker."""
        self._interrupted |= not isinstance(excinfo.value, pytest.Session.Interrupted)
        if type(excinfo.value) is KeyboardInterrupt:
            self._state.abandon_run()  # asking once more could take as long as it likes

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Pack the parcel, after the session's fixtures were torn down."""
        state = self._state
        state.close_run()
        parcel = _Parcel(
            url=state.url,
            url_origin=state.url_origin,
            brackets=state.brackets,
            notes=state.notes,
            fatal=[_Problem(error.status, list(error.problems)) for error in state.fatal],
            interrupted=self._interrupted,
        )
        self._output[KEY] = msgspec.json.encode(parcel).decode("utf-8")


def receive(node: Any, state: State) -> _Parcel | None:
    """Add a worker's parcel to the controller's state; None if it brought none: a crash."""
    text = getattr(node, "workeroutput", {}).pop(KEY, None)
    if text is None:
        return None
    parcel = _DECODER.decode(text)
    state.url, state.url_origin = parcel.url or state.url, parcel.url_origin or state.url_origin
    state.brackets += parcel.brackets
    state.note(parcel.notes)
    for problem in parcel.fatal:
        kind: type[EvaluationError] = InputError if problem.status == 2 else RunError
        state.fail(kind(*problem.lines))
    return parcel
