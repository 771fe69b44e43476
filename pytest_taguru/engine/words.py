"""Small things about words that every message needs."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 case`, `2 cases`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Somebody else's text on one line: what could steer a terminal becomes an escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )
