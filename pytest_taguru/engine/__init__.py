"""The evaluation itself: files, requests, lanes, scores, gate, artifact. Knows nothing of pytest."""

from __future__ import annotations
