"""How many examples a property is tried on: a fixed number, or TAGURU_FUZZ times as many."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from collections.abc import Callable

_FACTOR = os.environ.get("TAGURU_FUZZ")


def budget(number: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Without TAGURU_FUZZ the same examples each time; with it others each time."""
    return settings(
        max_examples=max(1, int(number * float(_FACTOR or 1))),
        derandomize=_FACTOR is None,
        deadline=None,
        # Without the last phase, which runs a failing example hundreds of times to explain it.
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,  # a directory may serve many examples
        ],
    )
