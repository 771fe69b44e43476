"""A finished run set against an earlier artifact, and what of that breaks the gate."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from .comparison import (
    FAIL_ON,
    Counts,
    Earlier,
    artifact_of,
    compare,
    parse_max_drops,
    read_artifact,
    reasons,
)
from .errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from .comparison import Artifact, Comparison


class BaselineViolation(Struct, frozen=True, kw_only=True):
    """One reason why a run does not hold up to its baseline."""

    scope: Literal["baseline"] = "baseline"
    reason: str


class BaselineReport(Struct, frozen=True, kw_only=True):
    """The added key `baseline` of evaluation.json."""

    path: str
    sha256: str
    counts: Counts
    passed: bool
    violations: list[BaselineViolation] | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET

    @property
    def reasons(self) -> list[str]:
        """Why the gate is violated, none included."""
        broken = [] if isinstance(self.violations, UnsetType) else self.violations
        return [violation.reason for violation in broken]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """An earlier artifact and how far a run may fall behind it."""

    artifact: Artifact
    sha256: str
    fail_on: frozenset[str]
    max_drop: Mapping[str, float]
    #: For single cases, as they are judged.
    earlier: Earlier

    @property
    def is_gate(self) -> bool:
        """Whether anything of the comparison can break the gate."""
        return bool(self.fail_on or self.max_drop)


def load_baseline(
    file: Path, shown: str, fail_on: Sequence[str], max_drop: Sequence[str]
) -> Baseline:
    """Read an earlier artifact. Raises InputError with all problems of file and options."""
    problems = [
        f"--taguru-baseline-fail-on: {kind!r} is not one of {', '.join(FAIL_ON)}"
        for kind in fail_on
        if kind not in FAIL_ON
    ]
    drops: dict[str, float] = {}
    try:
        drops = parse_max_drops(max_drop, "--taguru-max-drop")
    except InputError as error:
        problems += error.problems
    try:
        artifact = read_artifact(file, shown)
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    except InputError as error:
        raise InputError(*problems, *error.problems) from None
    if problems:
        raise InputError(*problems)
    return Baseline(
        artifact=artifact,
        sha256=sha256,
        fail_on=frozenset(fail_on),
        max_drop=drops,
        earlier=Earlier(artifact),
    )


def against(
    baseline: Baseline,
    artifact: Mapping[str, Any],
    cases: Iterable[bytes],
    *,
    unselected: Collection[str],
) -> tuple[Comparison, BaselineReport]:
    """Compare a finished run with its baseline.

    `artifact` is the run's without its cases, `cases` its encoded blocks. Cases of the dataset
    that were not selected are left out of the baseline too: nobody removed them.
    """
    earlier = baseline.artifact
    head = artifact_of("this run", artifact, cases)
    warnings = _dataset_warnings(earlier, head)
    if unselected:
        kept = [case for case in earlier.document.cases if case.case_id not in unselected]
        earlier = replace(earlier, document=replace(earlier.document, cases=kept))
    comparison = compare(earlier, head)
    if warnings:
        header = replace(comparison.header, warnings=warnings + comparison.warnings)
        comparison = replace(comparison, header=header)
    broken = reasons(comparison, baseline.fail_on, baseline.max_drop)
    report = BaselineReport(
        path=earlier.shown,
        sha256=baseline.sha256,
        counts=comparison.counts,
        passed=not broken,
        violations=[BaselineViolation(reason=reason) for reason in broken] or UNSET,
        warnings=comparison.warnings or UNSET,
    )
    return comparison, report


def _dataset_warnings(base: Artifact, head: Artifact) -> list[str]:
    before, after = base.document.inputs.eval.name, head.document.inputs.eval.name
    if before == after:
        return []
    return [
        f"the dataset differs: {msgspec.json.encode(before).decode()} in the baseline,"
        f" {msgspec.json.encode(after).decode()} now"
    ]
