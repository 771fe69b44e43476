"""Where the server is and with what credentials: flag, env file, environment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .errors import InputError
from .strict import WHITE_SPACE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEFAULT_ADDRESS = "127.0.0.1:8248"
#: The keys of an env file that count.
ENV_KEYS = ("TAGURU_ADDR", "TAGURU_API_TOKEN", "TAGURU_API_TOKENS")

_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNSPECIFIED = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
#: HOST:PORT where the host can be nothing else: in numbers, dotted or this machine.
_ADDRESS = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+|\[[\da-f:.]+\]):\d{1,5}", re.ASCII | re.I)
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f\\<>^`{|}\"]")


@dataclass(frozen=True)
class Target:
    """A server's base URL without credentials, and who named it."""

    #: `scheme://host[:port][/path]`, no trailing slash.
    base: str
    #: `scheme://host[:port]`, without the scheme's own port: the form that is shown and recorded.
    masked: str
    #: For messages: a flag, an ini option, a variable, `default` or a fixture.
    origin: str


@dataclass(frozen=True)
class Token:
    """A bearer token that does not show itself."""

    value: str = field(repr=False)


def read_env_file(file: Path, shown: str) -> dict[str, str]:
    """The `KEY=VALUE` lines of an env file that count; the last of repeated keys wins.

    Raises InputError, naming every line without `=`.
    """
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{shown}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{shown}: not UTF-8") from None
    found: dict[str, str] = {}
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip(WHITE_SPACE)
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals:
            # The line itself is not shown: it may be a token that lost its key.
            problems.append(f"{shown}: line {number}: expected KEY=VALUE")
        elif key.strip(WHITE_SPACE) in ENV_KEYS:
            found[key.strip(WHITE_SPACE)] = value.strip(WHITE_SPACE)
    if problems:
        raise InputError(*problems)
    return found


def find_target(url: str | None, origin: str, variables: Mapping[str, str]) -> Target:
    """The server: an explicit URL (named by `origin`), else TAGURU_ADDR, else the default.

    Raises InputError; the message never repeats what was given, which may hold credentials.
    """
    if url is not None:
        return parse_url(url, origin)
    if "TAGURU_ADDR" not in variables:
        return parse_url(f"http://{DEFAULT_ADDRESS}", "default")
    address = variables["TAGURU_ADDR"].strip(WHITE_SPACE)
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and int(port) == 0:
        raise InputError("TAGURU_ADDR: port 0 names no server; give the port it listens on")
    if "/" in address:
        raise InputError("TAGURU_ADDR: expected HOST:PORT")
    host = _UNSPECIFIED.get(host, host)
    return parse_url(f"http://{host}:{port}" if host else f"http://{address}", "TAGURU_ADDR")


def parse_url(url: str, origin: str) -> Target:
    """Check and take apart a base URL. Raises InputError without repeating it."""
    text = url.strip(WHITE_SPACE)
    if not text:
        raise InputError(f"{origin}: the URL is blank")
    try:
        parts = urlsplit(text)
        port = parts.port
        host = parts.hostname
    except ValueError:
        raise InputError(f"{origin}: not a URL; expected http://HOST:PORT") from None
    if "@" in parts.netloc:
        raise InputError(
            f"{origin}: credentials do not belong in the URL; set TAGURU_API_TOKEN instead"
        )
    if parts.scheme not in _DEFAULT_PORTS:
        # Nothing else is repeated: only an address by its form cannot be a secret put here by
        # mistake, as `name:token` would be.
        wanted = f"http://{text}" if _ADDRESS.fullmatch(text) else "http://HOST:PORT"
        raise InputError(f"{origin}: the URL's scheme must be http or https; write {wanted}")
    if not host or _UNPRINTABLE.search(text):
        raise InputError(f"{origin}: not a URL; expected http://HOST:PORT")
    if parts.query or parts.fragment or text.endswith(("?", "#")):
        raise InputError(f"{origin}: a base URL has no query and no fragment")
    if port == 0:
        raise InputError(f"{origin}: port 0 names no server; give the port it listens on")
    shown_host = f"[{host}]" if ":" in host else host
    shown_port = "" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}"
    masked = f"{parts.scheme}://{shown_host}{shown_port}"
    return Target(base=masked + parts.path.rstrip("/"), masked=masked, origin=origin)


def find_token(variables: Mapping[str, str]) -> Token | None:
    """The bearer token: TAGURU_API_TOKEN, else the first usable `name:token` of the list."""
    single = variables.get("TAGURU_API_TOKEN", "").strip(WHITE_SPACE)
    if single:
        return Token(single)
    for entry in variables.get("TAGURU_API_TOKENS", "").split(","):
        token = entry.partition(":")[2].strip(WHITE_SPACE)
        if token:
            return Token(token)
    return None


def check_context(name: str, origin: str) -> str:
    """A context's name as given, or InputError if no request could name it."""
    if not name.strip(WHITE_SPACE):
        raise InputError(f"{origin}: the context is blank")
    if name in (".", ".."):
        raise InputError(f"{origin}: {name!r} cannot be a segment of a URL, so it names no context")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{origin}: the context is not valid Unicode text") from None
    return name
