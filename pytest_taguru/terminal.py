"""What a person sees: the header lines and the section at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from .changes_view import summary_lines
from .engine.blocks import CitationCheck, QuoteCheck
from .engine.client import segment
from .engine.words import counted, printable
from .settings import worker_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from .engine.baseline import Baseline
    from .engine.metrics import Statistic
    from .engine.thresholds import Violation
    from .gate import Gatekeeper
    from .outcome import GateReport, Outcome
    from .state import State

TITLE = "taguru evaluation"
SHOWN_VIOLATIONS = 10
_WHERE = {"taguru_url": "the ini option taguru_url"}


class Terminal:
    """Registered in the process that talks to the user."""

    def __init__(self, config: pytest.Config, state: State, gate: Gatekeeper | None) -> None:
        self._config = config
        self._state = state
        self._gate = gate

    def pytest_report_header(self) -> list[str]:
        """What is about to be evaluated."""
        settings = self._state.settings
        cases = len(settings.dataset.cases)
        judged = settings.thresholds.shown if settings.thresholds else "none"
        if settings.only_reports:
            judged += ", this run only reports"
        lines = [
            f"taguru: context {settings.route.context} at {self._header_url()}",
            f"taguru: {settings.eval.shown}, {counted(cases, 'case')},"
            f" {settings.route.mode} mode, thresholds: {judged}",
            f"taguru: {self._flight()}",
        ]
        return [printable(line) for line in lines]

    def _header_url(self) -> str:
        settings = self._state.settings
        if settings.replay is not None:
            return f"{settings.target.masked} (answered from a recording)"
        return settings.target.masked

    def _flight(self) -> str:
        settings = self._state.settings
        workers = worker_count(self._config)
        if workers:
            return f"{counted(workers, 'worker')}, one case at a time each"
        if settings.concurrency_for_latency:
            return "1 case at a time, since a latency is bounded"
        many = settings.concurrency
        return "1 case at a time" if many == 1 else f"up to {many} cases in flight"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The section at the end, unless --no-summary."""
        outcome = self._gate.outcome if self._gate else None
        if outcome is None or self._config.option.no_summary:
            return
        terminalreporter.section(TITLE)
        for line in summary(self._state, outcome):
            terminalreporter.line(printable(line))


def summary(state: State, outcome: Outcome) -> Iterator[str]:
    """The lines of the section."""
    settings, report = state.settings, outcome.report
    of = f"{report.judged} of {report.selected} cases judged"
    if report.selected != report.total:
        of += f" ({report.selected} of the dataset's {report.total} were selected)"
    yield of
    if state.url:
        origin = _WHERE.get(state.url_origin, state.url_origin)
        replayed = ", answered from a recording" if settings.replay is not None else ""
        yield f"server {state.url} (from {origin}{replayed}), context {settings.route.context}"
    problems = sum(len(error.problems) for error in state.fatal)
    if problems:
        yield f"{counted(problems, 'error')}, said on stderr at the end"
    for note in state.notes:
        yield f"note: {note}"
    for warning in outcome.warnings:
        yield f"warning: {warning}"
    yield from _failed_lanes(outcome)
    if report.judged:
        yield from _scores(outcome.tally.metrics)
    yield from _invalid_locators(settings.route.context, outcome)
    yield from _verdict(state, outcome)


def _failed_lanes(outcome: Outcome) -> Iterator[str]:
    for lane, seen in outcome.tally.failed_lanes.items():
        more = f" and {seen.more} more" if seen.more else ""
        yield f"failed {lane} calls: {', '.join(seen.first)}{more}"
    for message in outcome.tally.first_failure:
        yield f"  the first: {message}"


def _figure(name: str, statistic: Statistic) -> str:
    scalar = statistic.scalar
    return f"{name} {'-' if scalar is None else f'{scalar:.4f}'} (n={statistic.n})"


_LINES = (
    ("retrieval", {"recall.recall_at_k": "recall@k", "recall.mrr": "MRR", "recall.ndcg": "nDCG"}),
    (
        "coverage",
        {
            "coverage.concepts": "concepts",
            "coverage.labels": "labels",
            "coverage.associations": "associations",
        },
    ),
    (
        "citations",
        {"citations.recall": "recall", "citations.locator_validity": "locator validity"},
    ),
    (
        "budget",
        {
            "budget.items_used": "items",
            "budget.bytes_used": "bytes",
            "budget.tokens_used": "tokens",
            "budget.omitted_rate": "omitted rate",
        },
    ),
    ("diversity", {"diversity.sources": "sources"}),
    ("rerank", {"rerank.ran": "ran"}),
)


def _scores(metrics: dict[str, Statistic]) -> Iterator[str]:
    """A line per family that has any sample."""
    for family, names in _LINES:
        if any(metrics[name].n for name in names):
            figures = (_figure(short, metrics[name]) for name, short in names.items())
            yield f"{family + ':':<11}{', '.join(figures)}"


def _invalid_locators(context: str, outcome: Outcome) -> Iterator[str]:
    seen = outcome.tally.invalid_locators
    for check in seen.first:
        body = msgspec.json.encode({"source": check.source, "paragraph": check.paragraph})
        route = f"POST /contexts/{segment(context)}/citations {body.decode()}"
        yield f"invalid locator ({_invalidity(check)}): {route}"
    if seen.more:
        yield f"… and {counted(seen.more, 'more invalid locator')}"


def _invalidity(check: CitationCheck) -> str:
    if check.outcome == "unresolved":
        return "unresolved" if check.code in (None, UNSET) else str(check.code)
    if isinstance(check.quote, QuoteCheck) and not check.quote.matched:
        return "quote not found"
    return "another section"


def _verdict(state: State, outcome: Outcome) -> Iterator[str]:
    settings, report = state.settings, outcome.report
    unmet, unjudged = outcome.tally.unmet, outcome.tally.unjudged
    if unmet.count and settings.gate is None and not settings.strict:
        # Where bounds are yet to be chosen, this is what there is to look at.
        more = f" and {unmet.more} more" if unmet.more else ""
        what = counted(unmet.count, "case")
        yield f"unmet expectations in {what}: {', '.join(unmet.first)}{more}"
    if unjudged.count:
        yield (
            f"warning: {counted(unjudged.count, 'case')} could not be judged in full, since calls"
            " failed; a bound on passage.failure_rate, or --taguru-strict, makes that a violation"
        )
    if outcome.corpus and not outcome.corpus.stable:
        yield "warning: the corpus was written to during the run: its cases saw different corpora"
    if not report.complete:
        yield f"{report.shortfall}; {settings.out.shown} was not written"
    if settings.only_reports:
        yield "no thresholds: this run only reports"
    elif settings.gate is None:
        pass  # what else there is to violate speaks below
    elif report.thresholds is None:
        if report.case_violations:
            yield from _thresholds(list(report.case_violations), settings.gate.sha256[:12])
        else:
            yield "thresholds not judged"
    else:
        yield from _thresholds(report.thresholds.broken, settings.gate.sha256[:12])
    if settings.strict:
        yield from _strict(outcome)
    if settings.baseline:
        yield from _baseline(settings.baseline, outcome)
    if outcome.written:
        part = f" ({_of_all(report)})" if report.selected != report.total else ""
        yield f"wrote {settings.out.shown}{part}"


def _of_all(report: GateReport) -> str:
    return f"{report.selected} of {counted(report.total, 'case')}"


def _thresholds(broken: list[Violation], sha256: str) -> Iterator[str]:
    if not broken:
        yield f"thresholds passed ({sha256})"
        return
    yield f"thresholds VIOLATED: {counted(len(broken), 'bound')} ({sha256})"
    cases = [violation for violation in broken if violation.scope == "case"]
    for violation in broken:
        if violation.scope != "case":
            yield f"  {violation.scope}: {violation}"
    for violation in cases[:SHOWN_VIOLATIONS]:
        yield f"  case {violation.case_id}: {violation}"
    if len(cases) > SHOWN_VIOLATIONS:
        more = counted(len(cases) - SHOWN_VIOLATIONS, "more bound")
        yield f"  … and {more} on single cases"


def _strict(outcome: Outcome) -> Iterator[str]:
    broken = outcome.report.strict
    if not broken:
        yield "strict: passed"
        return
    yield f"strict VIOLATED by {counted(len(broken), 'case')}"
    for violation in broken[:SHOWN_VIOLATIONS]:
        yield f"  case {violation.case_id}: {violation.reason}"
    if len(broken) > SHOWN_VIOLATIONS:
        yield f"  … and {counted(len(broken) - SHOWN_VIOLATIONS, 'more case')}"


def _baseline(baseline: Baseline, outcome: Outcome) -> Iterator[str]:
    comparison, broken = outcome.comparison, outcome.report.baseline
    if comparison is None:
        yield f"baseline {baseline.artifact.shown}: not compared"
        return
    yield f"baseline {baseline.artifact.shown} ({baseline.sha256[:12]}):"
    for warning in comparison.warnings:
        yield f"  warning: {warning}"
    whole = outcome.report.selected == outcome.report.total
    for line in summary_lines(comparison, whole_runs=whole):
        yield f"  {line}" if line else ""
    if broken:
        yield f"baseline VIOLATED: {counted(len(broken), 'reason')}"
        yield from (f"  {reason}" for reason in broken)
    elif baseline.is_gate:
        yield "baseline passed"
