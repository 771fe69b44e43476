"""The gate in every channel: selection, workers, JUnit XML, reporters, hooks."""

from __future__ import annotations
