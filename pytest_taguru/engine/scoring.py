"""The formulas, from ranks and labels only: pure functions, one measure each.

A *ranking* is the hits' locators `(source, paragraph)` in order; *first ranks* are, for each
relevant item, the 1-based rank of the first hit that matches it, or None.
"""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING

from .folding import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .dataset import ExpectedSource

Locator = tuple[str, int | None]


def first_ranks(items: Sequence[ExpectedSource], ranking: Sequence[Locator]) -> list[int | None]:
    """For each item the rank (from 1) of the first hit that matches it, or None.

    Several items may share a hit: an item is a judgement, not a document.
    """
    return [
        next((rank for rank, hit in enumerate(ranking, start=1) if item.matches(*hit)), None)
        for item in items
    ]


def recall_at_k(ranks: Sequence[int | None]) -> float:
    """Matched items / items, in 0..1 (Manning, Raghavan, Schütze 2008, section 8.3).

    k is the number of hits asked for. Needs at least one item.
    """
    return sum(rank is not None for rank in ranks) / len(ranks)


def reciprocal_rank(ranks: Sequence[int | None]) -> float:
    """1 / rank of the first hit that matches any item, else 0 (Voorhees 1999, TREC-8 QA)."""
    best = min((rank for rank in ranks if rank is not None), default=None)
    return 0.0 if best is None else 1.0 / best


def ndcg(relevances: Sequence[int], ranks: Sequence[int | None]) -> float:
    """Normalised discounted cumulative gain, in 0..1 (Järvelin and Kekäläinen 2002).

    Linear gain: each item gives relevance / log2(rank + 1), once, at its first rank; the ideal
    has the items' relevances in descending order at ranks 1, 2, …. Two items may share a hit, so
    the quotient is capped at 1. Needs at least one item of relevance 1 or more.
    """
    gain = 0.0
    for relevance, rank in zip(relevances, ranks, strict=True):
        if rank is not None:
            gain += relevance / log2(rank + 1)
    ideal = 0.0
    for rank, relevance in enumerate(sorted(relevances, reverse=True), start=1):
        ideal += relevance / log2(rank + 1)
    return min(gain / ideal, 1.0)


def covered(expected: Sequence[str], resolved: Iterable[str]) -> list[bool]:
    """For each expected name, whether it is among the resolved ones, both folded."""
    found = {fold(name) for name in resolved}
    return [fold(name) in found for name in expected]


def contains_quote(text: str, quote: str) -> bool:
    """Whether a paragraph holds a quote, both folded."""
    return fold(quote) in fold(text)
