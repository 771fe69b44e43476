"""The one Python warning of this plugin."""

from __future__ import annotations

import pytest


class TaguruWarning(pytest.PytestWarning):
    """Something about how pytest was started that makes a run another than it looks."""
