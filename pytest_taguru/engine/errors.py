"""What can go wrong, and what it leads to.

::

    Exception
    ├── EvaluationError     stops the run; carries one line per problem
    │   ├── InputError      exit status 2: flags, files, URL, unknown names
    │   └── RunError        exit status 1: the run could not complete
    └── CallError           one request failed; recorded where it happened, stops nothing
"""

from __future__ import annotations

from typing import ClassVar


class EvaluationError(Exception):
    """A run that cannot go on. `problems` are whole lines, ready to be shown."""

    status: ClassVar[int]

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class InputError(EvaluationError):
    """What the user gave is wrong: nothing was evaluated, and a retry cannot help."""

    status = 2


class RunError(EvaluationError):
    """The input is fine, but the run could not complete: server, network, disk."""

    status = 1


class CallError(Exception):
    """One request that did not bring a usable answer.

    `code` is the server's own error code, which only a 404 carries.
    """

    def __init__(self, message: str, *, status: int | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
