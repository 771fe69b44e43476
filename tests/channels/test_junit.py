"""JUnit XML: cases, suite, and the gate as testcases; valid whatever comes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.channels.shore import CASES, RECALL_OF_1, Shore, busy
from tests.support.replay_server import Answer, Recording, replay
from tests.support.runs import GOLDEN

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from tests.support.replay_server import Request
    from tests.support.runs import Run, Workspace

FAMILIES = ("xunit1", "xunit2", "legacy")
WAYS = [(), ("-n", "2")]
BOTH = pytest.mark.parametrize("way", WAYS, ids=["serial", "xdist"])


@dataclass(frozen=True)
class Testcase:
    """A testcase as a dashboard reads it."""

    classname: str
    name: str
    outcome: str
    text: str
    properties: dict[str, str]
    file: str | None
    line: str | None

    __test__ = False


class Report:
    """A JUnit XML file."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "junit.xml"
        self.root = ElementTree.parse(self.file).getroot()
        suites = list(self.root.iter("testsuite"))
        assert len(suites) == 1
        self.suite = suites[0]
        self.cases = [self._testcase(element) for element in self.suite.iter("testcase")]

    @staticmethod
    def _testcase(element: Element) -> Testcase:
        results = [child for child in element if child.tag in ("failure", "error", "skipped")]
        assert len(results) <= 1
        return Testcase(
            classname=element.attrib["classname"],
            name=element.attrib["name"],
            outcome=results[0].tag if results else "passed",
            text=(results[0].text or "") if results else "",
            properties={
                one.attrib["name"]: one.attrib["value"] for one in element.iter("property")
            },
            file=element.get("file"),
            line=element.get("line"),
        )

    @property
    def properties(self) -> dict[str, str]:
        """Those of the suite."""
        parent = self.suite.find("properties")
        pairs = parent if parent is not None else ()
        return {one.attrib["name"]: one.attrib["value"] for one in pairs}

    def outcomes(self, classname: str) -> dict[str, str]:
        """Outcomes by name of one class."""
        return {case.name: case.outcome for case in self.cases if case.classname == classname}

    def check_counts(self) -> None:
        """The totals are those of the testcases, and no two of these have the same name."""
        counts = Counter(case.outcome for case in self.cases)
        shown = {name: int(self.suite.attrib[name]) for name in ("failures", "errors", "skipped")}
        assert shown == {
            "failures": counts["failure"],
            "errors": counts["error"],
            "skipped": counts["skipped"],
        }
        assert int(self.suite.attrib["tests"]) == len(self.cases)
        names = Counter((case.classname, case.name) for case in self.cases)
        assert set(names.values()) == {1}


def run(shore: Shore, *arguments: str, family: str = "xunit2") -> tuple[Run, Report]:
    ended = shore.run("--junitxml=junit.xml", "-o", f"junit_family={family}", *arguments)
    report = Report(shore.directory)
    report.check_counts()
    return ended, report


@BOTH
def test_cases_and_suite_carry_properties(way: tuple[str, ...], workspace: Workspace) -> None:
    shore = Shore(workspace=workspace, missing=["kelp"])
    ended, report = run(shore, *way)
    assert ended.status == 3, ended.shown
    cases = {case.name: case for case in report.cases if case.classname == "eval.jsonl"}
    assert {name: case.outcome for name, case in cases.items()} == {
        "limpet": "passed",
        "mussel": "passed",
        "kelp": "failure",
        "urchin": "passed",
    }
    assert cases["limpet"].properties.pop("latency.passage_ms").isdecimal()
    assert cases["limpet"].properties == {
        "taguru.case_id": "limpet",
        "recall.recall_at_k": "1",
        "recall.mrr": "1",
        "recall.ndcg": "1",
        "diversity.sources": "1",
    }
    assert cases["kelp"].properties["recall.recall_at_k"] == "0"
    assert cases["kelp"].text.startswith("kelp: recall.recall_at_k 0.000000 < min 1.000000 (")
    written = ended.artifact()
    expected = {
        "taguru.context": "shore",
        "taguru.eval": "eval.jsonl",
        "taguru.mode": "baseline",
        "taguru.cases": "4/4",
        "taguru.corpus_revision": "15/9/0",
        "taguru.corpus_stable": "true",
        "taguru.thresholds_sha256": written["thresholds"]["sha256"],
        "taguru.url": written["inputs"]["url"],
        "recall.recall_at_k": "0.750000",
        "passage.failure_rate": "0.000000",
        "diversity.sources": "0.750000",
    }
    assert {name: report.properties.get(name) for name in expected} == expected
    assert "citations.recall" not in report.properties  # nothing was measured


@BOTH
def test_each_bound_on_the_whole_set_is_a_testcase(
    way: tuple[str, ...], workspace: Workspace
) -> None:
    bounds = {
        "diversity.sources": {"min": 2},
        "passage.failure_rate": {"max": 0},
        "citations.recall": {"min": 0.5},
    }
    thresholds = {"aggregate": bounds, "cases": RECALL_OF_1}
    shore = Shore(workspace=workspace, thresholds=thresholds)
    ended, report = run(shore, *way, "--taguru-strict")
    assert ended.status == 3, ended.shown
    assert report.outcomes("eval.jsonl.gate") == {
        "citations.recall": "failure",
        "diversity.sources": "failure",
        "passage.failure_rate": "passed",
        "corpus.stable": "passed",
        "cases": "passed",
        "strict": "passed",
    }
    texts = {case.name: case.text for case in report.cases}
    assert texts["diversity.sources"] == "diversity.sources 1.000000 < min 2.000000"
    assert texts["citations.recall"] == "citations.recall no samples for this metric (n=0)"
    ended, report = run(shore, *way, "-k", "kelp")
    assert ended.status == 0, ended.shown
    assert report.outcomes("eval.jsonl.gate") == {
        "citations.recall": "skipped",
        "diversity.sources": "skipped",
        "passage.failure_rate": "skipped",
        "corpus.stable": "passed",
        "cases": "passed",
    }


XFAIL = (
    "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n    for item in items:\n"
    "        item.add_marker(pytest.mark.xfail)\n"
)


def drifting(request: Request) -> Answer | None:
    """Every reading of the context is another revision."""
    if request.path != "/contexts/shore":
        return None
    drifting.revision += 1  # type: ignore[attr-defined]
    counters = {"graph": drifting.revision, "passages": 9, "config": 0}  # type: ignore[attr-defined]
    usage = {"last_write_epoch": 1796135789}
    return Answer(body=json.dumps({"result": {"usage": usage, "revision": counters}}))


drifting.revision = 0  # type: ignore[attr-defined]

RED: dict[str, tuple[dict[str, Any], str, tuple[str, ...], int]] = {
    "a case bound under xfail": ({"missing": ["kelp"]}, XFAIL, (), 3),
    "cut short under xfail": (
        {"missing": ["limpet"]},
        XFAIL + "\n\n@pytest.fixture(autouse=True)\ndef stop(request):\n"
        "    yield\n    if request.node.name == 'kelp':\n"
        "        request.session.shouldfail = 'enough'\n",
        (),
        3,
    ),
    "strict": ({"thresholds": None, "hook": busy}, "", ("--taguru-strict",), 3),
    "an unstable corpus": ({"hook": drifting}, "", (), 3),
    "no server": ({}, "", ("--taguru-url=http://127.0.0.1:9",), 1),
    "the artifact cannot be written": (
        {},
        "def pytest_taguru_artifact(artifact):\n    artifact['metrics'] = {}\n",
        (),
        1,
    ),
}


@pytest.mark.parametrize("reason", RED)
def test_a_report_is_never_green_when_the_gate_is_not(reason: str, workspace: Workspace) -> None:
    members, conftest, flags, status = RED[reason]
    workspace.write("conftest.py", conftest)
    ended, report = run(Shore(workspace=workspace, **members), *flags)
    assert ended.status == status, ended.shown
    gate = report.outcomes("eval.jsonl.gate")
    assert "failure" in gate.values()


def test_file_and_line_where_the_family_has_them(workspace: Workspace) -> None:
    shore = Shore(workspace=workspace)
    for family in ("xunit1", "legacy"):
        _, report = run(shore, family=family)
        places = {case.name: (case.file, case.line) for case in report.cases}
        # The header is line 1, and pytest counts from 0.
        assert [places[name] for name in CASES] == [
            ("eval.jsonl", "1"),
            ("eval.jsonl", "2"),
            ("eval.jsonl", "3"),
            ("eval.jsonl", "4"),
        ]
    _, report = run(shore)
    assert {(case.file, case.line) for case in report.cases} == {(None, None)}


@BOTH
def test_valid_for_strict_readers_without_properties(
    way: tuple[str, ...], workspace: Workspace
) -> None:
    xmlschema = pytest.importorskip("xmlschema")
    schema = xmlschema.XMLSchema(Path(__file__).with_name("xunit2.xsd"))
    shore = Shore(workspace=workspace, missing=["kelp"], hook=hostile_for("urchin"))
    ended, report = run(shore, *way, "-o", "taguru_junit_properties=false")
    assert ended.status == 3, ended.shown
    schema.validate(report.file)
    assert report.properties == {}
    assert {case.outcome for case in report.cases} == {"passed", "failure", "skipped"}
    _, report = run(shore, *way)
    assert not schema.is_valid(report.file)  # properties of a testcase are beyond that schema


# -- whatever the server or the dataset holds ----------------------------------------------------

HOSTILE = "\x00\x07\x1b ]]> <&\"' \ud800 \ufffe 🦀 " + "y" * 1_000_000
HOSTILE_IDS = ("]]>", "<a&b>", "bell\x07", "🦀", "nul\x00", "a::b[c]", "\ufffe\uffff x", "plain")


def hostile_for(*queries: str) -> Any:
    def hook(request: Request) -> Answer | None:
        if request.path.endswith("/sources/search") and request.body["query"] in queries:
            return Answer(status=500, body=json.dumps({"error": HOSTILE}))
        return None

    return hook


@BOTH
@pytest.mark.parametrize("family", FAMILIES)
def test_the_file_stays_valid(family: str, way: tuple[str, ...], workspace: Workspace) -> None:
    shore = Shore(
        workspace=workspace,
        cases=HOSTILE_IDS,
        missing=HOSTILE_IDS[::2],
        hook=hostile_for(*HOSTILE_IDS[1:4]),
    )
    ended, report = run(shore, *way, "--taguru-strict", family=family)
    assert ended.status == 3, ended.shown
    assert len(report.file.read_bytes()) < 50_000
    cases = [case for case in report.cases if case.classname == "eval.jsonl"]
    assert len(cases) == len(HOSTILE_IDS)
    ids = {case.name: case.properties["taguru.case_id"] for case in cases}
    assert ids["\\x5d\\x5d>"] == "]]>"
    assert ids["a\\x3a\\x3ab\\x5bc\\x5d"] == "a::b[c]"
    assert ids["bell\\x07"] == "bell#x07"  # XML has no such character: so pytest writes it
    assert "strict: passage call failed" in next(one.text for one in cases if one.name == "<a&b>")


@BOTH
def test_a_golden_run_reports_its_cases(way: tuple[str, ...], workspace: Workspace) -> None:
    """A real corpus, Japanese throughout; both ways give the same report."""
    workspace.corpus("sake")
    golden = GOLDEN / "sake" / "runs" / "thresholds-fail"
    with replay(Recording.load(golden / "exchanges.jsonl")) as server:
        ended = workspace.evaluate(
            server.url, "--taguru-thresholds=thresholds-fail.json", "--junitxml=junit.xml", *way
        )
    assert ended.status == 3, ended.shown
    report = Report(workspace.directory)
    report.check_counts()
    expected = json.loads((golden / "evaluation.json").read_text("utf-8"))
    violated = {
        one["metric"] for one in expected["thresholds"]["violations"] if "case_id" not in one
    }
    gate = report.outcomes("eval.jsonl.gate")
    assert {name for name, outcome in gate.items() if outcome == "failure"} == violated | {"cases"}
    failed = {one["case_id"] for one in expected["thresholds"]["violations"] if "case_id" in one}
    cases = {case.properties["taguru.case_id"]: case for case in report.cases if case.properties}
    assert {case_id for case_id, case in cases.items() if case.outcome == "failure"} == failed
    for one in expected["cases"]:
        if "recall" in one:
            value = float(cases[one["case_id"]].properties["recall.ndcg"])
            assert value == pytest.approx(one["recall"]["ndcg"], abs=1e-6)
    text = report.file.read_text("utf-8")
    assert "1897年" not in text.replace("'1897年に創業'", "")  # no text of the corpus
