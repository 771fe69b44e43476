"""Work on a thread of its own, whose frames nobody sees who is only waiting for it.

A signal (Ctrl-C, a time-out of a test) raises in the main thread, wherever that is. Were it in the
middle of a request, the traceback would pass through frames whose variables hold the token and
answers of the server, and pytest shows variables when it is asked to.
"""

from __future__ import annotations

import contextlib
import threading
import types
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

#: Packages and modules whose frames may hold what must not be shown.
_UNSHOWN = frozenset({"pytest_taguru", "requests", "urllib3", "http", "ssl", "socket", "msgspec"})


class Outcome(Generic[T]):
    """What became of some work: a value, or what it raised."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._error: BaseException | None = None
        try:
            self._value = work()
        except BaseException as error:
            _show_less(error)
            self._error = error

    def get(self) -> T:
        """The value; or raise what the work raised."""
        __tracebackhide__ = True  # test runners know it: not a frame that anyone wants to see
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self  # or the frames that the error holds would hold the error
        return self._value


def aside(work: Callable[[], T]) -> T:
    """Do it on a daemon thread and wait for it; what it raises is raised here.

    Whoever is interrupted while waiting leaves the thread behind. Where the system refuses a thread
    it is done here, and an interruption comes out of it like any other error.
    """
    __tracebackhide__ = True
    outcomes: SimpleQueue[Outcome[T]] = SimpleQueue()
    thread = threading.Thread(
        target=lambda: outcomes.put(Outcome(work)), name="taguru-aside", daemon=True
    )
    try:
        thread.start()
    except RuntimeError:  # the system has no thread left
        return Outcome(work).get()
    return outcomes.get().get()


def _show_less(error: BaseException) -> None:
    """Take frames of ours and of what is below us out of an exception, and of what it came from.

    Frames of others stay: a user's adapter is theirs to repair. If the innermost frame goes, a
    note says where it was.
    """
    for one in _chain(error):
        trace = list(_frames(one.__traceback__))
        kept = [frame for frame in trace if not _is_unshown(frame)]
        if trace and _is_unshown(trace[-1]):
            with contextlib.suppress(Exception):  # a frozen one takes no note
                one.add_note("raised in " + ", called from ".join(map(_place, reversed(trace))))
        shown: types.TracebackType | None = None
        for frame in reversed(kept):
            shown = types.TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
        one.with_traceback(shown)  # an assignment a frozen one would refuse


def _chain(error: BaseException) -> Iterator[BaseException]:
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            pending += [one.__cause__, one.__context__]


def _frames(trace: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_unshown(trace: types.TracebackType) -> bool:
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in _UNSHOWN


def _place(trace: types.TracebackType) -> str:
    code = trace.tb_frame.f_code
    return f"{Path(code.co_filename).name}:{trace.tb_lineno} ({code.co_name})"
