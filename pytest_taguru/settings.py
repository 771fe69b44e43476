"""Flags and ini options read into one frozen Settings, and all that is checked before a test."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from .engine.baseline import load_baseline
from .engine.budget import limits
from .engine.dataset import load_dataset
from .engine.errors import EvaluationError, InputError, RunError
from .engine.files import check_writable
from .engine.lanes import Route
from .engine.recording import load_recording
from .engine.strict import WHITE_SPACE
from .engine.target import ENV_KEYS, check_context, find_target, find_token, read_env_file
from .engine.thresholds import load_gate

if TYPE_CHECKING:
    from collections.abc import Callable

    from .engine.baseline import Baseline
    from .engine.blocks import Limits
    from .engine.dataset import Dataset
    from .engine.recording import Exchange
    from .engine.target import Target, Token
    from .engine.thresholds import Gate

T = TypeVar("T")

_INTEGERS = ("taguru_max_items", "taguru_max_bytes", "taguru_max_tokens", "taguru_concurrency")
DEFAULT_OUT = "evaluation.json"
DEFAULT_CONCURRENCY = 8


@dataclass(frozen=True, kw_only=True)
class File:
    """A path as the user gave it, and where it is."""

    shown: str
    path: Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that a run was told, checked and read. The same in every process of a run."""

    eval: File
    out: File
    dataset: Dataset
    gate: Gate | None
    thresholds: File | None
    route: Route
    target: Target
    token: Token | None
    strict: bool
    #: Cases in flight: look-ahead in one process, or the number of xdist's workers.
    concurrency: int
    #: Whether the number was chosen for the latencies' sake.
    concurrency_for_latency: bool
    baseline: Baseline | None
    record: File | None
    replay: list[Exchange] | None = field(repr=False)
    junit_properties: bool

    @property
    def only_reports(self) -> bool:
        """Whether there is nothing that the run could violate."""
        held = self.baseline is not None and self.baseline.is_gate
        return self.gate is None and not self.strict and not held


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def only_lists(config: pytest.Config) -> bool:
    """Whether pytest was asked to show something instead of running it."""
    asked = ("collectonly", "setupplan", "showfixtures", "show_fixtures_per_test")
    return any(config.getoption(option, False) for option in asked)


def worker_count(config: pytest.Config) -> int:
    """How many workers of pytest-xdist this process hands its tests to; 0 if it runs them."""
    if is_worker(config) or config.option.collectonly or config.getoption("dist", "no") == "no":
        return 0
    # A specification like 3*popen stands for three.
    counts = (spec.partition("*")[0] for spec in config.getoption("tx", None) or ())
    return sum(int(count) if count.isdigit() else 1 for count in counts)


def read_settings(config: pytest.Config) -> Settings:
    """Read and check everything that needs no server.

    Raises InputError or RunError with all problems that could be found, not only the first.
    """
    return _Reader(config).settings()


class _Reader:
    """Collects problems on the way, so that one run shows them all."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._problems: list[EvaluationError] = []

    def settings(self) -> Settings:
        config = self._config
        eval_file = self._eval_file()
        if config.getoption("dist", "no") == "each":
            self._problem("--dist each would run every case once per worker; use --dist load")
        assembly = self._switch("assembly")
        ceilings = self._limits()
        rerank = self._try(lambda: self._text("rerank"))
        if rerank is not None and not assembly:
            self._problem("--taguru-rerank needs --taguru-assembly")
        concurrency = self._try(lambda: self._number("concurrency"))
        dataset = self._try(lambda: load_dataset(eval_file.path, eval_file.shown))
        thresholds = self._try(lambda: self._file("thresholds"))
        gate: Gate | None = None
        if thresholds:
            ids = {case.case_id for case in dataset.cases} if dataset else None
            gate = self._try(lambda: load_gate(thresholds.path, thresholds.shown, ids))
        context = self._try(lambda: self._context(dataset))
        variables = self._try(self._variables)
        found = self._try(lambda: self._target(variables or {})) if variables is not None else None
        out = self._try(self._out)
        junit_properties = bool(self._try(lambda: self._ini("taguru_junit_properties")))
        strict = self._switch("strict")
        baseline = self._try(self._baseline)
        record, replay = self._recordings()
        self._check_overwriting(eval_file)
        if self._problems or not (dataset and context and found and out):
            raise self._raised()
        latency = gate is not None and gate.bounds_latency and concurrency is None
        workers = worker_count(config)
        return Settings(
            eval=eval_file,
            out=out,
            dataset=dataset,
            gate=gate,
            thresholds=thresholds,
            route=Route(context=context, assembly=assembly, limits=ceilings, rerank=rerank),
            target=found,
            token=find_token(variables or {}),
            strict=strict,
            concurrency=workers or concurrency or (1 if latency else DEFAULT_CONCURRENCY),
            concurrency_for_latency=latency and not workers,
            baseline=baseline,
            record=record,
            replay=replay,
            junit_properties=junit_properties,
        )

    # -- problems ----------------------------------------------------------------------------

    def _problem(self, text: str) -> None:
        self._problems.append(InputError(text))

    def _try(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except EvaluationError as error:
            self._problems.append(error)
            return None

    def _raised(self) -> EvaluationError:
        """One error with every problem; wrong input outweighs a run that could not complete."""
        kind = (
            InputError
            if any(isinstance(problem, InputError) for problem in self._problems)
            else RunError
        )
        return kind(*(line for problem in self._problems for line in problem.problems))

    # -- values ------------------------------------------------------------------------------

    def _given(self, name: str) -> tuple[str | None, str]:
        """A flag's or ini option's text, and what to call it in a message."""
        ini = f"taguru_{name}"
        value = self._config.getoption(ini)
        if value is not None:
            return value, f"--{ini}".replace("_", "-")
        if name in ("record", "replay"):
            return None, ini
        value = self._ini(ini)
        if value is None or (name != "context" and not str(value).strip(WHITE_SPACE)):
            # `-o taguru_thresholds=` is how an ini file's value is taken back. A context is not
            # a thing to do without, so there a blank is more likely a variable that was not set.
            return None, ini
        return str(value), ini

    def _switch(self, name: str) -> bool:
        flag = self._config.getoption(f"taguru_{name}")
        return bool(flag or self._try(lambda: self._ini(f"taguru_{name}")))

    def _ini(self, name: str) -> Any:
        """An ini option's value. Raises InputError for one of another type."""
        try:
            return self._config.getini(name)
        except (TypeError, ValueError, pytest.UsageError):
            wanted = "an integer of at least 1" if name in _INTEGERS else "true or false"
            raise InputError(f"{name}: expected {wanted}") from None

    def _text(self, name: str) -> str | None:
        value, origin = self._given(name)
        if value is not None and not value.strip(WHITE_SPACE):
            raise InputError(f"{origin}: is blank")
        return value

    def _number(self, name: str) -> int | None:
        value, origin = self._given(name)
        if value is None:
            return None
        if not (
            value.isascii() and value.isdigit() and len(value) <= 20 and 0 < int(value) < 1 << 64
        ):
            raise InputError(f"{origin}: expected an integer of at least 1")
        return int(value)

    def _limits(self) -> Limits | None:
        return limits(
            max_items=self._try(lambda: self._number("max_items")),
            max_bytes=self._try(lambda: self._number("max_bytes")),
            max_tokens=self._try(lambda: self._number("max_tokens")),
        )

    # -- files -------------------------------------------------------------------------------

    def _located(self, shown: str, origin: str) -> File:
        """A path as given: an ini option's is relative to the ini file, any other to where
        pytest was started.
        """
        base = self._config.invocation_params.dir
        if origin.startswith("taguru_") and self._config.inipath is not None:
            base = self._config.inipath.parent
        if "\0" in shown:
            raise InputError(f"{origin}: no file name can hold a NUL")
        return File(shown=_printable(shown), path=Path(os.path.normpath(base / shown)))

    def _file(self, name: str) -> File | None:
        value = self._text(name)
        return None if value is None else self._located(value, self._given(name)[1])

    def _eval_file(self) -> File:
        given: list[str] = self._config.getoption("taguru_eval")
        if len(given) > 1:
            raise InputError("--taguru-eval: given more than once; a run has one dataset")
        if not given[0].strip(WHITE_SPACE):
            raise InputError("--taguru-eval: is blank")
        return self._located(given[0], "--taguru-eval")

    def _out(self) -> File:
        out = self._file("out") or File(
            shown=DEFAULT_OUT, path=self._config.invocation_params.dir / DEFAULT_OUT
        )
        if not (only_lists(self._config) or is_worker(self._config)):
            check_writable(out.path, out.shown)
        return out

    def _baseline(self) -> Baseline | None:
        file = self._file("baseline")
        fail_on = self._config.getoption("taguru_baseline_fail_on")
        max_drop = self._config.getoption("taguru_max_drop")
        if file is not None:
            return load_baseline(file.path, file.shown, fail_on, max_drop)
        for given, flag in (
            (fail_on, "--taguru-baseline-fail-on"),
            (max_drop, "--taguru-max-drop"),
        ):
            if given:
                raise InputError(f"{flag} needs --taguru-baseline")
        return None

    def _recordings(self) -> tuple[File | None, list[Exchange] | None]:
        record = self._try(lambda: self._file("record"))
        replay = self._try(lambda: self._file("replay"))
        if record and replay:
            self._problem("--taguru-record and --taguru-replay exclude each other")
        if record and worker_count(self._config):
            self._problem("--taguru-record works in one process only; run it without -n")
        if record and not only_lists(self._config):
            self._try(lambda: check_writable(record.path, record.shown))
        exchanges = self._try(lambda: load_recording(replay.path, replay.shown)) if replay else None
        return record, exchanges

    def _check_overwriting(self, eval_file: File) -> None:
        """Nothing that a run reads is written over, but a baseline, which may be kept up to date.

        What is wrong with a file by itself is told elsewhere.
        """
        taken = {os.path.realpath(eval_file.path): "--taguru-eval"}
        for name in ("thresholds", "config", "replay", "out", "record"):
            with contextlib.suppress(InputError):
                file, origin = self._file(name), self._given(name)[1]
                if file is None:
                    continue
                earlier = taken.setdefault(os.path.realpath(file.path), origin)
                if earlier != origin and name in ("out", "record"):
                    self._problem(f"{origin}: {file.shown} is the file of {earlier}; name another")

    # -- the server --------------------------------------------------------------------------

    def _context(self, dataset: Dataset | None) -> str | None:
        value = self._text("context")
        if value is not None:
            return check_context(value, self._given("context")[1])
        if dataset is None:
            return None
        if dataset.header.default_context is None:
            raise InputError(
                "no context: give --taguru-context, the ini option taguru_context,"
                " or default_target.context in the dataset's header"
            )
        return check_context(dataset.header.default_context, "default_target.context")

    def _variables(self) -> dict[str, str]:
        """The three variables that count: an env file's, then the environment's over them."""
        found: dict[str, str] = {}
        file = self._file("config")
        if file is None and "TAGURU_CONFIG" in os.environ:
            shown = os.environ["TAGURU_CONFIG"]
            if not shown.strip(WHITE_SPACE):
                raise InputError("TAGURU_CONFIG: is blank")
            file = self._located(shown, "TAGURU_CONFIG")
        if file is not None:
            found = read_env_file(file.path, file.shown)
        found |= {key: os.environ[key] for key in ENV_KEYS if key in os.environ}
        return found

    def _target(self, variables: dict[str, str]) -> Target:
        value, origin = self._given("url")
        return find_target(value, origin, variables)


def _printable(path: str) -> str:
    """A path as it can be written into JSON: bytes that are no UTF-8 become U+FFFD."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
