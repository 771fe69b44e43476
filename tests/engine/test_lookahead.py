"""Running ahead: order, bounds, skipped tasks, errors and the end."""

from __future__ import annotations

import sys
import threading
from collections import Counter

import pytest

from pytest_taguru.engine import lookahead
from pytest_taguru.engine.aside import aside
from pytest_taguru.engine.lookahead import LookAhead

PATIENCE = 10.0


class Work:
    """Work that begins at once and ends when it is told to."""

    def __init__(self, *, free: bool = False) -> None:
        self.begun: Counter[int] = Counter()
        self.changed = threading.Condition()
        self.most_at_once = 0
        self._now = 0
        self._free = threading.Event()
        if free:
            self.release()

    def __call__(self, task: int) -> str:
        with self.changed:
            self.begun[task] += 1
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.changed.notify_all()
        assert self._free.wait(PATIENCE)
        with self.changed:
            self._now -= 1
        if task == 13:
            raise ValueError("unlucky")
        return f"result {task}"

    def release(self) -> None:
        """Let all work end, now and later."""
        self._free.set()

    def wait_begun(self, count: int) -> None:
        """Until that many tasks have begun."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.begun.total() >= count, PATIENCE)


def threads_of_ours() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("taguru-")]


def test_results_come_in_order_and_each_task_is_worked_on_once() -> None:
    work = Work(free=True)
    ahead = LookAhead(range(20, 120), work, 4)
    wanted = [f"result {task}" for task in range(20, 120)]
    assert [ahead.take(task) for task in range(20, 120)] == wanted
    assert work.begun == Counter(range(20, 120))


def test_at_most_width_are_in_flight_and_they_do_run_together() -> None:
    work = Work()
    ahead = LookAhead(range(20), work, 3)
    work.wait_begun(3)
    assert set(work.begun) == {0, 1, 2}
    work.release()
    assert [ahead.take(task) for task in range(10)] == [f"result {task}" for task in range(10)]
    assert work.most_at_once == 3
    ahead.stop()


def test_without_takers_no_more_than_twice_the_width_is_begun() -> None:
    work = Work(free=True)
    ahead = LookAhead(range(50), work, 2)
    work.wait_begun(4)
    ahead.stop()
    for thread in threads_of_ours():
        thread.join(PATIENCE)
    assert set(work.begun) == {0, 1, 2, 3}


def test_what_the_work_raised_is_raised_to_the_taker_alone() -> None:
    ahead = LookAhead([12, 13, 14], Work(free=True), 2)
    assert ahead.take(12) == "result 12"
    with pytest.raises(ValueError, match="unlucky"):
        ahead.take(13)
    assert ahead.take(14) == "result 14"


def test_a_task_taken_again_is_worked_on_again() -> None:
    work = Work(free=True)
    ahead = LookAhead([1, 2], work, 2)
    assert ahead.take(1) == "result 1"
    assert ahead.take(1) == "result 1"
    assert work.begun[1] == 2
    assert ahead.take(2) == "result 2"
    assert work.begun[2] == 1


def test_a_task_that_was_never_announced_is_worked_on_here() -> None:
    ahead = LookAhead([1], Work(free=True), 2)
    assert ahead.take(99) == "result 99"
    assert ahead.take(1) == "result 1"


def test_skipped_tasks_do_not_hold_the_others_up() -> None:
    work = Work(free=True)
    ahead = LookAhead(range(40), work, 2)
    work.wait_begun(4)
    # Nobody takes 0 to 19: their places must become free, or 20 on would run one by one.
    assert ahead.take(20) == "result 20"
    work.wait_begun(6)
    assert ahead.take(21) == "result 21"
    assert not [task for task in work.begun if 4 < task < 20]
    ahead.stop()


def test_stop_begins_nothing_more_and_leaves_no_thread() -> None:
    work = Work()
    ahead = LookAhead(range(50), work, 3)
    work.wait_begun(3)
    ahead.stop()
    work.release()
    for thread in threads_of_ours():
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert set(work.begun) == {0, 1, 2}


def test_threads_are_daemons_so_that_a_hung_one_cannot_delay_the_exit() -> None:
    work = Work()
    ahead = LookAhead(range(5), work, 2)
    work.wait_begun(2)
    assert all(thread.daemon for thread in threads_of_ours())
    ahead.stop()
    work.release()


def test_work_that_is_wanted_now_waits_for_a_place() -> None:
    """Or a case that is asked for again would be one more in flight than allowed."""
    order: list[str] = []
    begun, free = threading.Semaphore(0), threading.Event()
    me = threading.get_ident()

    def work(task: int) -> str:
        begun.release()
        assert free.wait(PATIENCE)
        order.append("end")
        return f"result {task}"

    def work_now(task: int) -> str:
        order.append("now")
        return f"again {task}"

    def release_once_blocked() -> None:
        while not sys._current_frames()[me].f_code.co_filename.endswith("threading.py"):
            free.wait(0.001)
        free.set()

    ahead = LookAhead([1, 2], work, 2, work_now)
    for _ in range(2):
        assert begun.acquire(timeout=PATIENCE)
    watcher = threading.Thread(target=release_once_blocked)
    watcher.start()
    assert ahead.take(99) == "again 99"
    watcher.join(PATIENCE)
    assert order[0] == "end"
    assert (ahead.take(1), ahead.take(2)) == ("result 1", "result 2")


def test_a_task_that_was_forgotten_is_worked_on_anew() -> None:
    """Done or still under way: what it came to is nobody's."""
    begun, free = threading.Semaphore(0), threading.Event()

    def work(task: int) -> str:
        begun.release()
        if task == 1:
            assert free.wait(PATIENCE)
        return f"result {task}"

    ahead = LookAhead([1, 2], work, 3, lambda task: f"again {task}")
    for _ in range(2):
        assert begun.acquire(timeout=PATIENCE)
    ahead.forget(1)
    ahead.forget(2)
    assert ahead.take(1) == "again 1"
    assert ahead.take(2) == "again 2"
    free.set()


def held_up(number: int) -> tuple[LookAhead[int, int], threading.Event, list[int]]:
    """Four tasks begun by two threads, of which one only ends when it is let; and what ended."""
    free, ended = threading.Event(), []

    def work(task: int) -> int:
        if task == number:
            assert free.wait(PATIENCE)
        ended.append(task)
        return task

    return LookAhead(range(50), work, 2), free, ended


def test_a_taker_who_had_to_wait_stands_aside_until_the_burst_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lookahead, "_BURST_SECONDS", PATIENCE)
    ahead, free, ended = held_up(0)
    threading.Timer(0, free.set).start()
    assert ahead.take(0) == 0
    assert sorted(ended)[:4] == [0, 1, 2, 3]
    ahead.stop()


def test_but_not_for_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookahead, "_BURST_SECONDS", 0.001)
    ahead, free, ended = held_up(3)
    assert ahead.take(0) == 0
    assert 3 not in ended
    free.set()
    assert [ahead.take(task) for task in range(1, 9)] == list(range(1, 9))
    ahead.stop()


def refuse_threads(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def refuse(self: threading.Thread) -> None:
        if len(started) == after:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.parametrize("threads", [0, 1])
def test_a_system_that_refuses_threads_makes_it_slower_no_more(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(free=True)
    refuse_threads(monkeypatch, after=threads)
    ahead = LookAhead(range(20, 40), work, 4, lambda task: aside(lambda: work(task)))
    assert [ahead.take(task) for task in range(20, 40)] == [f"result {n}" for n in range(20, 40)]
    assert work.begun == Counter(range(20, 40))
