"""Folding of names: per character, compatibility forms, kana."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_taguru.engine.folding import fold


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Coffee", "coffee"),
        ("ＡＢＣ１２３", "abc123"),
        # Capital sigma becomes the plain small one, wherever it stands.
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευσ"),
        # A final sigma that is written stays one: lower case does not touch it.
        ("οδυσσευς", "οδυσσευς"),
        # İ is two characters in lower case: i and a dot above.
        ("İSTANBUL", "i\u0307stanbul"),
        ("ISTANBUL", "istanbul"),
        # NFKC brings a capital letter that was not one: lower case again.
        ("🄰", "a"),
        ("℡", "tel"),
        ("㌔", "きろ"),
        # Half-width kana with their voicing marks.
        ("ｺｰﾋｰ", "こーひー"),
        ("ｶﾞﾊﾟ", "がぱ"),
        # The range of katakana that have a hiragana: small a to small ke.
        ("ァ\u30f6", "ぁ\u3096"),
        ("ヴァイオリン", "ゔぁいおりん"),
        # Past it nothing changes: va, middle dot, prolonged sound mark.
        ("\u30f7・ー", "\u30f7・ー"),
        # A voicing mark on its own is composed.
        ("か\u3099", "が"),
        # No folding of sharp s, accents or punctuation.
        ("straße", "straße"),
        ("Café", "café"),
        ("青嶺", "青嶺"),
        ("", ""),
    ],
)
def test_fold(text: str, folded: str) -> None:
    assert fold(text) == folded


@pytest.mark.parametrize("space", [" ", "\t\n", "\u3000", "\u00a0", "\u2028", "\u0085", "\u200a"])
def test_white_space_around_is_trimmed(space: str) -> None:
    assert fold(f"{space}a b{space}") == "a b"


@pytest.mark.parametrize("kept", ["\x1c", "\x1f", "\u200b", "\ufeff"])
def test_what_unicode_does_not_call_white_space_is_not_trimmed(kept: str) -> None:
    assert fold(f"{kept}a{kept}") == f"{kept}a{kept}"


def test_each_character_is_lowered_without_its_neighbours() -> None:
    word = "ΣΑΣ"
    assert word.lower() == "σας", "Python's own rule for a final sigma, which does not apply"
    assert fold(word) == "σασ"


@given(st.text())
def test_kana_and_widths_make_no_difference(text: str) -> None:
    hiragana = unicodedata.normalize("NFKC", text)
    katakana = "".join(
        chr(ord(char) + 0x60) if "ぁ" <= char <= "\u3096" else char for char in hiragana
    )
    assert fold(katakana) == fold(hiragana)
