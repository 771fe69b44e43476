"""Work aside: its results, what of its exceptions is shown, and nobody's interruption."""

from __future__ import annotations

import threading
import traceback
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import pytest
import requests
from requests.adapters import BaseAdapter

from pytest_taguru.engine.aside import Outcome, aside
from pytest_taguru.engine.client import Client
from pytest_taguru.engine.http import HttpTransport
from pytest_taguru.engine.target import Token


def test_its_result() -> None:
    assert aside(lambda: 1 + 1) == 2


def test_it_runs_on_a_daemon_thread() -> None:
    thread = aside(threading.current_thread)
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert thread.name == "taguru-aside"


def test_what_it_raises_is_raised() -> None:
    error = KeyError("mine")

    def work() -> NoReturn:
        raise error

    with pytest.raises(KeyError) as caught:
        aside(work)
    assert caught.value is error


@dataclass(frozen=True)
class FrozenError(Exception):
    """An exception that lets nobody set an attribute of it, as somebody's adapter may raise."""

    code: int


def test_an_exception_that_cannot_be_changed_is_raised_all_the_same() -> None:
    """Were it lost on its thread, whoever waits for the thread would wait for ever."""

    def work() -> NoReturn:
        raise FrozenError(7)

    outcome = Outcome(work)
    with pytest.raises(FrozenError) as caught:
        outcome.get()
    assert caught.value.code == 7


def test_nor_does_it_show_frames_that_hold_secrets() -> None:
    def adapted() -> NoReturn:
        raise FrozenError(7)

    outcome = Outcome(lambda: Outcome(adapted).get())
    with pytest.raises(FrozenError) as caught:
        outcome.get()
    assert "__init__" not in frames(caught.value)


class Broken(BaseAdapter):
    """Somebody's adapter with a bug in it."""

    def send(self, *_: object, **__: object) -> NoReturn:
        """Raise something that nobody expects, out of something else."""
        try:
            raise KeyError("missing")
        except KeyError as error:
            raise RuntimeError("a bug of mine") from error

    def close(self) -> None:
        """There is nothing to close."""


def frames(error: BaseException | None) -> list[str]:
    assert error is not None
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_frames_that_hold_secrets_are_not_shown() -> None:
    """Frames of ours and of requests are left out, those of the adapter are not."""
    with requests.Session() as session:
        session.mount("http://", Broken())
        client = Client(HttpTransport(session, "http://h", Token("canary")), "http://h")
        with pytest.raises(RuntimeError, match="a bug of mine") as caught:
            aside(lambda: client.post("/x", {}, msgspec.json.Decoder()))
    assert frames(caught.value) == [
        "test_frames_that_hold_secrets_are_not_shown",
        "aside",
        "get",
        "<lambda>",
        "send",
    ]
    assert frames(caught.value.__cause__) == ["send"]
    assert not hasattr(caught.value, "__notes__")


def test_what_broke_among_our_own_frames_is_noted() -> None:
    """So that a bug of ours can be reported: places, but no variables."""
    client = Client(None, "http://h")  # type: ignore[arg-type]
    with pytest.raises(AttributeError) as caught:
        aside(lambda: client.get("/x", msgspec.json.Decoder()))
    (note,) = caught.value.__notes__
    first, *_, last = note.removeprefix("raised in ").split(", called from ")
    assert first.startswith("client.py:")
    assert first.endswith("(_call)")
    assert last.startswith("aside.py:")
    assert "_call" not in frames(caught.value)
