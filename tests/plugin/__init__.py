"""The plugin, in pytest runs of their own."""

from __future__ import annotations
