"""The evaluation itself, from files and requests to scores and the gate; no pytest in here."""

from __future__ import annotations
