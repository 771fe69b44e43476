"""The process that decides: counts the reports, keeps the blocks, ends the session."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from .collection import EvalCase, case_names, file_nodeid
from .engine.store import BlockStore
from .junit import report_gate
from .outcome import Outcome, Reported, conclude, default_status, hook_error
from .state import STATE, NoCaseError
from .texts import complain

if TYPE_CHECKING:
    from .outcome import GateReport
    from .state import State

#: The attribute of a call report that carries a case's block as JSON text.
BLOCK = "taguru_block"
#: The attribute of a call report that failed because of a violated bound.
VIOLATED = "taguru_violated"
#: Stands for this process among the workers.
_HERE = ""


def _worker_id(report: pytest.TestReport) -> str:
    """The worker of xdist that a report came from."""
    node = getattr(report, "node", None)
    return _HERE if node is None else str(node.gateway.id)


class Gatekeeper:
    """Registered in the one process that decides: the only one, or xdist's controller."""

    def __init__(self, config: pytest.Config, state: State) -> None:
        self._config = config
        self._state = state
        self._nodeid = file_nodeid(config, state.settings.eval.path)
        names = case_names(state.settings.dataset.cases)
        self._index = {f"{self._nodeid}::{name}": index for index, name in enumerate(names)}
        self._selected: set[int] = set()
        self._store = BlockStore()
        self._other_failures = False
        self._interrupted = False
        self._internal_error = False
        #: Workers of xdist that sent blocks, and those that then read the corpus once more.
        self._senders: set[str] = set()
        self._ended: set[str] = set()
        self.outcome: Outcome | None = None

    # -- what was selected -------------------------------------------------------------------

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the cases that are left after deselection."""
        self._selected |= {item.index for item in session.items if isinstance(item, EvalCase)}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """The same from a worker; all workers collect the same."""
        self._selected |= {index for nodeid in ids if (index := self._case(nodeid)) is not None}

    def _case(self, nodeid: str) -> int | None:
        """The case that a node id names, if it names one.

        --dist loadgroup appends `@GROUP` to an item's node id; in a case's name `@` is escaped.
        """
        index = self._index.get(nodeid)
        prefix = f"{self._nodeid}::"
        if index is None and nodeid.startswith(prefix):
            name = nodeid.removeprefix(prefix).partition("@")[0]
            index = self._index.get(prefix + name)
        return index

    # -- what was reported -------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a case's block; tell its violation from any other failure."""
        # Taken off the report, which the terminal and others keep to the end.
        encoded = report.__dict__.pop(BLOCK, None)
        if str(report.outcome) == "rerun":
            return  # An attempt of pytest-rerunfailures; the last one counts.
        index = self._case(report.nodeid)
        if index is not None:
            if encoded is not None:
                self._store.put(index, encoded.encode("utf-8"))
                self._senders.add(_worker_id(report))
            elif report.when == "setup" and report.skipped:
                self._selected.discard(index)  # by a mark: as good as deselected
        if report.failed and not getattr(report, VIOLATED, False):
            self._other_failures = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that could not be collected is somebody's failure."""
        self._other_failures |= report.failed

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Tell an interruption from a session that stops because of failures, or of us.

        pytest and xdist report both this way, with a class of their own for the latter.
        """
        value, option = excinfo.value, self._config.getoption
        stopped = isinstance(value, pytest.Session.Interrupted) or (
            type(value).__module__.partition(".")[0] == "xdist"
        )
        expected = option("maxfail", 0) or option("stepwise", False) or self._state.fatal
        self._interrupted |= not (stopped and expected)

    def pytest_internalerror(self) -> None:
        """After an error within pytest nothing is sure."""
        self._internal_error = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take what a worker of xdist knows beyond its reports, which a crashed one cannot tell."""
        from .workers import receive

        parcel = receive(node, self._state)
        if parcel is not None:
            self._interrupted |= parcel.interrupted
            if parcel.brackets:
                self._ended.add(node.gateway.id)

    # -- the end -----------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Any:
        """Conclude, then let the others finish; what went wrong is said below all they show."""
        self._conclude(session, exitstatus)
        try:
            return (yield)
        finally:
            problems = [problem for error in self._state.fatal for problem in error.problems]
            complain(problems + self._state.notes)

    def _conclude(self, session: pytest.Session, exitstatus: int) -> None:
        """Judge, write and set the exit status; nothing may be raised from here."""
        state = self._state
        if len(self._store) == len(self._selected):
            state.close_run()
        else:
            state.abandon_run()
        if self._selected or state.fatal:
            self.outcome = conclude(self._config, state, self._store, self._reported())
            self._end_recording(complete=self.outcome.report.complete)
            report_gate(self._config, self._nodeid, state, self.outcome)
            report = replace(self.outcome.report, error_status=state.error_status)
            session.exitstatus = self._status(session, report, int(exitstatus))
        elif state.recorder is not None:
            state.recorder.discard()  # a test that is no case used the run
        self._store.close()

    @pytest.hookimpl(trylast=True)
    def pytest_taguru_exitstatus(
        self, session: pytest.Session, report: GateReport, exitstatus: int
    ) -> int:
        """The default, when no conftest chose otherwise."""
        return default_status(report, exitstatus)

    def _status(self, session: pytest.Session, report: GateReport, exitstatus: int) -> int:
        """What the hook says; a hook that fails counts as an error of the run."""
        try:
            status = self._config.hook.pytest_taguru_exitstatus(
                session=session, report=report, exitstatus=exitstatus
            )
            return int(status)
        except Exception as error:
            self._state.fail(hook_error("pytest_taguru_exitstatus", error))
            failed = replace(report, error_status=self._state.error_status)
            return default_status(failed, exitstatus)

    def _reported(self) -> Reported:
        return Reported(
            selected=len(self._selected),
            other_failures=self._other_failures,
            interrupted=self._interrupted,
            brackets_complete=bool(self._state.brackets)
            and self._senders <= self._ended | {_HERE}
            and not self._internal_error,
        )

    def _end_recording(self, *, complete: bool) -> None:
        recorder = self._state.recorder
        if recorder is None:
            return
        from .engine.errors import RunError

        if not complete:
            recorder.discard()
            self._state.note(["the run was cut short, so nothing was recorded"])
            return
        try:
            recorder.commit()
        except RunError as error:
            self._state.fail(error)


class Reports:
    """Registered in every process that runs cases: puts their blocks on their reports."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
        """Attach the block as JSON text, which every channel passes on unchanged."""
        report: pytest.TestReport = yield
        if call.excinfo is not None and isinstance(call.excinfo.value, NoCaseError):
            # With a traceback there would be our frames, and with --full-trace what they hold.
            report.longrepr = str(call.excinfo.value)
        if isinstance(item, EvalCase) and report.when == "call" and item.block is not None:
            from .engine.store import encode_block

            setattr(report, BLOCK, encode_block(item.block).decode("utf-8"))
            setattr(report, VIOLATED, item.violated and report.failed)
            if report.skipped and isinstance(report.longrepr, tuple):
                report.longrepr = (str(item.path), item.line, report.longrepr[2])
            item.block = None
            item.config.stash[STATE].done.add(item.index)
        if isinstance(item, EvalCase) and report.when == "setup" and not report.passed:
            self._not_set_up(item, report)
        return report

    def _not_set_up(self, item: EvalCase, report: pytest.TestReport) -> None:
        state = item.config.stash[STATE]
        if report.skipped:
            state.done.add(item.index)
            return
        if state.run is not None:
            # No artifact can come of it any more, and it may be a fixture that all cases need.
            state.run.stop_ahead()
            state.run.give_up(item.index)
