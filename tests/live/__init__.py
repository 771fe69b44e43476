"""Against the real server."""

from __future__ import annotations
