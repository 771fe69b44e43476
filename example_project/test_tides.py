"""Ordinary tests, as any suite has them: they run before the cases of eval.jsonl."""

from __future__ import annotations

import pytest
from tides import height, is_uncovered


@pytest.mark.parametrize(
    ("hours", "expected"), [(0, 1.0), (1, 1.5), (2, 2.5), (3, 4.0), (3.5, 4.75), (6, 7.0)]
)
def test_height_follows_the_twelfths(hours: float, expected: float) -> None:
    assert height(low=1.0, high=7.0, hours=hours) == pytest.approx(expected)


def test_low_pools_are_uncovered_only_near_low_water() -> None:
    assert is_uncovered(pool=2.0, low=1.0, high=7.0, hours=1)
    assert not is_uncovered(pool=2.0, low=1.0, high=7.0, hours=2)


def test_hours_past_high_water_are_refused() -> None:
    with pytest.raises(ValueError, match="from 0 to 6, not 7"):
        height(low=1.0, high=7.0, hours=7)
