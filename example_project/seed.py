"""Put corpus.json into a running taguru server.

    python seed.py http://127.0.0.1:8248

The server must not have the context yet. A bearer token is read from TAGURU_API_TOKEN.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

CORPUS = Path(__file__).parent / "corpus.json"
TIMEOUT_SECONDS = 30


def seed(url: str, corpus: dict[str, Any]) -> None:
    """Create the context, then store its passages, associations and aliases."""
    context = f"{url.rstrip('/')}/contexts/{quote(corpus['context'], safe='')}"
    passages = {field: corpus[field] for field in ("passages", "tags", "dates", "sections")}
    with requests.Session() as session:
        token = os.environ.get("TAGURU_API_TOKEN", "").strip()
        if token:
            session.headers["Authorization"] = f"Bearer {token}"
        for method, address, body in (
            ("PUT", context, {"description": corpus["description"]}),
            ("POST", f"{context}/sources", passages),
            ("POST", f"{context}/associations", corpus["associations"]),
            ("POST", f"{context}/aliases", corpus["aliases"]),
        ):
            answer = session.request(method, address, json=body, timeout=TIMEOUT_SECONDS)
            if not answer.ok:
                raise RuntimeError(f"{method} {address} answered {answer.status_code}")


def load_corpus() -> dict[str, Any]:
    """Read corpus.json."""
    corpus: dict[str, Any] = json.loads(CORPUS.read_text(encoding="utf-8"))
    return corpus


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python seed.py URL")
    seed(sys.argv[1], load_corpus())
