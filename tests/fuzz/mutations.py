"""Texts made wrong: bytes, tokens and members that someone's editor or program might produce."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Numbers, strings, literals and structures that a reader may take for something else.
TOKENS = (
    *("-0", "0", "-0.0", "0.0", "1e0", "1.0", "-1", "00", "01", "+1", ".5", "5.", "1e", "0x1"),
    *("1e400", "-1e400", "1e-400", "1e308", "1" * 400, "-" + "9" * 309, "0." + "1" * 500),
    *("4294967295", "4294967296", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551615", "18446744073709551616", "1e19", "1.00000001", "1.0000001", "1001"),
    *("NaN", "Infinity", "-Infinity", "nan", "true", "false", "null", "True", "None", "undefined"),
    *('""', '" "', '"a"', '"1"', '"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"'),
    *('"\\u00a0"', '"\\u2028"', '"\u2028"', '"\x85"', '"\\u001c"', '"\x1c"', '"\t"', '"\x7f"'),
    *('"\\x41"', '"\\/"', '"\\u12"', "'a'", '"\ufeff"', '"\\u200b"', '"' + "x" * 5000 + '"'),
    *("[]", "{}", "[1]", '["a"]', "[null]", '[""]', "[[]]", '["a",]', "[,]", "[1 1]", '{"a":1,}'),
    *('{"a":1,"a":2}', '{"":0}', '{"a"}', "{a:1}", '{"source":"a"}', '[["a",0]]', '["a","b","c"]'),
    *("[" * 126 + "]" * 126, "[" * 127 + "]" * 127, "[" * 200, "{" * 200, "[" * 3000 + "]" * 3000),
    *(
        "/* c */ 1",
        "// c",
        "1 // c",
        "# c",
        "\ufeff1",
        "\xa01",
        "1\u2028",
        "\x0c1",
        "\x0b1",
        "1\x00",
    ),
)
SNIPPETS = (
    *(token.encode("utf-8", "surrogatepass") for token in TOKENS),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\x80",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\x00",
    ),
    *(b"\xc2\xa0", b"\xe2\x80\xa8", b"\xe3\x80\x80", b"\xc2\x85", b"\x1c", b"\x0b", b"\x0c", b"\r"),
    *(b"\n", b"\r\n", b"\n\n", b",", b":", b'"', b"\\", b"{", b"}", b"[", b"]", b" ", b"\t", b"="),
)
_TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null|[\[\]{}:,]')
_STRINGS = tuple(one for one in SNIPPETS if one[:1] == b'"' == one[-1:])
_NUMBERS = tuple(one for one in SNIPPETS if re.fullmatch(rb"-?[0-9][0-9.eE+-]*", one))
_snippets = st.sampled_from(SNIPPETS)
_spaces = st.sampled_from(
    [b" ", b"\n", b"\r\n", b"\t", b"\xc2\xa0", b"\xe2\x80\xa8", b"\x0c", b"\xef\xbb\xbf"]
)


@st.composite
def mutants(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds with a change, or with some."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 4]))):
        text = draw(_changes(text))
    return text


@st.composite
def _changes(draw: st.DrawFn, text: bytes) -> bytes:
    tokens = [match.span() for match in _TOKEN.finditer(text)]
    values = [span for span in tokens if text[slice(*span)] not in b"[]{}:,"]
    kinds = ["like", "like", "value", "value", "space", "space", "token", "repeat", "swap"]
    kind = draw(st.sampled_from([*(kinds if values else ()), "insert", "cut"]))
    if kind in ("like", "value", "swap"):
        start, end = draw(st.sampled_from(values))
        if kind == "swap":
            other, stop = draw(st.sampled_from(values))
            new = text[other:stop]
        elif kind == "value":
            new = draw(_snippets)
        else:
            new = draw(st.sampled_from(_STRINGS if text[start:end][:1] == b'"' else _NUMBERS))
        return text[:start] + new + text[end:]
    if kind in ("token", "repeat", "space"):
        start, end = draw(st.sampled_from(tokens))
        if kind == "token":
            return text[:start] + draw(_snippets) + text[end:]
        if kind == "space":
            return text[:start] + draw(_spaces) + text[start:]
        until = draw(st.sampled_from(tokens))[1]
        return text[:until] + text[start:until] + text[until:]
    place = draw(st.integers(0, len(text)))
    if kind == "cut":
        return text[:place] + text[place + draw(st.integers(1, 8)) :]
    return text[:place] + draw(_snippets) + text[place:]


@st.composite
def recordings(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A recording of which some answers say something else."""
    lines = [json.loads(line) for line in draw(st.sampled_from(seeds)).splitlines()]
    for _ in range(draw(st.integers(1, 6))):
        line = lines[draw(st.integers(0, len(lines) - 1))]
        response = draw(mutants([line.get("response", "").encode()]))
        line["response"] = response.decode("utf-8", "replace")
        line["status"] = draw(st.sampled_from([200, 200, 200, 404, 500, 0, -1, 301]))
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
