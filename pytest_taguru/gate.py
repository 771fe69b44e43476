"""The process that decides: counts the reports, keeps the blocks, ends the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .collection import EvalCase, case_names, file_nodeid
from .engine.store import BlockStore
from .junit import report_gate
from .outcome import Counts, Outcome, conclude, default_status
from .texts import complain

if TYPE_CHECKING:
    from .outcome import GateReport
    from .state import State

#: The attribute of a call report that carries a case's block as JSON text.
BLOCK = "taguru_block"
#: The attribute of a call report that failed because of a violated bound.
VIOLATED = "taguru_violated"


class Gate:
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
        self._crashed = False
        self.outcome: Outcome | None = None

    # -- what was selected -------------------------------------------------------------------

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the cases that are left after deselection."""
        self._selected |= {item.index for item in session.items if isinstance(item, EvalCase)}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """The same from a worker; all workers collect the same."""
        self._selected |= {self._index[nodeid] for nodeid in ids if nodeid in self._index}

    # -- what was reported -------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a case's block; tell its violation from any other failure."""
        if str(report.outcome) == "rerun":
            return  # An attempt of pytest-rerunfailures; the last one counts.
        index = self._index.get(report.nodeid)
        encoded = getattr(report, BLOCK, None)
        if index is not None:
            if encoded is not None:
                self._store.put(index, encoded.encode("utf-8"))
            elif report.when == "setup" and report.skipped:
                self._selected.discard(index)  # by a mark: as good as deselected
        if report.failed and not getattr(report, VIOLATED, False):
            self._other_failures = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that could not be collected is somebody's failure."""
        self._other_failures |= report.failed

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Tell the user's interruption (or pytest.exit) from a session that stops by itself."""
        self._interrupted |= not isinstance(excinfo.value, pytest.Session.Interrupted)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take what a worker of xdist knows beyond its reports."""
        from .workers import receive

        self._crashed |= not receive(node, self._state)

    # -- the end -----------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Conclude and set the exit status; nothing may be raised from here."""
        state = self._state
        state.close_run()
        if self._selected or state.fatal:
            self.outcome = conclude(self._config, state, self._store, self._counts())
            self._end_recording(complete=self.outcome.report.complete)
            report_gate(self._config, self._nodeid, state, self.outcome)
            session.exitstatus = self._config.hook.pytest_taguru_exitstatus(
                session=session, report=self.outcome.report, exitstatus=int(exitstatus)
            )
        self._store.close()
        problems = [problem for error in state.fatal for problem in error.problems]
        complain(problems + state.notes)

    @pytest.hookimpl(trylast=True)
    def pytest_taguru_exitstatus(
        self, session: pytest.Session, report: GateReport, exitstatus: int
    ) -> int:
        """The default, when no conftest chose otherwise."""
        return default_status(report, exitstatus)

    def _counts(self) -> Counts:
        return Counts(
            selected=len(self._selected),
            other_failures=self._other_failures,
            interrupted=self._interrupted,
            brackets_complete=bool(self._state.brackets) and not self._crashed,
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
            self._state.fatal.append(error)


class Reports:
    """Registered in every process that runs cases: puts their blocks on their reports."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        """Attach the block as JSON text, which every channel passes on unchanged."""
        report: pytest.TestReport = yield
        if isinstance(item, EvalCase) and report.when == "call" and item.block is not None:
            from .engine.store import encode_block

            setattr(report, BLOCK, encode_block(item.block).decode("utf-8"))
            setattr(report, VIOLATED, item.violated and report.failed)
            if report.skipped and isinstance(report.longrepr, tuple):
                report.longrepr = (str(item.path), item.line, report.longrepr[2])
            item.block = None
        return report
