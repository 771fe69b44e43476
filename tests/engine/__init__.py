"""The engine alone."""

from __future__ import annotations
