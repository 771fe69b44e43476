"""Each formula against values worked out by hand, and against an independent implementation."""

from __future__ import annotations

from math import copysign
from typing import TYPE_CHECKING, Any

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import RR, R, nDCG
from msgspec import UNSET, UnsetType

from pytest_taguru.engine.blocks import (
    AssociationCheck,
    CitationCheck,
    Errored,
    Queried,
    QuoteCheck,
    Resolved,
    SectionCheck,
)
from pytest_taguru.engine.dataset import ExpectedSource
from pytest_taguru.engine.scoring import (
    contains_quote,
    covered,
    first_ranks,
    ndcg,
    recall_at_k,
    reciprocal_rank,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_taguru.engine.scoring import Locator

# -- who matches what ------------------------------------------------------------------------

RANKING: list[Locator] = [("a", 2), ("b", 0), ("a", 0), ("c", 7), ("b", None)]


@pytest.mark.parametrize(
    ("item", "rank"),
    [
        (ExpectedSource(source="a", paragraphs=[0]), 3),
        (ExpectedSource(source="a", paragraphs=[0, 2]), 1),
        (ExpectedSource(source="a"), 1),
        (ExpectedSource(source="b", paragraphs=[1, 9]), None),
        (ExpectedSource(source="c", paragraphs=[7]), 4),
        (ExpectedSource(source="A"), None),
        (ExpectedSource(source="a "), None),
        (ExpectedSource(source="nowhere"), None),
    ],
)
def test_an_item_is_found_at_its_first_hit(item: ExpectedSource, rank: int | None) -> None:
    assert first_ranks([item], RANKING) == [rank]


def test_a_hit_without_a_paragraph_matches_a_whole_source_only() -> None:
    items = [ExpectedSource(source="b"), ExpectedSource(source="b", paragraphs=[0])]
    assert first_ranks(items, [("b", None), ("x", 0)]) == [1, None]


def test_every_item_is_looked_up_on_its_own() -> None:
    items = [ExpectedSource(source="a"), ExpectedSource(source="a", paragraphs=[2])]
    assert first_ranks(items, RANKING) == [1, 1]


# -- the formulas ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "value"),
    [([1], 1.0), ([None], 0.0), ([4, None], 0.5), ([None, 9, 2], 2 / 3), ([1, 1, 1], 1.0)],
)
def test_recall(ranks: list[int | None], value: float) -> None:
    assert recall_at_k(ranks) == value


@pytest.mark.parametrize(
    ("ranks", "value"),
    [([1], 1.0), ([None], 0.0), ([None, 4], 0.25), ([5, 3], 1 / 3), ([2, 2], 0.5)],
)
def test_reciprocal_rank(ranks: list[int | None], value: float) -> None:
    assert reciprocal_rank(ranks) == value


@pytest.mark.parametrize(
    ("relevances", "ranks", "value"),
    [
        # One item at the first, second and third rank: 1, 1/log2(3), 1/log2(4).
        ([1], [1], 1.0),
        ([1], [2], 0.6309297535714575),
        ([1], [3], 0.5),
        # The grade of a single item cancels out.
        ([3], [3], 0.5),
        ([1], [None], 0.0),
        # 3/log2(3) + 1/log2(2) + 0 = 2.8927892607 over 3 + 2/log2(3) + 1/2 = 4.7618595071.
        ([3, 1, 2], [2, 1, None], 0.6074915),
        # The order that the dataset gives its items in does not matter.
        ([1, 2, 3], [1, None, 2], 0.6074915),
        # In the ideal order it is 1, however the grades are.
        ([3, 2, 1], [1, 2, 3], 1.0),
        # The other way round: 1 + 2/log2(3) + 3/2 = 3.7618595071 over 4.7618595071.
        ([3, 2, 1], [3, 2, 1], 0.7899980),
        # A gap: 2 + 0 + 1/log2(5) = 2.4306765581 over 2 + 1/log2(3) = 2.6309297536.
        ([2, 1], [1, 4], 0.9238850),
    ],
)
def test_ndcg(relevances: list[int], ranks: list[int | None], value: float) -> None:
    assert ndcg(relevances, ranks) == pytest.approx(value, abs=5e-8)


def test_ndcg_is_linear_in_the_grade() -> None:
    # Exponential gain (2^3 - 1 against 2^1 - 1) would give (1 + 7/1.58496) / (7 + 1/1.58496).
    assert ndcg([3, 1], [2, 1]) == pytest.approx(0.7967076, abs=5e-8)


def test_one_hit_for_two_items_counts_twice_and_is_capped() -> None:
    # 1 + 1 over 1 + 1/log2(3) = 1.63 would be 1.226.
    assert ndcg([1, 1], [1, 1]) == 1.0
    # At the third rank: 1/2 + 1/2 over 1.6309297536, below the cap.
    assert ndcg([1, 1], [3, 3]) == pytest.approx(0.6131472, abs=5e-8)


def test_ndcg_is_never_minus_zero() -> None:
    assert copysign(1, ndcg([1, 2], [None, None])) == 1
    assert copysign(1, reciprocal_rank([None])) == 1


@given(
    st.lists(st.tuples(st.integers(1, 3), st.none() | st.integers(1, 30)), min_size=1, max_size=6)
)
def test_every_measure_is_between_0_and_1(items: list[tuple[int, int | None]]) -> None:
    relevances = [relevance for relevance, _ in items]
    ranks = [rank for _, rank in items]
    for value in (ndcg(relevances, ranks), recall_at_k(ranks), reciprocal_rank(ranks)):
        assert 0 <= value <= 1
        assert copysign(1, value) == 1


# -- names and quotes ------------------------------------------------------------------------


def test_names_are_covered_whatever_their_case_width_and_kana() -> None:
    expected = ["コーヒー", "COFFEE", "is a", " Coffee\u3000", "tea", ""]
    resolved = ["ｺｰﾋｰ", "coffee", "IS A"]
    assert covered(expected, resolved) == [True, True, True, True, False, False]


def test_an_expected_name_given_twice_counts_twice() -> None:
    assert covered(["a", "A", "b"], ["a"]) == [True, True, False]
    assert covered([], ["a"]) == []


@pytest.mark.parametrize(
    ("text", "quote", "holds"),
    [
        ("蔵は1897年に創業した。", "１８９７年に創業", True),
        ("Serve it at TEN degrees.", "  ten DEGREES ", True),
        ("ﾓﾛﾐは発酵中の液体をいう。", "もろみ", True),
        ("one\n two", "one two", False),
        ("straße", "strasse", False),
        ("a", "ab", False),
    ],
)
def test_quotes(text: str, quote: str, holds: bool) -> None:
    assert contains_quote(text, quote) is holds


# -- an independent implementation -----------------------------------------------------------

DOCUMENTS: list[tuple[str, int]] = [(source, n) for source in "abcd" for n in range(3)]


@st.composite
def judged_rankings(draw: st.DrawFn) -> tuple[list[tuple[tuple[str, int], int]], list[Any]]:
    """Items of one paragraph each, all different, and a ranking without repetitions.

    Only then is an item what the literature calls a judged document.
    """
    judged = draw(st.lists(st.sampled_from(DOCUMENTS), min_size=1, max_size=8, unique=True))
    grades = draw(st.lists(st.integers(1, 3), min_size=len(judged), max_size=len(judged)))
    ranking = draw(st.lists(st.sampled_from(DOCUMENTS), min_size=1, max_size=12, unique=True))
    return list(zip(judged, grades, strict=True)), ranking


def measured_elsewhere(
    judged: Sequence[tuple[tuple[str, int], int]], ranking: Sequence[tuple[str, int]]
) -> dict[str, float]:
    """R, RR and nDCG of one query by ir_measures (trec_eval underneath).

    Its nDCG has linear gain by default, as ours; no cut-off, since ours is the server's limit.
    """
    qrels = {"q": {f"{source}/{n}": grade for (source, n), grade in judged}}
    run = {"q": {f"{source}/{n}": -float(rank) for rank, (source, n) in enumerate(ranking)}}
    values = ir_measures.calc_aggregate([R @ 1000, RR, nDCG], qrels, run)
    return {str(measure): value for measure, value in values.items()}


@given(judged_rankings())
def test_agreement_where_an_item_is_a_document(
    example: tuple[list[tuple[tuple[str, int], int]], list[Any]],
) -> None:
    judged, ranking = example
    items = [
        ExpectedSource(source=source, paragraphs=[n], relevance=grade)
        for (source, n), grade in judged
    ]
    ranks = first_ranks(items, ranking)
    theirs = measured_elsewhere(judged, ranking)
    assert recall_at_k(ranks) == pytest.approx(theirs["R@1000"], abs=1e-12)
    assert reciprocal_rank(ranks) == pytest.approx(theirs["RR"], abs=1e-12)
    assert ndcg([item.relevance for item in items], ranks) == pytest.approx(
        theirs["nDCG"], abs=1e-12
    )


def test_disagreement_a_whole_source_is_one_item() -> None:
    """To trec_eval each paragraph is a document: an unserved one costs recall, a second one
    adds gain. To us the source was found once, at its first hit.
    """
    ranking = [("x", 0), ("a", 0), ("a", 1)]
    ranks = first_ranks([ExpectedSource(source="a")], ranking)
    assert (recall_at_k(ranks), reciprocal_rank(ranks)) == (1.0, 0.5)
    assert ndcg([1], ranks) == pytest.approx(0.6309298, abs=5e-8)  # 1 / log2(3)
    theirs = measured_elsewhere([(("a", n), 1) for n in range(3)], ranking)
    assert theirs["R@1000"] == pytest.approx(2 / 3)
    assert theirs["RR"] == 0.5  # the first hit is the same
    # (1/log2(3) + 1/2) over (1 + 1/log2(3) + 1/2)
    assert theirs["nDCG"] == pytest.approx(0.5307213, abs=5e-8)


def test_disagreement_one_hit_may_answer_two_items() -> None:
    """A document has one judgement; a hit may satisfy an item for its source and another for
    its paragraph. Without the cap, ours would be 1.226.
    """
    items = [ExpectedSource(source="a"), ExpectedSource(source="a", paragraphs=[0])]
    ranks = first_ranks(items, [("a", 0), ("x", 0)])
    assert recall_at_k(ranks) == 1.0
    assert ndcg([1, 1], ranks) == 1.0
    theirs = measured_elsewhere([(("a", 0), 1), (("a", 1), 1)], [("a", 0), ("x", 0)])
    assert theirs["R@1000"] == 0.5
    assert theirs["nDCG"] == pytest.approx(0.6131472, abs=5e-8)  # 1 / 1.6309297536


def test_disagreement_the_zero_of_a_run_without_hits() -> None:
    """ir_measures averages over the queries it was given; the original program summed an empty
    list to -0.0. Ours is plainly 0.
    """
    assert str(ndcg([2], first_ranks([ExpectedSource(source="a")], []))) == "0.0"


# -- citations and associations --------------------------------------------------------------

MATCHED = SectionCheck(check="matched", expected="S")
MISMATCHED = SectionCheck(check="mismatched", expected=None)
NOT_CHECKED = SectionCheck(check="not_checked")
HELD, NOT_HELD = (QuoteCheck(declared="q", matched=matched) for matched in (True, False))


@pytest.mark.parametrize(
    ("section", "quote", "valid"),
    [
        (NOT_CHECKED, UNSET, True),
        (NOT_CHECKED, HELD, True),
        (NOT_CHECKED, NOT_HELD, False),
        (MATCHED, UNSET, True),
        (MATCHED, HELD, True),
        (MATCHED, NOT_HELD, False),
        (MISMATCHED, UNSET, False),
        (MISMATCHED, HELD, False),
    ],
)
def test_a_resolved_citation_is_valid_in_its_section_with_its_quote(
    section: SectionCheck, quote: QuoteCheck | UnsetType, valid: bool
) -> None:
    for served in (True, False):  # which is another question
        check = CitationCheck(
            source="s",
            paragraph=0,
            served=served,
            outcome="resolved",
            section=section,
            quote=quote,
            latency_ms=1,
        )
        assert check.is_valid is valid


def test_an_unresolved_citation_is_not_valid() -> None:
    check = CitationCheck(
        source="s",
        paragraph=0,
        served=True,
        outcome="unresolved",
        code="no_paragraph",
        message="…",
        latency_ms=1,
    )
    assert not check.is_valid


@pytest.mark.parametrize(
    ("query", "matched"),
    [
        (Queried(total=1, matches=1, latency_ms=1), True),
        (Queried(total=7, matches=1, latency_ms=1), True),
        (Queried(total=0, matches=0, latency_ms=1), False),
        (Errored(message="busy", latency_ms=1), False),
        (UNSET, False),
    ],
)
def test_an_association_is_there_if_its_query_says_so(
    query: Queried | Errored | UnsetType, matched: bool
) -> None:
    pinned = Resolved(name="n", tier="lexical", latency_ms=1)
    check = AssociationCheck(
        subject_cue="s",
        label_cue="l",
        object_cue="o",
        subject=pinned,
        label=pinned,
        object=pinned,
        query=query,
    )
    assert check.is_matched is matched
