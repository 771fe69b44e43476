"""What fuzzing found, one small test for each; values are those of the original program."""

from __future__ import annotations

from pytest_taguru.engine.client import readable, segment


def test_messages_escape_only_what_a_path_must_not_hold() -> None:
    # Every printable ASCII character that names may hold, as the original's messages have it.
    name = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ é\0\x7f"
    assert readable(f"/contexts/{segment(name)}/citations") == (
        "/contexts/!%22%23$%25&'()*+,-.%2F:;%3C=%3E%3F@[%5C]^_%60%7B|%7D~%20%C3%A9%00%7F/citations"
    )


def test_messages_leave_a_query_as_it_was_sent() -> None:
    route = "/contexts/a%26b/sources?limit=1000&after=c%26d"
    assert readable(route) == "/contexts/a&b/sources?limit=1000&after=c%26d"
