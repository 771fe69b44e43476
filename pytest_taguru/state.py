"""What a process of a run knows: its settings, and what came up on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .engine.corpus import Bracket
    from .engine.errors import EvaluationError
    from .engine.recording import Recorder
    from .engine.run import Run
    from .settings import Settings


NO_CASE = "no case can be run"


class NoCaseError(Exception):
    """Stands for the errors in `State.fatal` where an item asked for the run and got none.

    It does not repeat them: every item, and every worker of xdist, would.
    """

    def __init__(self) -> None:
        super().__init__(f"taguru: {NO_CASE}; the reason is on stderr")


@dataclass(kw_only=True)
class State:
    """One per process; under pytest-xdist the workers' parts are shipped to the controller."""

    settings: Settings
    run: Run | None = None
    recorder: Recorder | None = None
    #: The server that was asked: masked, and who named it.
    url: str = ""
    url_origin: str = ""
    brackets: list[Bracket] = field(default_factory=list)
    #: The cases that this process is done with: judged, or skipped by a mark.
    done: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    fatal: list[EvaluationError] = field(default_factory=list)

    def note(self, lines: list[str]) -> None:
        """Keep lines for stderr and the final section, each once."""
        self.notes += [line for line in dict.fromkeys(lines) if line not in self.notes]

    def fail(self, error: EvaluationError) -> None:
        """Keep what ends the run, each problem once."""
        known = {problem for earlier in self.fatal for problem in earlier.problems}
        problems = [problem for problem in error.problems if problem not in known]
        if problems:
            self.fatal.append(type(error)(*problems))

    @property
    def error_status(self) -> int | None:
        """The status that the kept errors lead to: wrong input outweighs an incomplete run."""
        return max((error.status for error in self.fatal), default=None)

    def abandon_run(self) -> None:
        """End a run that was cut short: what the corpus is now does not matter any more."""
        run, self.run = self.run, None
        if run is not None:
            run.stop()

    def close_run(self) -> None:
        """Read the revision after the cases, once; a failure to is kept."""
        from .engine.errors import EvaluationError

        run, self.run = self.run, None
        if run is None:
            return
        try:
            self.brackets.append(run.close())
        except EvaluationError as error:
            self.fail(error)


STATE = pytest.StashKey[State]()
