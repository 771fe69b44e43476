"""The tests: engine (no pytest plugin), plugin (pytest run for real), live (the real server)."""

from __future__ import annotations
