"""A retrieval quality gate for pytest: the cases of a taguru eval.jsonl as test items."""

from __future__ import annotations

__version__ = "0.1.0"
