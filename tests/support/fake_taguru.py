"""A taguru that holds nothing but names: enough for runs whose answers do not matter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

from .replay_server import Answer, LoopbackServer, Request, refusal, result

if TYPE_CHECKING:
    from collections.abc import Callable

#: The sources of the `sake` corpus, in the server's order.
SAKE_SOURCES = (
    "corpus/awards-2023.md",
    "corpus/awards-2024.md",
    "corpus/brewery.md",
    "corpus/glossary.md",
    "corpus/ledger.md",
    "corpus/rice.md",
    "corpus/tasting.md",
    "corpus/water.md",
    "corpus/weather.md",
)


def _nothing(_: Request) -> None:
    """The default hook: answer as usual."""


@dataclass(kw_only=True)
class FakeTaguru:
    """Answers for one context, with no hits but those of `hits` (query → locators).

    `hook` sees each request first and may answer it, block or change the state.
    """

    context: str = "sake"
    sources: tuple[str, ...] = SAKE_SOURCES
    hits: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    text: str = "text of a paragraph"
    graph_revision: int = 15
    hook: Callable[[Request], Answer | None] = _nothing

    def serve(self) -> LoopbackServer:
        """A server that answers so; to be entered."""
        return LoopbackServer(self.answer)

    def answer(self, request: Request) -> Answer:
        """The answer to any request."""
        special = self.hook(request)
        if special is not None:
            return special
        split = urlsplit(request.path)
        if split.path == "/health":
            return Answer(body='{"status": "ok", "version": "0.9.7"}')
        home = f"/contexts/{quote(self.context, safe='')}"
        if split.path != home and not split.path.startswith(home + "/"):
            return refusal(404, "no such context", "no_context")
        route = split.path.removeprefix(home).removeprefix("/")
        if request.method == "GET":
            return self._read(route, parse_qs(split.query))
        return self._ask(route, request.body)

    def _read(self, route: str, query: dict[str, list[str]]) -> Answer:
        match route:
            case "":
                return result(
                    {
                        "name": self.context,
                        "usage": {"last_write_epoch": 1796135789},
                        "revision": {"graph": self.graph_revision, "passages": 9, "config": 0},
                    }
                )
            case "embeddings":
                return result({"provider_model": None})
            case "sources":
                after = query.get("after", [""])[0]
                page = [name for name in self.sources if name > after]
                return result({"total": len(self.sources), "sources": page})
        return refusal(404, "no such route", "not_found")

    def _ask(self, route: str, body: Any) -> Answer:
        match route:
            case "sources/search":
                return result(self._search(body["query"], body["limit"]))
            case "resolve" | "resolve_label":
                return result([])
            case "query":
                return result({"total": 0, "matches": []})
            case "citations":
                return refusal(404, "no such source", "no_source")
            case "evidence":
                return result(self._evidence(body))
        return refusal(404, "no such route", "not_found")

    def _search(self, query: str, limit: int) -> dict[str, Any]:
        lanes = {"bm25": {"ran": True}, "vector": {"ran": False, "reason": "no provider"}}
        return {
            "plan": {"contexts": [{"context": self.context, "lanes": lanes}]},
            "hits": [
                {
                    "source": source,
                    "paragraph": paragraph,
                    "score": 1.0 / rank,
                    "text": self.text,
                    "lanes": {"bm25": {"rank": rank, "score": 1.0 / rank}},
                }
                for rank, (source, paragraph) in enumerate(self.hits.get(query, [])[:limit], 1)
            ],
        }

    @staticmethod
    def _evidence(body: Any) -> dict[str, Any]:
        return {
            "items": [],
            "citations": [],
            "omitted": [],
            "omitted_total": 0,
            "omitted_by_reason": {},
            "budget": {
                "items_used": 0,
                "bytes_used": 4,
                "tokens_used": 1,
                "limits": body["budget"],
            },
            "plan": {
                "selection": {"dedup_dropped": 0},
                "reranker": {"configured": False, "ran": False},
            },
        }
