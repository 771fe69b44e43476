"""Strict JSON for files that people write by hand: every fault, each with its path.

msgspec refuses what the formats refuse (floats for integers, NaN, lone surrogates, unknown
fields) but stops at the first fault and does not see repeated keys, nor that `-0` is no integer
and that an integer of many hundred digits is no number. So a text that it accepts is read once
more for those, and one that it refuses is walked for all that is wrong with it.
"""

from __future__ import annotations

import json
import math
import re
import sys
import types
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct, UnsetType
from msgspec.structs import fields

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Unicode's White_Space property. `str.strip()` also takes U+001C to U+001F, which are not.
WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680"
    + "".join(map(chr, range(0x2000, 0x200B)))
    + ("\u2028\u2029\u202f\u205f\u3000")
)

_BLANKLESS = r"[^\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
#: A string with at least one character that is not white space.
NonBlank = Annotated[str, Meta(pattern=_BLANKLESS, description="a string that is not blank")]

MAX_DEPTH = 127
_MINUS_ZERO = "-0"
_STRINGS_AND_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.S)
_PLAIN = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}

T = TypeVar("T")


class Fault(Struct, frozen=True):
    """One thing wrong with a text: `path` like `options.limit` (empty: the whole), and why."""

    path: str
    wording: str

    def __str__(self) -> str:
        return f"{self.path}: {self.wording}" if self.path else self.wording


class FaultsError(Exception):
    """A text that is not what it should be; `faults` has at least one entry."""

    def __init__(self, faults: list[Fault], value: Any = None) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults
        #: The parsed JSON, if it could be parsed at all.
        self.value = value


def decode(text: str, decoder: msgspec.json.Decoder[T]) -> T:
    """Parse one JSON text into the decoder's type, or raise FaultsError with all its faults."""
    if _too_deep(text):
        raise FaultsError([Fault("", f"nested more than {MAX_DEPTH} levels deep")])
    try:
        value = decoder.decode(text)
    except msgspec.ValidationError as error:
        raw, faults = _walk(text, decoder.type)
        raise FaultsError(faults or [Fault("", str(error))], raw) from None
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise FaultsError([Fault("", _malformed(str(error)))]) from None
    raw, faults, has_minus_zero = _read_again(text)
    if has_minus_zero:
        faults += _faults(raw, decoder.type, "")
    if faults:
        raise FaultsError(faults, value)
    return value


def _walk(text: str, expected: Any) -> tuple[Any, list[Fault]]:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        return None, [Fault("", _malformed(str(error)))]
    raw, faults, _ = _read_again(text)
    return raw, [*_faults(raw, expected, ""), *faults]


def _malformed(reason: str) -> str:
    """Msgspec's reason in this project's words, without its Python-minded prefix."""
    if "out of range" in reason:
        return "a number is out of range"
    return "malformed JSON: " + reason.removeprefix("JSON is malformed: ").lower()


def _too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _STRINGS_AND_BRACKETS.findall(text):
        if token in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif token in "]}":
            depth -= 1
    return False


def _read_again(text: str) -> tuple[Any, list[Fault], bool]:
    """The value of a well-formed text with `-0` as a float, what msgspec does not see, and
    whether there was a `-0`.
    """
    found: list[Fault] = []
    minus_zeros: list[str] = []

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        members: dict[str, object] = {}
        for key, value in items:
            if key in members:
                found.append(Fault(key, "this key is given twice in one object"))
            members[key] = value
        return members

    def integer(digits: str) -> float:
        if digits == _MINUS_ZERO:
            minus_zeros.append(digits)
            return -0.0
        if len(digits) <= sys.float_info.max_10_exp:
            return int(digits)
        number = float(digits)
        if not math.isfinite(number):
            found.append(Fault("", "a number is out of range"))
        return number

    value = json.loads(text, object_pairs_hook=pairs, parse_int=integer)
    return value, found, bool(minus_zeros)


def _faults(value: object, expected: Any, path: str) -> Iterator[Fault]:
    """Walk `value` against a type, as deep as it goes, one fault per place."""
    origin, args = get_origin(expected), get_args(expected)
    if origin is Union or origin is types.UnionType:
        if value is None and types.NoneType in args:
            return
        (expected,) = (arg for arg in args if arg not in (types.NoneType, UnsetType))
        origin, args = get_origin(expected), get_args(expected)
    if isinstance(expected, type) and issubclass(expected, Struct):
        yield from _object_faults(value, expected, path)
    elif origin in (list, tuple):
        if not isinstance(value, list):
            yield Fault(path, f"expected an array, got {_kind(value)}")
            return
        for index, entry in enumerate(value):
            yield from _faults(entry, args[0], f"{path}[{index}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield Fault(path, f"expected an object, got {_kind(value)}")
            return
        for key, entry in value.items():
            yield from _faults(entry, args[1], f"{path}.{key}" if path else key)
    else:
        try:
            msgspec.convert(value, expected)
        except msgspec.ValidationError:
            yield Fault(path, f"expected {_wanted(expected)}, got {_kind(value)}")


def _object_faults(value: object, expected: type[Struct], path: str) -> Iterator[Fault]:
    if not isinstance(value, dict):
        yield Fault(path, f"expected an object, got {_kind(value)}")
        return
    known = {field.encode_name: field for field in fields(expected)}
    prefix = f"{path}." if path else ""
    for name, field in known.items():
        if name in value:
            yield from _faults(value[name], field.type, prefix + name)
        elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
            yield Fault(prefix + name, "required, but missing")
    for name in value:
        if name not in known:
            yield Fault(prefix + name, f"unknown field (known: {', '.join(known)})")


def _wanted(expected: Any) -> str:
    if get_origin(expected) is Annotated:
        base, *metas = get_args(expected)
        for meta in metas:
            if isinstance(meta, Meta) and meta.description:
                return meta.description
        expected = base
    choices = get_args(expected)
    if choices:
        return " or ".join(map(json.dumps, choices))
    return _PLAIN.get(expected, "another type")


def _kind(value: object) -> str:
    """How a message names a value: never a string's text, which may be long."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        shown = json.dumps(value)
        return shown if len(shown) <= 24 and math.isfinite(value) else "a number that long"
    if isinstance(value, str):
        return "a blank string" if not value.strip(WHITE_SPACE) else "a string"
    return "an array" if isinstance(value, list) else "an object"
