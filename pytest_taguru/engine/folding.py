"""How names are compared: the server's own `normalize_entry`."""

from __future__ import annotations

import unicodedata

from .strict import WHITE_SPACE

_KATAKANA_TO_HIRAGANA = {code: code - 0x60 for code in range(0x30A1, 0x30F7)}


def fold(text: str) -> str:
    """Trim, then fold case, compatibility forms and kana.

    Lower case, NFKC, lower case again, and katakana U+30A1 to U+30F6 as hiragana.
    """
    folded = unicodedata.normalize("NFKC", _lower(text.strip(WHITE_SPACE)))
    return _lower(folded).translate(_KATAKANA_TO_HIRAGANA)


def _lower(text: str) -> str:
    # One character at a time: str.lower() looks at neighbours for a final sigma, the server not.
    return text.lower() if text.isascii() else "".join(map(str.lower, text))
