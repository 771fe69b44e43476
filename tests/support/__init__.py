"""What the tests need: servers, runs, comparison of artifacts."""

from __future__ import annotations
