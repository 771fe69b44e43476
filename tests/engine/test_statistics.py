"""Paired statistics: worked out by hand, against scipy, and against the full count."""

from __future__ import annotations

import random
from math import comb

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_taguru.engine import statistics as ours

# -- Holm ------------------------------------------------------------------------------------


def test_holm_steps_down_and_never_falls() -> None:
    # sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, then 0.04 -> 0.06
    assert ours.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_stops_at_one() -> None:
    assert ours.holm([0.6, 0.7]) == [1.0, 1.0]
    assert ours.holm([]) == []


# -- the sign-flip test ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moved", "p"),
    [
        ([], 1.0),
        ([0.5], 1.0),  # + and - are equally far from 0
        ([-0.25] * 5, 2 / 2**5),
        ([-0.25] * 6, 2 / 2**6),
        # |sum| 4 of six ones: 1 or 0 or 5 or 6 signs differ: (1 + 6 + 6 + 1) / 64
        ([1.0] * 5 + [-1.0], 14 / 64),
        # 1/3 + 1/3 + 1/3 ties with 1: sums of (1/3, 1/3, 1/3, -1) are 0 -> every pattern counts
        ([1 / 3, 1 / 3, 1 / 3, -1.0], 1.0),
    ],
)
def test_all_patterns_of_few_pairs(moved: list[float], p: float) -> None:
    assert ours.sign_flip(moved, 12) == (p, "exact")


def test_three_unlike_pairs() -> None:
    # sums of +-1 +-2 +-3: 6, 4, 2, 0, 0, -2, -4, -6; observed 1 + 3 - 2 = 2, which six reach
    assert ours.sign_flip([1.0, -2.0, 3.0], 10) == (6 / 8, "exact")


@pytest.mark.parametrize("pairs", [7, 12, 16])
def test_exact_p_against_scipy(pairs: int) -> None:
    rng = random.Random(pairs)
    moved = [rng.gauss(0.2, 0.5) for _ in range(pairs)]
    found, method = ours.sign_flip(moved, 50)
    # scipy's only statistic is the mean here; permutation_type="samples" flips signs
    reference = scipy.stats.permutation_test(
        (np.array(moved),), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert method == "exact"
    assert found == pytest.approx(reference.pvalue, abs=1e-9)


def test_more_than_sixteen_pairs_are_drawn_with_one_added() -> None:
    # No random sign pattern of 40 equal drops reaches all-minus: hits 0, so (0 + 1) / 10,001.
    found, method = ours.sign_flip([-0.5] * 40, 100)
    assert method == "drawn"
    assert found == pytest.approx(1 / 10_001)


@pytest.mark.parametrize("pairs", [30, 80])
def test_drawn_p_is_near_the_binomial_count(pairs: int) -> None:
    ups = pairs // 2 + 6
    moved = [1.0] * ups + [-1.0] * (pairs - ups)
    exact = 2 * sum(comb(pairs, k) for k in range(ups, pairs + 1)) / 2**pairs
    found, method = ours.sign_flip(moved, 200)
    assert method == "drawn"
    assert found == pytest.approx(exact, abs=4 * (exact / 10_000) ** 0.5)


@pytest.mark.parametrize("pairs", [17, 40, 120, 1000])
def test_expanded_p_is_nearer_to_the_full_count_than_draws_would_be(pairs: int) -> None:
    for ups in range(pairs // 2 + 1, pairs // 2 + 2 * int(pairs**0.5)):
        moved = [1.0] * ups + [-1.0] * (pairs - ups)
        exact = 2 * sum(comb(pairs, k) for k in range(ups, pairs + 1)) / 2**pairs
        found, method = ours.sign_flip(moved, 5000)
        assert method == "expansion"
        scatter = max((exact * (1 - exact) / 10_000) ** 0.5, 1e-4)
        assert abs(found - exact) < 1.2 * scatter


@pytest.mark.parametrize("steps", [(0.5, 1 / 3), (0.25, 1.0), (1.0, 2**0.5 / 2)])
def test_expanded_p_of_unlike_pairs(steps: tuple[float, float]) -> None:
    """Against the full count: two binomials, one for each size of difference."""
    one, other = steps
    each = 20
    moved = [one] * 14 + [-one] * 6 + [other] * 13 + [-other] * 7
    observed = abs(sum(moved)) - 1e-9
    weights = [comb(each, k) / 2**each for k in range(each + 1)]
    exact = sum(
        weights[i] * weights[j]
        for i in range(each + 1)
        for j in range(each + 1)
        if abs(one * (2 * i - each) + other * (2 * j - each)) >= observed
    )
    found, method = ours.sign_flip(moved, 600)
    assert method == "expansion"
    assert abs(found - exact) < 2 * (exact * (1 - exact) / 10_000) ** 0.5


def test_few_dominating_pairs_are_drawn_however_many_there_are() -> None:
    moved = [-1.0, -1.0, 1.0] + [1e-6] * 300
    found, method = ours.sign_flip(moved, 5000)
    assert method == "drawn"
    # Only the three count: |sum| 1 of +-1 +-1 +-1 is reached by all eight patterns, save for
    # where the crumbs pull it down, which half of the patterns near 1 do: 2/8 + 6/8 * about 1/2
    assert 0.25 <= found <= 1.0


# -- the bootstrap ---------------------------------------------------------------------------


def test_nothing_moved() -> None:
    interval = ours.bootstrap([], 40)
    assert (interval.low, interval.high) == (0.0, 0.0)


def test_all_moved_alike() -> None:
    interval = ours.bootstrap([-0.25] * 9, 9)
    assert (interval.low, interval.high) == (-0.25, -0.25)


def test_many_that_moved_alike_but_for_rounding() -> None:
    interval = ours.bootstrap([0.3 - 0.5, -0.2] * 5000, 10_000)
    assert interval.low == pytest.approx(-0.2)
    assert interval.high == pytest.approx(-0.2)


def test_one_of_ten_pairs() -> None:
    # The mean is -k / 10 with k from Binomial(10, 0.1): P(k <= 2) = 0.930, P(k <= 3) = 0.987,
    # P(k = 0) = 0.349. So the 2.5 % quantile is at k = 3, the 97.5 % one at 0.
    interval = ours.bootstrap([-1.0], 10)
    assert (interval.low, interval.high) == (-0.3, 0.0)
    assert interval.level == 0.95


@pytest.mark.parametrize(("moved", "pairs"), [(9, 30), (60, 150), (500, 500)])
def test_interval_against_scipy(moved: int, pairs: int) -> None:
    rng = random.Random(moved)
    values = [rng.gauss(0.05, 0.4) for _ in range(moved)]
    interval = ours.bootstrap(values, pairs)
    sample = np.array(values + [0.0] * (pairs - moved))
    reference = scipy.stats.bootstrap(
        (sample,), np.mean, method="percentile", n_resamples=100_000, rng=1, batch=1000
    ).confidence_interval
    error = sample.std() / pairs**0.5
    assert interval.method == "resampled"
    assert interval.low == pytest.approx(reference.low, abs=0.12 * error)
    assert interval.high == pytest.approx(reference.high, abs=0.12 * error)


@pytest.mark.parametrize(("moved", "pairs"), [(15, 600), (60, 600), (600, 600), (2000, 20_000)])
def test_expanded_interval_against_resampling(moved: int, pairs: int) -> None:
    rng = random.Random(moved)
    values = [rng.uniform(-1, 0.6) for _ in range(moved)]
    interval = ours.bootstrap(values, pairs)
    assert interval.method == "expansion"
    draws = np.random.default_rng(3)
    counts = draws.multinomial(
        pairs, [1 / pairs] * moved + [1 - moved / pairs], size=20_000 if moved > 500 else 100_000
    )[:, :moved]
    means = counts @ np.array(values) / pairs
    low, high = np.quantile(means, [0.025, 0.975])
    error = means.std()
    assert interval.low == pytest.approx(low, abs=0.08 * error)
    assert interval.high == pytest.approx(high, abs=0.08 * error)


def test_skewed_differences_are_resampled_in_any_number() -> None:
    assert ours.bootstrap([-1.0, -0.5], 20_000).method == "resampled"


@given(
    st.lists(st.floats(-1, 1).filter(lambda x: abs(x) > 1e-9), min_size=1, max_size=12),
    st.integers(0, 8),
)
def test_order_and_sign_do_not_matter(moved: list[float], still: int) -> None:
    pairs = len(moved) + still
    interval = ours.bootstrap(moved, pairs)
    assert ours.bootstrap(sorted(moved), pairs) == interval
    assert min(*moved, 0) - 1e-9 <= interval.low <= interval.high <= max(*moved, 0) + 1e-9
    mirrored = [-value for value in moved]
    assert ours.sign_flip(mirrored, pairs)[0] == ours.sign_flip(moved, pairs)[0]


# -- together --------------------------------------------------------------------------------


def test_words_for_small_numbers() -> None:
    entries = ours.paired_statistics(
        {"none": (0, []), "still": (10, []), "few": (10, [-0.5] * 5), "enough": (10, [-0.5] * 6)}
    )
    none, still, few, enough = entries
    assert (none.mean_difference, none.interval, none.p, none.p_holm) == (None, None, None, None)
    assert isinstance(none.note, str)
    assert "nothing can be said" in none.note
    # 1 - 0.05 ** (1 / 10) = 0.2589
    assert isinstance(still.note, str)
    assert "25.89%" in still.note
    assert isinstance(few.note, str)
    assert "neither show a change nor rule one out" in few.note
    assert few.p == 0.0625
    assert not isinstance(enough.note, str)
    # three metrics have pairs: 0.03125 * 3
    assert (enough.p, enough.p_holm) == (0.03125, 0.09375)
    assert (enough.n, enough.moved, enough.mean_difference) == (10, 6, -0.3)


def test_only_the_sequence_that_python_promises_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    class Promised:
        """Random with nothing but what the documentation guarantees across versions."""

        def __init__(self, seed: int) -> None:
            self.random = random.Random(seed).random

    moved = [((7 * k) % 23 - 11) / 22 for k in range(20) if (7 * k) % 23 != 11]
    plain = ours.bootstrap(moved, 30), ours.sign_flip(moved, 30)
    monkeypatch.setattr(ours, "Random", Promised)
    assert (ours.bootstrap(moved[::-1], 30), ours.sign_flip(moved[::-1], 30)) == plain
