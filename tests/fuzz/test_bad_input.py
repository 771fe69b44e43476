"""Files made wrong in every way: never a traceback, always a status, nothing written.

The readers of the engine are tried in this process, since they must raise InputError and nothing
else; some of the inputs go through whole processes. What the original program accepts and what it
refuses is compared too: it is asked about a server that is not there, so that 1 means that it
took the files and 2 that it did not. For more examples see `test_differential.py`.
"""

from __future__ import annotations

import io
import re
import subprocess
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from pytest_taguru.compare import main as compare_main
from pytest_taguru.engine.dataset import parse_dataset
from pytest_taguru.engine.errors import EvaluationError, InputError
from pytest_taguru.engine.recording import Replayer, load_recording
from pytest_taguru.engine.target import find_target, find_token, read_env_file
from pytest_taguru.engine.thresholds import load_gate
from tests.support.live import find_binary
from tests.support.runs import GOLDEN, Workspace, clean_environment

from .both import evaluate
from .budget import budget
from .mutations import SNIPPETS, mutants, recordings
from .strategies import Flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.runs import Launcher

#: A failing example is shown whole, long as it may be.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

T = TypeVar("T")

#: Nobody listens there.
NOWHERE = "http://127.0.0.1:9"
SECRET = "tok-5ecret-0123456789"

HEADERS = (
    b'{"taguru_eval": 1}',
    b'{"taguru_eval": 1, "name": "n", "default_target": {"context": "c", "port": 8248}}',
)
CASES = (
    b'{"case_id": "c", "query": "q"}',
    b'{"case_id": "c", "query": "q", "cues": ["a", ""], "expected_concepts": ["b"],'
    b' "expected_labels": ["l"], "options": {"limit": 10, "floor": 0.5, "tags": ["t"],'
    b' "since": 1, "until": 2}}',
    b'{"case_id": "c", "query": "q", "expected_sources": [{"source": "s", "paragraphs": [0, 1],'
    b' "relevance": 3}, {"source": "t"}], "expected_citations": [{"source": "s", "paragraph": 0,'
    b' "section": null, "quote": "x"}], "expected_associations": [{"subject": "a", "label": "b",'
    b' "object": "d"}]}',
    b'{"case_id": "c", "query": "q", "expected_labels": null, "expected_associations": null,'
    b' "expected_citations": [{"source": "s", "paragraph": 4294967295, "section": "x",'
    b' "quote": null}], "options": {"limit": null, "floor": null, "tags": null, "since": null}}',
)
DATASETS = (
    *(header + b"\n" + case + b"\n" for header in HEADERS for case in CASES),
    b"\n".join([HEADERS[0], CASES[1], CASES[2].replace(b'"c"', b'"d"', 1)]),
)
THRESHOLDS = (
    b'{"taguru_evaluate_thresholds": 1}',
    b'{"taguru_evaluate_thresholds": 1, "aggregate": {"recall.mrr": {"min": 0.5, "max": 1},'
    b' "latency.passage_ms": {"max": 1e3}}, "allow_unstable_corpus": true}',
    b'{"taguru_evaluate_thresholds": 1, "cases": {"default": {"recall.ndcg": {"min": 0,'
    b' "max": null}}, "overrides": {"c": {"citations.recall": {"max": 1}}}}}',
)
ENV_FILES = (
    b"# server\nTAGURU_ADDR=127.0.0.1:9\nTAGURU_API_TOKEN = " + SECRET.encode() + b"\n",
    b"TAGURU_ADDR=[::]:8248\r\nTAGURU_API_TOKENS=a:,b:" + SECRET.encode() + b"\nX=Y=Z\n",
    b"\xef\xbb\xbfTAGURU_ADDR=0.0.0.0:1\n\n  # note\nTAGURU_ADDR=host\n",
)
SAKE = GOLDEN / "sake"
ARTIFACTS = tuple(
    (GOLDEN / "compare" / pair / side).read_bytes()
    for pair, side in (
        ("minimal", "base.json"),
        ("mixed", "head.json"),
        ("thresholds", "head.json"),
    )
)
RECORDINGS = tuple(
    (SAKE / "runs" / run / "exchanges.jsonl").read_bytes() for run in ("baseline", "assembly")
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that all examples of a test use, one after the other."""
    with tempfile.TemporaryDirectory() as home:
        yield Path(home)


def refused(read: Callable[[], T]) -> tuple[T | None, tuple[str, ...]]:
    """What a reader brings, or the problems that it names; nothing else may come out of it."""
    try:
        found = read()
    except InputError as error:
        problems = error.problems
    else:
        return found, ()
    assert problems
    assert all(problem.strip() for problem in problems)
    return None, problems


# -- in process ------------------------------------------------------------------------------


@budget(1500)
@given(content=mutants(DATASETS))
def test_datasets(content: bytes) -> None:
    found, problems = refused(lambda: parse_dataset(content, "eval.jsonl"))
    assert all(problem.startswith("eval.jsonl: ") for problem in problems)
    assert len(problems) <= 21
    if found is not None:
        assert len({case.case_id for case in found.cases}) == len(found.lines) >= 1
        assert all(
            0 <= one.paragraph < 2**32
            for case in found.cases
            for one in case.expected_citations or ()
        )


@budget(1000)
@given(content=mutants(THRESHOLDS))
def test_thresholds(place: Path, content: bytes) -> None:
    file = place / "thresholds.json"
    file.write_bytes(content)
    gate, problems = refused(lambda: load_gate(file, "t.json", {"c"}))
    assert all(problem.startswith("t.json: ") for problem in problems)
    assert gate is None or gate.bounds_latency in (True, False)


@budget(1000)
@given(content=mutants(ENV_FILES))
def test_env_files(place: Path, content: bytes) -> None:
    file = place / "env"
    file.write_bytes(content)
    found, problems = refused(lambda: read_env_file(file, "env"))
    if found is not None:
        target, more = refused(lambda: find_target(None, "", found))
        problems += more
        assert target is None or re.match(r"http://[^/@?#\s]+", target.base)
        assert find_token(found) is None or SECRET not in repr(find_token(found))
    assert not any(SECRET in problem or "5ecret" in problem for problem in problems)


@budget(1000)
@given(
    url=st.lists(
        st.sampled_from(
            [
                *("http://", "https://", "HTTP://", "//", ":", "@", "/", "?", "#", "%", "[", "]"),
                *("user:5ecret@", "host", "127.0.0.1", "[::1]", "[::1%25eth0]", ":80", ":0"),
                *(
                    ":65535",
                    ":65536",
                    ":-1",
                    ":８０",
                    "ｈｏｓｔ",
                    "℀",
                    "日本",
                    "xn--",
                    "..",
                    " ",
                    "\\",
                ),
                *(one.decode("utf-8", "replace") for one in SNIPPETS if len(one) < 8),
            ]
        ),
        max_size=7,
    ).map("".join)
)
def test_urls(url: str) -> None:
    target, problems = refused(lambda: find_target(url, "--taguru-url", {}))
    assert not any("5ecret" in problem for problem in problems)
    if target is not None:
        assert "5ecret" not in target.base
        assert target.base.startswith(target.masked)
        assert not target.base.endswith("/")


@budget(300)
@given(content=st.one_of(recordings(RECORDINGS), mutants(RECORDINGS)), assembly=st.booleans())
def test_recordings(place: Path, content: bytes, assembly: bool) -> None:
    """A run answered by nonsense ends with a status, and its artifact is whole or not there."""
    (place / "eval.jsonl").write_bytes((SAKE / "eval.jsonl").read_bytes())
    (place / "thresholds.json").write_bytes((SAKE / "thresholds-fail.json").read_bytes())
    (place / "recording.jsonl").write_bytes(content)
    artifact = place / "evaluation.json"
    artifact.unlink(missing_ok=True)
    exchanges, _ = refused(lambda: load_recording(place / "recording.jsonl", "r.jsonl"))
    if exchanges is None:
        return
    flags = Flags(assembly=assembly, max_bytes=3000)
    try:
        status = evaluate(place, Replayer(exchanges), NOWHERE, "sake", flags, gated=True)
    except EvaluationError as error:
        assert not artifact.exists()
        status = error.status
    else:
        assert artifact.read_bytes().endswith(b"}\n")
        assert (
            printed(["--judge", str(artifact), "--thresholds", str(place / "thresholds.json")])[0]
            == status
        )
    event(f"status {status}")


def printed(arguments: list[str]) -> tuple[int, str]:
    """Run taguru-eval-compare in this process: its status and all that it printed."""
    stream = io.StringIO()
    with redirect_stdout(stream), redirect_stderr(stream):
        try:
            status = compare_main(arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, stream.getvalue()


@budget(400)
@given(content=mutants(ARTIFACTS), other=st.sampled_from(ARTIFACTS), first=st.booleans())
def test_artifacts_compared(place: Path, content: bytes, other: bytes, first: bool) -> None:
    (place / "mutant.json").write_bytes(content)
    (place / "other.json").write_bytes(other)
    changes = place / "changes.jsonl"
    changes.unlink(missing_ok=True)
    files = [str(place / "mutant.json"), str(place / "other.json")]
    status, text = printed([*(files if first else files[::-1]), "--out", str(changes)])
    event(f"status {status}")
    assert status in (0, 2), text
    assert changes.exists() == (status == 0)
    assert status == 0 or ("BASE " if first else "HEAD ") in text


@budget(300)
@given(artifact=mutants(ARTIFACTS), thresholds=st.one_of(st.none(), mutants(THRESHOLDS)))
def test_artifacts_judged(place: Path, artifact: bytes, thresholds: bytes | None) -> None:
    (place / "evaluation.json").write_bytes(artifact)
    (place / "thresholds.json").write_bytes(THRESHOLDS[1] if thresholds is None else thresholds)
    before = sorted(place.iterdir())
    files = ("--judge", "evaluation.json", "--thresholds", "thresholds.json")
    status, text = printed([one if "--" in one else str(place / one) for one in files])
    event(f"status {status}")
    assert status in (0, 2, 3), text
    assert sorted(place.iterdir()) == before


# -- whole processes -------------------------------------------------------------------------


@budget(25)
@given(data=st.data())
def test_whole_runs(launcher: Launcher, data: st.DataObject) -> None:
    """One of the files is wrong. There is no server, so files that are accepted lead to 1."""
    files = {
        "eval.jsonl": DATASETS[1],
        "thresholds.json": THRESHOLDS[1],
        "env": ENV_FILES[0],
        "recording.jsonl": RECORDINGS[0],
    }
    wrong = data.draw(st.sampled_from(sorted(files)))
    files[wrong] = data.draw(mutants([files[wrong]]))
    with tempfile.TemporaryDirectory() as home:
        workspace = Workspace(launcher, Path(home))
        for name, content in files.items():
            (workspace.directory / name).write_bytes(content)
        replay = ["--taguru-replay=recording.jsonl"] if wrong == "recording.jsonl" else []
        run = workspace.evaluate(
            NOWHERE, "--taguru-thresholds=thresholds.json", "--taguru-config=env", *replay
        )
        event(f"{wrong}: status {run.status}")
        # A recording may still answer enough for a run, with cases that fail.
        expected = (0, 1, 2, 3) if wrong == "recording.jsonl" else (1, 2)
        assert run.status in expected, run.shown
        assert "Traceback" not in run.shown
        assert "INTERNALERROR" not in run.shown
        written = [file.name for file in workspace.directory.glob("*evaluation*")]
        if run.status in (1, 2):
            assert run.complaints, run.shown
            assert written == []
        else:
            assert written == ["evaluation.json"]
        assert "5ecret" not in run.shown


# -- what the original program makes of it ---------------------------------------------------

#: Where ours refuses and the original does not, on purpose: see docs/compatibility.md.
STRICTER = re.compile(r"given twice in one object|expected an object, got an array")
#: The same of artifacts: what stands in members that the original passes over.
STRICTER_ABOUT_ARTIFACTS = re.compile(
    r"hex escape|surrogate pair|nested too deeply|: inputs\.(eval|selection)"
)


def accepts(place: Path) -> bool:
    """Whether the original program takes eval.jsonl and thresholds.json."""
    ended = subprocess.run(
        [
            *(str(find_binary()), "evaluate", "--eval", "eval.jsonl", "--context", "c"),
            *("--url", NOWHERE, "--thresholds", "thresholds.json"),
        ],
        cwd=place,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert ended.returncode in (1, 2), ended.stderr
    return ended.returncode == 1


def check_acceptance(place: Path, dataset: bytes, thresholds: bytes) -> None:
    """Both take the files or both refuse them, but for what is stricter on purpose."""
    (place / "eval.jsonl").write_bytes(dataset)
    file = place / "thresholds.json"
    file.write_bytes(thresholds)
    found, problems = refused(lambda: parse_dataset(dataset, "eval.jsonl"))
    if found is not None:
        _, problems = refused(lambda: load_gate(file, "t.json", {c.case_id for c in found.cases}))
    theirs = accepts(place)
    event(f"accepted {theirs}, ours {not problems}")
    if theirs:
        assert all(STRICTER.search(problem) for problem in problems)
    else:
        assert problems


@pytest.mark.live
@budget(700)
@given(content=mutants(DATASETS))
def test_datasets_as_the_original_takes_them(place: Path, content: bytes) -> None:
    check_acceptance(place, content, THRESHOLDS[0])


@pytest.mark.live
@budget(400)
@given(content=mutants(THRESHOLDS))
def test_thresholds_as_the_original_takes_them(place: Path, content: bytes) -> None:
    check_acceptance(place, DATASETS[0], content)


@pytest.mark.live
@budget(200)
@given(content=mutants(ARTIFACTS))
def test_artifacts_as_the_original_compares_them(place: Path, content: bytes) -> None:
    (place / "mutant.json").write_bytes(content)
    (place / "other.json").write_bytes(ARTIFACTS[0])
    ended = subprocess.run(
        [str(find_binary()), *("evaluate", "compare", "mutant.json", "other.json")],
        cwd=place,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    files = [str(place / "mutant.json"), str(place / "other.json")]
    status, text = printed([*files, "--out", str(place / "ours.jsonl")])
    event(f"status {status}, theirs {ended.returncode}")
    if ended.returncode == 0 and STRICTER_ABOUT_ARTIFACTS.search(text):
        return
    if status == 0 and b"duplicate field" in ended.stderr:
        return  # looking for repeated keys would cost as much again as reading the artifact
    assert status == ended.returncode, f"{ended.stderr.decode()}\n--- ours\n{text}"
