"""JSON Schemas of the files that people write, generated from the types that read them.

`python -m pytest_taguru.engine.schemas` rewrites the published files. A schema is for editors
and for programs that write datasets: it cannot say all that the reader checks (repeated keys,
`1.0` where an integer is due, unique case ids, min ≤ max), so the reader has the last word.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .dataset import Case, Header
from .metrics import CASE_METRICS, CATALOGUE
from .thresholds import Thresholds

if TYPE_CHECKING:
    from collections.abc import Iterator

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Where the published files lie.
DIRECTORY = Path(__file__).parent.parent / "schemas"

_ROOTS = {
    "eval-header": (
        Header,
        "eval.jsonl, header",
        "The first non-blank line of eval.jsonl.",
    ),
    "eval-case": (Case, "eval.jsonl, case", "Every further line of eval.jsonl: one question."),
    "thresholds": (
        Thresholds,
        "thresholds.json",
        "Bounds on the metrics of a run, and on those of single cases.",
    ),
}

#: What each property is for, where an editor shows it.
_DESCRIPTIONS = {
    "Header.taguru_eval": "The version of the format.",
    "Header.name": "A name for the dataset; shown, never compared.",
    "Header.default_target": "Free; its `context`, a string, is used if no context is given.",
    "Case.case_id": "Unique in the file, compared exactly; not blank.",
    "Case.query": "The question as it is searched for; not blank.",
    "Case.cues": "What to resolve in the graph; without any, the query.",
    "Case.expected_sources": "Sources that should be among the hits.",
    "Case.expected_concepts": "Concepts that the cues should resolve to.",
    "Case.expected_labels": "Labels that the cues should resolve to.",
    "Case.expected_associations": "Edges that the graph should hold.",
    "Case.expected_citations": "Locators that should be served, and should hold.",
    "Case.options": "What the passage search is asked for, beside the query.",
    "ExpectedSource.source": "The source's name; not blank.",
    "ExpectedSource.paragraphs": "Paragraphs, any of which will do; none: the whole source.",
    "ExpectedSource.relevance": "The grade for nDCG; 0 declares a source that is no evidence.",
    "ExpectedAssociation.subject": "A cue that should resolve to the subject; not blank.",
    "ExpectedAssociation.label": "A cue that should resolve to the label; not blank.",
    "ExpectedAssociation.object": "A cue that should resolve to the object; not blank.",
    "ExpectedCitation.source": "The cited source; not blank.",
    "ExpectedCitation.paragraph": "The cited paragraph, counted from 0.",
    "ExpectedCitation.section": "Its section; null: outside every section; absent: not checked.",
    "ExpectedCitation.quote": "Words that the paragraph should hold; not blank.",
    "Options.limit": "How many hits to ask for; 10 without.",
    "Options.floor": "The least similarity of a semantic hit, from 0 to 1.",
    "Options.tags": "Only sources with these tags.",
    "Options.since": "Only sources of this date or later, in seconds since 1970.",
    "Options.until": "Only sources of this date or earlier, in seconds since 1970.",
    "Thresholds.taguru_evaluate_thresholds": "The version of the format.",
    "Thresholds.aggregate": "Bounds on the run's metrics, by name.",
    "Thresholds.cases": "Bounds on single cases.",
    "Thresholds.allow_unstable_corpus": "Whether the corpus may change during the run.",
    "CaseBounds.default": "Bounds on every case, by metric.",
    "CaseBounds.overrides": "Bounds on one case, by case id and metric.",
    "Bound.min": "The least allowed value.",
    "Bound.max": "The greatest allowed value.",
}


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema by its name."""
    return {
        name: {"$schema": DIALECT, "title": title, "description": description, **_schema(root)}
        for name, (root, title, description) in _ROOTS.items()
    }


def rendered() -> Iterator[tuple[Path, str]]:
    """The published files: where each lies and what it should hold."""
    for name, schema in schemas().items():
        text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        yield DIRECTORY / f"{name}.schema.json", text


def publish() -> None:
    """Rewrite the published files."""
    DIRECTORY.mkdir(exist_ok=True)
    for file, text in rendered():
        file.write_text(text, "utf-8")


def _schema(root: type) -> dict[str, Any]:
    _, definitions = msgspec.json.schema_components([root], ref_template="#/$defs/{name}")
    for name, definition in definitions.items():
        for field, schema in definition["properties"].items():
            schema["description"] = _DESCRIPTIONS[f"{name}.{field}"]
    _say_what_types_cannot(definitions)
    own = definitions.pop(root.__name__)
    del own["title"], own["description"]
    return {**own, "$defs": definitions} if definitions else own


def _say_what_types_cannot(definitions: dict[str, Any]) -> None:
    if "Thresholds" not in definitions:
        return
    definitions["Thresholds"]["properties"]["aggregate"]["propertyNames"] = {
        "enum": list(CATALOGUE)
    }
    metrics = {"propertyNames": {"enum": list(CASE_METRICS)}}
    bounds = definitions["CaseBounds"]["properties"]
    bounds["default"].update(metrics)
    bounds["overrides"]["additionalProperties"].update(metrics)
    definitions["Bound"]["anyOf"] = [
        {"properties": {end: {"type": "number"}}, "required": [end]} for end in ("min", "max")
    ]


if __name__ == "__main__":
    publish()
