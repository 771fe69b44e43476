"""What a dashboard sees: properties of cases and of the suite, and the gate as testcases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .engine.metrics import CASE_METRICS, case_value
from .engine.thresholds import STABILITY
from .engine.words import printable
from .state import STATE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .collection import EvalCase
    from .engine.blocks import CaseBlock
    from .outcome import Outcome
    from .state import State


def wants_properties(config: pytest.Config) -> bool:
    """Whether properties go anywhere: every report keeps a copy, so none are made in vain."""
    asked = config.getoption("xmlpath", None) is not None
    return asked and config.stash[STATE].settings.junit_properties


def case_properties(item: EvalCase, block: CaseBlock) -> Iterator[tuple[str, str]]:
    """The exact case id and the case's own metric values."""
    yield "taguru.case_id", item.case.case_id
    values = {
        name: value for name in CASE_METRICS if (value := case_value(name, block)) is not None
    }
    for metric, value in values.items():
        yield metric, f"{value:g}" if value == int(value) else f"{value:.6f}"
    baseline = item.config.stash[STATE].settings.baseline
    if baseline is not None:
        for change in baseline.earlier.regressions(block.case_id, values):
            before, after = change.sides.base, change.sides.head
            yield f"regressed.{change.metric}", f"{before:.6f} -> {after:.6f}"


def report_gate(config: pytest.Config, nodeid: str, state: State, outcome: Outcome) -> None:
    """Add the run to a JUnit XML that is being written, if one is."""
    writer = _writer(config)
    if writer is None:
        return
    if state.settings.junit_properties:
        for name, value in _suite_properties(state, outcome):
            writer.add_global_property(name, printable(value))
    for name, status, text in _verdicts(state, outcome):
        _add_testcase(writer, nodeid, name, status, text)


def _writer(config: pytest.Config) -> Any:
    """Pytest's own XML writer, found by what it can do: it is registered without a name."""
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "add_global_property") and hasattr(plugin, "node_reporter"):
            return plugin
    return None


def _suite_properties(state: State, outcome: Outcome) -> Iterator[tuple[str, str]]:
    settings = state.settings
    yield "taguru.context", settings.route.context
    yield "taguru.eval", settings.eval.shown
    yield "taguru.url", state.url
    yield "taguru.mode", settings.route.mode
    yield "taguru.cases", f"{outcome.report.judged}/{outcome.report.total}"
    if settings.gate:
        yield "taguru.thresholds_sha256", settings.gate.sha256
    if outcome.corpus:
        revision = outcome.corpus.revision_after
        counters = f"{revision.graph}/{revision.passages}/{revision.config}"
        yield "taguru.corpus_revision", counters
        yield "taguru.corpus_stable", "true" if outcome.corpus.stable else "false"
    if outcome.report.judged:
        for metric, statistic in outcome.tally.metrics.items():
            if statistic.scalar is not None:
                yield metric, f"{statistic.scalar:.6f}"


def _verdicts(state: State, outcome: Outcome) -> Iterator[tuple[str, str, str]]:
    """(name, outcome, text) of each testcase of the gate."""
    report = outcome.report
    problems = [problem for error in state.fatal for problem in error.problems]
    if not report.complete:
        problems.append(report.shortfall)
    if problems:
        yield "run", "failed", "\n".join(problems)
    yield from _aggregate_verdicts(state, outcome)
    gate = state.settings.gate
    bounded = gate and (gate.thresholds.cases.default or gate.thresholds.cases.overrides)
    if bounded and report.judged:
        text = "\n".join(f"{one.case_id}: {one}" for one in report.case_violations)
        yield "cases", "failed" if text else "passed", text
    if outcome.comparison and state.settings.baseline and state.settings.baseline.is_gate:
        text = "\n".join(report.baseline)
        yield "baseline", "failed" if text else "passed", text
    if state.settings.strict:
        reasons = "\n".join(f"{one.case_id}: {one.reason}" for one in report.strict)
        yield "strict", "failed" if reasons else "passed", reasons


def _aggregate_verdicts(state: State, outcome: Outcome) -> Iterator[tuple[str, str, str]]:
    """Each bound on the whole set, and the stability of the corpus."""
    report, gate = outcome.report, state.settings.gate
    if gate is None:
        return
    broken = report.thresholds.broken if report.thresholds else []
    violations = {violation.metric: violation for violation in broken if violation.scope != "case"}
    for metric in [*sorted(gate.thresholds.aggregate), STABILITY]:
        violation = violations.get(metric)
        if violation:
            yield metric, "failed", str(violation)
        elif report.thresholds is None:
            yield metric, "skipped", "not judged: the run was cut short"
        elif metric != STABILITY and report.selected != report.total:
            yield metric, "skipped", "not judged: only some cases were selected"
        else:
            yield metric, "passed", ""


def _add_testcase(writer: Any, dataset: str, name: str, outcome: str, text: str) -> None:
    """Hand the writer the reports of a test that never ran; nobody else sees them."""
    nodeid = f"{dataset}::gate::{name}"
    location = (dataset, 0, f"gate.{name}")
    longrepr: Any = "\n".join(map(printable, text.split("\n"))) if outcome == "failed" else None
    if outcome == "skipped":
        longrepr = (dataset, 0, text)
    for when, result, detail in (
        ("call", outcome, longrepr),
        ("teardown", "passed", None),
    ):
        writer.pytest_runtest_logreport(
            pytest.TestReport(
                nodeid=nodeid,
                location=location,
                keywords={},
                outcome=result,  # type: ignore[arg-type]
                longrepr=detail,
                when=when,  # type: ignore[arg-type]
            )
        )
