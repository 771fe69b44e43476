"""Equal budgets: what a hit of the plain search would cost in an evidence package.

The server charges an evidence item its compact JSON, as serde_json writes it. The same charge
on search hits makes a baseline run comparable with an assembled one.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

import msgspec

from .blocks import BudgetUse, Hit, HitLanes, LaneScore, Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_LIMITS = Limits(max_items=40, max_bytes=65536, max_tokens=4000)
MOST_ITEMS = 1000
MOST_BYTES = 1048576

_string = msgspec.json.Encoder().encode


class Served(msgspec.Struct, frozen=True, gc=False):
    """A hit with its text, which never leaves this process."""

    hit: Hit
    text: str


class _Cost(msgspec.Struct):
    """Bytes, and characters by what they count in tokens."""

    size: int = 0
    ascii: int = 0
    other: int = 0

    def __add__(self, more: _Cost) -> _Cost:
        return _Cost(self.size + more.size, self.ascii + more.ascii, self.other + more.other)

    @property
    def tokens(self) -> int:
        """An ASCII character is a quarter token, any other a whole one; rounded up once."""
        return -(-self.ascii // 4) + self.other


def limits(max_items: int | None, max_bytes: int | None, max_tokens: int | None) -> Limits | None:
    """The ceilings, defaults filled in and capped; None if none was asked for."""
    if max_items is None and max_bytes is None and max_tokens is None:
        return None
    default = DEFAULT_LIMITS
    return Limits(
        max_items=min(default.max_items if max_items is None else max_items, MOST_ITEMS),
        max_bytes=min(default.max_bytes if max_bytes is None else max_bytes, MOST_BYTES),
        max_tokens=default.max_tokens if max_tokens is None else max_tokens,
    )


def admit(served: Sequence[Served], context: str, ceilings: Limits) -> tuple[list[Hit], BudgetUse]:
    """The hits that fit, in order, skipping one that does not and going on."""
    admitted: list[Hit] = []
    used = _Cost()
    for rank, one in enumerate(served, start=1):
        text = item_json(one, context, rank)
        wider = used + _cost(text)
        if _fits(wider, len(admitted) + 1, ceilings):
            admitted.append(one.hit)
            used = wider
    total = used + _envelope(len(admitted))
    return admitted, BudgetUse(
        items_used=len(admitted),
        bytes_used=total.size,
        tokens_used=total.tokens,
        limits=ceilings,
        omitted_total=len(served) - len(admitted),
    )


def _fits(used: _Cost, items: int, ceilings: Limits) -> bool:
    total = used + _envelope(items)
    return (
        items <= ceilings.max_items
        and total.size <= ceilings.max_bytes
        and total.tokens <= ceilings.max_tokens
    )


def _envelope(items: int) -> _Cost:
    """The list's brackets and commas, and the empty list of citations."""
    characters = 2 + max(items - 1, 0) + 2
    return _Cost(characters, characters)


def _cost(text: str) -> _Cost:
    size = len(text.encode("utf-8"))
    plain = len(text) if text.isascii() else sum(map(str.isascii, text))
    return _Cost(size, plain, len(text) - plain)


def item_json(served: Served, context: str, rank: int) -> str:
    """A hit as the evidence item it would be, in serde_json's compact form."""
    hit = served.hit
    candidate = f"passage\0{context}\0{hit.source}\0{hit.paragraph}"
    return (
        f'{{"candidate_id":{_quoted(candidate)},"kind":"passage","fused_rank":{rank},'
        f'"lane_ranks":[{{"lane":"{_lane(hit.lanes)}","rank":{rank}}}],"citation_refs":[],'
        f'"passage":{{"source":{_quoted(hit.source)},"paragraph":{hit.paragraph},'
        f'"score":{float32_json(hit.score)},"text":{_quoted(served.text)},'
        f'"lanes":{_lanes_json(hit.lanes)}}}}}'
    )


def _lane(lanes: HitLanes) -> str:
    if lanes.vector is None:
        return "passage_bm25"
    return "passage_vector" if lanes.bm25 is None else "passage_fused"


def _lanes_json(lanes: HitLanes) -> str:
    parts = [
        f'"{name}":{{"rank":{lane.rank},"score":{float32_json(lane.score)}}}'
        for name, lane in (("bm25", lanes.bm25), ("vector", lanes.vector))
        if isinstance(lane, LaneScore)
    ]
    return "{" + ",".join(parts) + "}"


def _quoted(text: str) -> str:
    return _string(text).decode("utf-8")


def float32(value: float) -> float:
    """The nearest 32-bit float, as a double."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def float32_json(value: float) -> str:
    """The shortest decimal that reads back as the same 32-bit float, laid out as serde_json does:
    positional for 1e-6 <= |x| < 1e13, else with an exponent.
    """
    single = float32(value)
    if not math.isfinite(single):
        return "null"
    for precision in range(9):
        shortest = f"{single:.{precision}e}"
        if float32(float(shortest)) == single:
            break
    mantissa, _, exponent = shortest.partition("e")
    power = int(exponent)
    if single == 0 or -6 <= power < 13:
        return format(float(shortest), f".{max(precision - power, 1)}f")
    return f"{mantissa}e{power}"
