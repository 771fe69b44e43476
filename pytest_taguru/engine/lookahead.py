"""Running ahead: work on coming tasks on threads while their results are taken in order."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from .aside import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


class LookAhead(Generic[K, V]):
    """Works on tasks in their order: `width` at a time, at most twice as many begun, not taken.

    The threads are daemons: one that hangs in a read delays nobody's exit. After `stop` no
    further task is begun.

    `work_now` is for a task that is not under way when it is wanted (or was taken before): it is
    called by `take`, once fewer than `width` tasks are being worked on.
    """

    def __init__(
        self,
        tasks: Iterable[K],
        work: Callable[[K], V],
        width: int,
        work_now: Callable[[K], V] | None = None,
    ) -> None:
        self._work = work
        self._work_now = work_now or work
        self._width = width
        self._places = threading.Semaphore(width)
        self._changed = threading.Condition()
        self._waiting = deque(tasks)
        self._order = {task: position for position, task in enumerate(self._waiting)}
        #: Tasks that a thread has begun and nobody has taken yet.
        self._begun: set[K] = set()
        self._done: dict[K, Outcome[V]] = {}
        for number in range(min(width, len(self._waiting))):
            threading.Thread(target=self._loop, name=f"taguru-{number}", daemon=True).start()

    def take(self, task: K) -> V:
        """The result of a task; worked out here if it is not under way (or was taken before).

        Raises what the work raised. Tasks before this one that nobody took are given up: they
        were skipped.
        """
        __tracebackhide__ = True
        with self._changed:
            self._forget_before(task)
            if task in self._begun:
                self._changed.wait_for(lambda: task in self._done)
                self._begun.discard(task)
                outcome = self._done.pop(task)
                self._changed.notify_all()
                return outcome.get()
            if self._waiting and self._waiting[0] == task:
                self._waiting.popleft()
        with self._places:
            return self._work_now(task)

    def forget(self, task: K) -> None:
        """Let go of what a task came to, or comes to: if it is wanted again, it is begun anew."""
        with self._changed:
            self._begun.discard(task)
            self._done.pop(task, None)
            self._changed.notify_all()

    def stop(self) -> None:
        """Begin no further task. What is under way ends unseen."""
        with self._changed:
            self._waiting.clear()
            self._changed.notify_all()

    def _forget_before(self, task: K) -> None:
        place = self._order.get(task, -1)
        while self._waiting and self._order[self._waiting[0]] < place:
            self._waiting.popleft()
        for earlier in [one for one in self._begun if self._order[one] < place]:
            self._begun.discard(earlier)
            self._done.pop(earlier, None)
        self._changed.notify_all()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: not self._waiting or len(self._begun) < 2 * self._width
                )
                if not self._waiting:
                    return
                task = self._waiting.popleft()
                self._begun.add(task)
            with self._places:
                outcome = Outcome(partial(self._work, task))
            with self._changed:
                if task in self._begun:
                    self._done[task] = outcome
                    self._changed.notify_all()
