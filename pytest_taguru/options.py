"""The flags and ini options, declared; `settings.py` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

EVAL = "taguru_eval"


def add_options(parser: pytest.Parser) -> None:
    """Declare everything in one group of `--help`."""
    group = parser.getgroup("taguru", "retrieval quality gate (taguru)")
    group.addoption(
        "--taguru-eval",
        action="append",
        metavar="FILE",
        help="Run the cases of this eval.jsonl as test items (write it as --taguru-eval=FILE).",
    )

    def flag(name: str, metavar: str, text: str) -> None:
        group.addoption(f"--taguru-{name}", metavar=metavar, help=text)

    def switch(name: str, text: str) -> None:
        group.addoption(f"--taguru-{name}", action="store_true", default=None, help=text)

    flag("context", "NAME", "The context to evaluate; else the dataset's default_target.context.")
    flag("url", "URL", "The server; else TAGURU_ADDR, else http://127.0.0.1:8248.")
    flag("config", "FILE", "An env file with TAGURU_ADDR and tokens; else TAGURU_CONFIG.")
    flag("out", "FILE", "Where to write the artifact (default: evaluation.json).")
    flag("thresholds", "FILE", "Bounds to judge; a violated one makes exit status 3.")
    switch("assembly", "Ask for evidence packages instead of plain passage searches.")
    flag("max-items", "N", "Budget: at most N hits or evidence items a case.")
    flag("max-bytes", "N", "Budget: at most N bytes a case.")
    flag("max-tokens", "N", "Budget: at most N estimated tokens a case.")
    flag("rerank", "MODEL", "Ask the server to rerank with this model (with --taguru-assembly).")
    flag("concurrency", "N", "Cases in flight (default: 8; 1 if a latency is bounded).")
    switch("only", "Collect nothing but the dataset.")
    switch("strict", "An unmet expectation or a failed call is a violation too.")
    flag("baseline", "FILE", "An earlier artifact to compare the run with.")

    def repeatable(name: str, metavar: str, text: str) -> None:
        group.addoption(f"--taguru-{name}", action="append", default=[], metavar=metavar, help=text)

    repeatable(
        "baseline-fail-on",
        "KIND",
        "Violated if the baseline has any: regressed, removed or warnings (repeatable).",
    )
    repeatable(
        "max-drop",
        "METRIC=VALUE",
        "Violated if the metric's mean over the paired cases drops by more (repeatable).",
    )
    flag("record", "FILE", "Write every exchange to FILE. It will hold text of the corpus.")
    flag("replay", "FILE", "Answer from a recording instead of a server.")

    parser.addini("taguru_context", "The context to evaluate.", default=None)
    parser.addini("taguru_url", "The server's base URL.", default=None)
    parser.addini("taguru_config", "An env file, relative to this ini file.", default=None)
    parser.addini("taguru_out", "The artifact, relative to this ini file.", default=None)
    parser.addini("taguru_thresholds", "Bounds, relative to this ini file.", default=None)
    parser.addini("taguru_baseline", "An earlier artifact, relative to this file.", default=None)
    parser.addini("taguru_assembly", "Ask for evidence packages.", type="bool", default=False)
    parser.addini("taguru_rerank", "The rerank model.", default=None)
    parser.addini("taguru_strict", "Unmet is violated.", type="bool", default=False)
    for name, text in (
        ("taguru_max_items", "Budget: hits or items a case."),
        ("taguru_max_bytes", "Budget: bytes a case."),
        ("taguru_max_tokens", "Budget: estimated tokens a case."),
        ("taguru_concurrency", "Cases in flight."),
    ):
        parser.addini(name, text, type="int", default=None)
    parser.addini(
        "taguru_junit_properties",
        "Write properties into JUnit XML (default: true).",
        type="bool",
        default=True,
    )
