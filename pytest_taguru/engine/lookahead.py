"""Running ahead: work on coming tasks on threads while their results are taken in order."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class LookAhead(Generic[K, V]):
    """Works on tasks in their order, at most `width` at a time and `width` results in stock.

    The threads are daemons: one that hangs in a read delays nobody's exit. After `stop` no
    further task is begun.
    """

    def __init__(self, tasks: Iterable[K], work: Callable[[K], V], width: int) -> None:
        self._work = work
        self._width = width
        self._lock = threading.Condition()
        self._waiting = deque(tasks)
        self._begun: set[K] = set()
        self._done: dict[K, V | BaseException] = {}
        self._stopped = False
        for number in range(min(width, len(self._waiting))):
            threading.Thread(target=self._loop, name=f"taguru-{number}", daemon=True).start()

    def take(self, task: K) -> V:
        """The result of a task, worked out now if it was not begun (or taken before).

        Raises what the work raised.
        """
        with self._lock:
            if task not in self._begun and task in self._waiting:
                # Out of turn: what was skipped is not wanted next, so let it wait.
                self._waiting.remove(task)
            while task in self._begun and task not in self._done:
                self._lock.wait()
            if task in self._begun:
                self._begun.discard(task)
                outcome = self._done.pop(task)
                self._lock.notify_all()
                if isinstance(outcome, BaseException):
                    raise outcome
                return outcome
        return self._work(task)

    def stop(self) -> None:
        """Begin no further task. What is under way ends unseen."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()
            self._lock.notify_all()

    def _loop(self) -> None:
        while True:
            with self._lock:
                while not self._stopped and self._waiting and len(self._begun) >= 2 * self._width:
                    self._lock.wait()
                if self._stopped or not self._waiting:
                    return
                task = self._waiting.popleft()
                self._begun.add(task)
            outcome: V | BaseException
            try:
                outcome = self._work(task)
            except BaseException as error:
                outcome = error
            with self._lock:
                self._done[task] = outcome
                self._lock.notify_all()
