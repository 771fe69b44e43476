"""A finished evaluation.json judged again by a thresholds file, without a server."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - msgspec resolves the annotations at run time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from .blocks import CaseBlock
from .comparison import STAMP, Selection, decode, opened
from .errors import InputError
from .metrics import CATALOGUE, Statistic
from .thresholds import Judgement, Report, load_gate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


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


class _Unlisted(frozenset[str]):
    """The case ids of a dataset of which the artifact holds a part: any may be among them."""

    def __contains__(self, case_id: object) -> bool:
        return True


def judge_again(artifact: Path, shown: str, thresholds: Path, thresholds_shown: str) -> Report:
    """The `thresholds` block that a run with this outcome and this thresholds file would have had.

    Aggregates are those that the artifact states; a bound on an absent one is violated.
    Raises InputError for either file.
    """
    judged = _read(artifact, shown)
    selection = judged.inputs.selection
    ids: Collection[str] = _Unlisted() if selection else {it.case_id for it in judged.cases}
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
    if judged.taguru_evaluation != STAMP:
        raise InputError(
            f"{shown}: taguru_evaluation is {judged.taguru_evaluation}, and this version reads"
            f" {STAMP} only"
        )
    return judged


def _statistics(judged: _Judged, shown: str) -> Iterator[tuple[str, Statistic]]:
    for name, metric in CATALOGUE.items():
        if name not in judged.metrics:
            continue
        try:
            yield name, msgspec.convert(judged.metrics[name], metric.statistic)
        except msgspec.ValidationError as error:
            raise InputError(f"{shown}: metrics.{name}: {error}") from None
