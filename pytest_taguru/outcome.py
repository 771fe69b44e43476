"""What a run came to: counted, aggregated, judged and written; with workers and without."""

from __future__ import annotations

import copy
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from .engine.artifact import (
    EvalInput,
    Head,
    Inputs,
    Selection,
    StrictReport,
    StrictViolation,
    Tail,
    without_cases,
    write_artifact,
)
from .engine.baseline import against
from .engine.cases import assembly_warning
from .engine.comparison import now
from .engine.corpus import Corpus, merge_brackets
from .engine.errors import RunError
from .engine.metrics import definitions
from .engine.run import tally

if TYPE_CHECKING:
    import pytest

    from .engine.comparison import Comparison
    from .engine.run import Tally
    from .engine.store import BlockStore
    from .engine.thresholds import Report, Violation
    from .state import State


#: Stands for a key that a hook added or took away.
_ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """What `pytest_taguru_exitstatus` is given."""

    #: Whether every selected case was judged and the corpus was read before and after.
    complete: bool
    #: Cases that have a block; selected cases; cases of the dataset.
    judged: int
    selected: int
    total: int
    #: The thresholds report of a complete run with a thresholds file.
    thresholds: Report | None
    #: The violated bounds on single cases, also of a run that was cut short.
    case_violations: tuple[Violation, ...]
    #: Violations of --taguru-strict, and reasons of a baseline.
    strict: tuple[StrictViolation, ...]
    baseline: tuple[str, ...]
    #: The status of an error of ours: 2 for wrong input, 1 for a run that could not complete.
    error_status: int | None
    #: Whether anything failed that is not a violated bound: ordinary tests, fixtures, hooks.
    other_failures: bool
    #: Whether the user (or a plugin of theirs) ended the run early.
    interrupted: bool

    @property
    def is_violated(self) -> bool:
        """Whether the gate is violated."""
        broken = self.thresholds is not None and not self.thresholds.passed
        return broken or bool(self.case_violations or self.strict or self.baseline)

    @property
    def shortfall(self) -> str:
        """Why a run that is not complete is not."""
        if self.judged == self.selected and self.error_status is None:
            return "a process of this run ended before it could read the corpus once more"
        return f"cut short: {self.judged} of {self.selected} cases were judged"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A run's results, for those who show them."""

    report: GateReport
    tally: Tally
    corpus: Corpus | None
    warnings: tuple[str, ...]
    #: The comparison with the baseline of a complete run that has one.
    comparison: Comparison | None
    #: Whether evaluation.json was written.
    written: bool


def default_status(report: GateReport, exitstatus: int) -> int:
    """The exit status by the documented precedence."""
    if exitstatus in (3, 4) or report.interrupted:
        return exitstatus
    if report.error_status is not None:
        return report.error_status
    if report.is_violated and not report.other_failures and exitstatus in (0, 1, 2):
        return 3
    return exitstatus


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What the reports of a run said."""

    selected: int
    other_failures: bool
    interrupted: bool
    #: Whether each process that ran cases brought what it read before and after them.
    brackets_complete: bool


def conclude(config: pytest.Config, state: State, store: BlockStore, reported: Reported) -> Outcome:
    """Aggregate, judge and, if the run is complete, write. Errors are kept in `state.fatal`."""
    settings = state.settings
    summed = tally(
        store.blocks(),
        settings.gate,
        strict=settings.strict,
        rerank_asked=settings.route.rerank is not None,
    )
    complete = len(store) == reported.selected and reported.brackets_complete and not state.fatal
    corpus = merge_brackets(state.brackets) if complete else None
    total = len(settings.dataset.cases)
    selection = None if reported.selected == total else (reported.selected, total)
    judgement = summed.judgement
    thresholds = None
    if judgement and corpus:
        thresholds = judgement.report(summed.metrics, stable=corpus.stable, selection=selection)
    warnings = _warnings(state, store)
    written, comparison = False, None
    baseline: tuple[str, ...] = ()
    if corpus:
        head, tail = _parts(state, summed, corpus, thresholds, selection, warnings)
        if settings.baseline:
            unselected = {
                case.case_id
                for index, case in enumerate(settings.dataset.cases)
                if index not in store
            }
            comparison, compared = against(
                settings.baseline,
                without_cases(head, tail),
                store.encoded(),
                unselected=unselected,
            )
            baseline = tuple(compared.reasons)
            tail = replace(tail, baseline=compared)
        try:
            tail = _extended(config, head, tail)
            write_artifact(settings.out.path, settings.out.shown, head, store.encoded(), tail)
            written = True
        except RunError as error:
            state.fail(error)
    report = GateReport(
        complete=corpus is not None,
        judged=len(store),
        selected=reported.selected,
        total=total,
        thresholds=thresholds,
        case_violations=judgement.case_violations if judgement else (),
        strict=tuple(summed.strict),
        baseline=baseline,
        error_status=state.error_status,
        other_failures=reported.other_failures,
        interrupted=reported.interrupted,
    )
    return Outcome(
        report=report,
        tally=summed,
        corpus=corpus,
        warnings=warnings,
        comparison=comparison,
        written=written,
    )


def _warnings(state: State, store: BlockStore) -> tuple[str, ...]:
    """What assembly could not pass on, for the cases that ran."""
    settings = state.settings
    if not settings.route.assembly:
        return ()
    found = (
        assembly_warning(case)
        for index, case in enumerate(settings.dataset.cases)
        if index in store
    )
    return tuple(warning for warning in found if warning)


def _parts(
    state: State,
    summed: Tally,
    corpus: Corpus,
    thresholds: Report | None,
    selection: tuple[int, int] | None,
    warnings: tuple[str, ...],
) -> tuple[Head, Tail]:
    settings = state.settings
    dataset = settings.dataset
    inputs = Inputs(
        eval=EvalInput(
            path=settings.eval.shown, name=dataset.header.name, cases=len(dataset.cases)
        ),
        context=settings.route.context,
        url=state.url,
        out=settings.out.shown,
        mode=settings.route.mode,
        budget=settings.route.budget or UNSET,
        rerank=settings.route.rerank or UNSET,
        concurrency=settings.concurrency,
        selection=Selection(selected=selection[0], total=selection[1]) if selection else UNSET,
        server_version=state.brackets[0].opening.server_version,
    )
    head = Head(
        generated_at=now(),
        inputs=inputs,
        corpus=corpus,
        thresholds=thresholds,
        definitions=definitions(),
        warnings=list(warnings) or UNSET,
    )
    strict = StrictReport(passed=not summed.strict, violations=summed.strict)
    return head, Tail(metrics=summed.metrics, strict=strict if settings.strict else UNSET)


def _extended(config: pytest.Config, head: Head, tail: Tail) -> Tail:
    """Let the hook add extensions. Raises RunError if an implementation touched anything else."""
    artifact = without_cases(head, tail)
    artifact["extensions"] = {}
    before = copy.deepcopy(artifact)
    try:
        config.hook.pytest_taguru_artifact(config=config, artifact=artifact)
    except Exception as error:
        raise hook_error("pytest_taguru_artifact", error) from error
    extensions = artifact.get("extensions")
    changed = [
        key
        for key in {**before, **artifact}
        if key != "extensions" and before.get(key, _ABSENT) != artifact.get(key, _ABSENT)
    ]
    if changed or not isinstance(extensions, dict):
        raise RunError(
            "pytest_taguru_artifact may only add to artifact['extensions'], but an implementation"
            f" changed {', '.join(sorted(changed)) or 'extensions itself'}; nothing was written"
        )
    if not extensions:
        return tail
    return replace(tail, extensions=_plain(extensions))


def hook_error(hook: str, error: Exception) -> RunError:
    """An implementation of a hook raised, where nothing may be raised any more."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    return RunError(f"{place}{hook} raised {type(error).__name__}: {error}")


def _plain(extensions: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(msgspec.json.decode(msgspec.json.encode(extensions)))
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise RunError(f"artifact['extensions'] cannot be written as JSON: {error}") from None
