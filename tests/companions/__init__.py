"""The plugin beside other plugins, each in runs of their own."""

from __future__ import annotations
