"""How high the water stands between two turns of the tide, by the rule of twelfths."""

from __future__ import annotations

#: Twelfths of the range by which the water moves in each of the six hours.
TWELFTHS = (1, 2, 3, 3, 2, 1)


def height(low: float, high: float, hours: float) -> float:
    """Return the height of a rising tide some hours (0 to 6) after low water."""
    if not 0 <= hours <= len(TWELFTHS):
        raise ValueError(f"hours must be from 0 to {len(TWELFTHS)}, not {hours:g}")
    whole = int(hours)
    twelfths: float = sum(TWELFTHS[:whole])
    if whole < len(TWELFTHS):
        twelfths += (hours - whole) * TWELFTHS[whole]
    return low + (high - low) * twelfths / 12


def is_uncovered(pool: float, low: float, high: float, hours: float) -> bool:
    """Whether a pool at that height above chart datum is out of the water."""
    return height(low, high, hours) < pool
