"""A finished evaluation.json judged again by a thresholds file, without a server."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - msgspec resolves the annotations at run time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from .blocks import CaseBlock
from .comparison import Selection, check_stamp, decode, opened
from .errors import InputError
from .metrics import CATALOGUE, Statistic
from .thresholds import Judgement, Report, load_gate

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Inputs(Struct, frozen=True, kw_only=True):
    selection: Selection | None = None


class _Corpus(Struct, frozen=True, kw_only=True):
    stable: bool


class _Judged(Struct, frozen=True, kw_only=True):
    taguru_evaluation: int
    inputs: _Inputs
    corpus: _Corpus
    cases: list[CaseBlock]
    metrics: dict[str, Any]


def judge_again(artifact: Path, shown: str, thresholds: Path, thresholds_shown: str) -> Report:
    """The `thresholds` block that a run with this outcome and this thresholds file would have had.

    Aggregates are those that the artifact states; a bound on an absent one is violated.
    Raises InputError for either file.
    """
    judged = _read(artifact, shown)
    selection = judged.inputs.selection
    # Of a part of the cases nobody knows which others the dataset has.
    ids = None if selection else {case.case_id for case in judged.cases}
    gate = load_gate(thresholds, thresholds_shown, ids)
    judgement = Judgement(gate)
    for block in judged.cases:
        judgement.case(block)
    return judgement.report(
        dict(_statistics(judged, shown)),
        stable=judged.corpus.stable,
        selection=(selection.selected, selection.total) if selection else None,
    )


def _read(artifact: Path, shown: str) -> _Judged:
    decoder = msgspec.json.Decoder(_Judged)
    with opened(artifact, shown) as content:
        judged: _Judged = decode(content, shown, decoder)
    check_stamp(judged.taguru_evaluation, shown)
    return judged


def _statistics(judged: _Judged, shown: str) -> Iterator[tuple[str, Statistic]]:
    for name, metric in CATALOGUE.items():
        if name not in judged.metrics:
            continue
        try:
            yield name, msgspec.convert(judged.metrics[name], metric.statistic)
        except msgspec.ValidationError as error:
            raise InputError(f"{shown}: metrics.{name}: {error}") from None
