"""Running ahead: work on coming tasks on threads while their results are taken in order."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from .aside import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


#: Longer than a burst against a server on the same machine, shorter than a round trip that counts.
_BURST_SECONDS = 0.01
#: Threads that keep such a server busy; more would only wait for each other.
_BURST_WIDTH = 3


class LookAhead(Generic[K, V]):
    """Works on tasks in their order: `width` at a time, at most twice as many begun, not taken.

    Only one thread at a time can run Python, so as long as the work hardly waits for anything, it
    is done in bursts: the taker stands aside until all that may be begun is done, then the threads
    until all of it is taken, and few of them take part. A burst that takes long is the last one,
    until the threads are ahead of the taker by all they may be.

    The threads are daemons: one that hangs in a read delays nobody's exit. After `stop` no
    further task is begun. Of threads that the system refuses there are fewer, or none.

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
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._news = threading.Condition(self._lock)
        self._waiting = deque(tasks)
        self._order = {task: position for position, task in enumerate(self._waiting)}
        #: Tasks that a thread has begun and nobody has taken yet.
        self._begun: set[K] = set()
        self._done: dict[K, Outcome[V]] = {}
        self._in_bursts = True
        #: The task that someone waits for.
        self._wanted: K | None = None
        with contextlib.suppress(RuntimeError):  # no more threads: what nobody began, `take` does
            for number in range(min(width, len(self._waiting))):
                threading.Thread(target=self._loop, name=f"taguru-{number}", daemon=True).start()

    def take(self, task: K) -> V:
        """The result of a task; worked out here if it is not under way (or was taken before).

        Raises what the work raised. Tasks before this one that nobody took are given up: they
        were skipped.
        """
        __tracebackhide__ = True
        with self._lock:
            self._forget_before(task)
            if task in self._begun:
                if task not in self._done:
                    self._wanted = task
                    self._news.wait_for(lambda: task in self._done)
                    if self._in_bursts:
                        over = self._news.wait_for(self._is_burst_over, _BURST_SECONDS)
                        self._in_bursts = over
                elif self._is_burst_over():
                    self._in_bursts = True
                outcome = self._done[task]
                self._let_go(task)
                if not self._in_bursts:
                    self._room.notify_all()
                elif not self._begun:
                    self._room.notify(_BURST_WIDTH)
                return outcome.get()
            if self._waiting and self._waiting[0] == task:
                self._waiting.popleft()
        with self._places:
            return self._work_now(task)

    def forget(self, task: K) -> None:
        """Let go of what a task came to, or comes to: if it is wanted again, it is begun anew."""
        with self._lock:
            self._let_go(task)
            self._room.notify_all()

    def stop(self) -> None:
        """Begin no further task. What is under way ends unseen."""
        with self._lock:
            self._waiting.clear()
            self._room.notify_all()

    def _let_go(self, task: K) -> None:
        self._begun.discard(task)
        self._done.pop(task, None)

    def _is_burst_over(self) -> bool:
        """Whether no thread has anything to do before more is taken."""
        are_idle = not self._has_room() or not self._waiting
        return are_idle and len(self._done) == len(self._begun)

    def _has_room(self) -> bool:
        return len(self._begun) < 2 * self._width

    def _forget_before(self, task: K) -> None:
        place = self._order.get(task, -1)
        while self._waiting and self._order[self._waiting[0]] < place:
            self._waiting.popleft()
        skipped = [one for one in self._begun if self._order[one] < place]
        for earlier in skipped:
            self._let_go(earlier)
        if skipped or not self._waiting:
            self._room.notify_all()

    def _loop(self) -> None:
        while True:
            with self._lock:
                self._room.wait_for(lambda: self._has_room() or not self._waiting)
                if not self._waiting:
                    self._room.notify_all()  # nor is there anything left for the others
                    return
                task = self._waiting.popleft()
                self._begun.add(task)
            with self._places:
                outcome = Outcome(partial(self._work, task))
            with self._lock:
                if task in self._begun:
                    self._done[task] = outcome
                    if task == self._wanted or self._is_burst_over():
                        self._news.notify_all()
