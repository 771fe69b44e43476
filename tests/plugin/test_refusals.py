"""Input that the original program refused, and what else is refused: status, words, traces."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.support.fake_taguru import FakeTaguru
from tests.support.runs import GOLDEN, Run, Workspace, plugin_flags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.replay_server import LoopbackServer


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of refusals.jsonl."""

    kind: str
    name: str
    files: dict[str, str]
    flags: list[str]
    exit: int
    wrote: bool
    names: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        """The recorded status, or ours where we depart from it on purpose."""
        return DEPARTURES.get(self.name, self.exit)


#: Where this project is stricter (docs: compatibility).
DEPARTURES = {
    "header-duplicate-key": 2,
    "duplicate-key-in-case": 2,
    "association-list": 2,
    "options-array": 2,
    "f-url-ftp": 2,
    "f-empty-rerank": 2,
}
#: Found out by asking the server, so that ordinary tests have run by then.
ASKS_THE_SERVER = {"expected-source-not-in-corpus", "f-url-refused"}

ROWS = [
    Row(**json.loads(line))
    for line in (GOLDEN / "refusals.jsonl").read_text("utf-8").split("\n")
    if line
]


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with FakeTaguru().serve() as server:
        yield server


@pytest.fixture
def bystander(workspace: Workspace) -> Workspace:
    """A project with an ordinary test that leaves a trace when it runs, or is imported."""
    workspace.write(
        "test_ordinary.py",
        'from pathlib import Path\ndef test_ordinary():\n    Path("ordinary-ran").touch()\n',
    )
    return workspace


def ordinary_ran(workspace: Workspace) -> bool:
    return (workspace.directory / "ordinary-ran").exists()


def run_row(row: Row, workspace: Workspace, url: str) -> Run:
    for name, text in row.files.items():
        workspace.write(name, text)
    flags = [flag.replace("http://127.0.0.1:8248", url) for flag in plugin_flags(row.flags)]
    if row.name != "f-no-context":
        defaults = {
            "--taguru-eval": "eval.jsonl",
            "--taguru-context": "sake",
            "--taguru-url": url,
        }
        given = {flag.partition("=")[0] for flag in flags}
        flags += [f"{name}={value}" for name, value in defaults.items() if name not in given]
    return workspace.run(*flags)


def assert_no_traces(run: Run, workspace: Workspace) -> None:
    assert not (workspace.directory / "evaluation.json").exists(), run.shown
    assert "Traceback" not in run.stdout + run.stderr, run.shown
    assert "INTERNALERROR" not in run.stdout + run.stderr, run.shown


def test_every_row_is_here() -> None:
    assert len(ROWS) == 151
    assert {row.exit for row in ROWS} == {0, 1, 2}
    assert {row.name for row in ROWS} >= DEPARTURES.keys() | ASKS_THE_SERVER


@pytest.mark.parametrize("row", [row for row in ROWS if row.status != 0], ids=lambda row: row.name)
def test_refused(row: Row, bystander: Workspace, server: LoopbackServer) -> None:
    run = run_row(row, bystander, server.url)
    assert run.status == row.status, run.shown
    assert run.complaints, run.shown
    for name in row.names:
        assert name in run.stderr, run.shown
    assert_no_traces(run, bystander)
    assert all(request.method == "GET" for request in server.requests), "no case was run"
    if row.name not in ASKS_THE_SERVER:
        assert server.requests == []
        assert not ordinary_ran(bystander), run.shown
    assert "secret" not in run.stdout + run.stderr


@pytest.mark.parametrize("row", [row for row in ROWS if row.status == 0], ids=lambda row: row.name)
def test_taken(row: Row, bystander: Workspace, server: LoopbackServer) -> None:
    run = run_row(row, bystander, server.url)
    assert run.status == 0, run.shown
    assert ordinary_ran(bystander)
    artifact = run.artifact()
    assert [case["case_id"] for case in artifact["cases"]] == ["c1"]
    if row.name == "f-max-bytes-huge":
        assert artifact["inputs"]["budget"] == {
            "max_items": 40,
            "max_bytes": 1048576,
            "max_tokens": 4000,
        }
    if row.name == "f-max-items-2000":
        assert artifact["inputs"]["budget"] == {
            "max_items": 1000,
            "max_bytes": 65536,
            "max_tokens": 4000,
        }


def test_a_floor_is_sent_as_a_32_bit_float(workspace: Workspace, server: LoopbackServer) -> None:
    workspace.dataset(
        {"case_id": "c1", "query": "q", "options": {"floor": 0.2}},
        {"case_id": "c2", "query": "q", "options": {"floor": 1.00000001}},
        {"case_id": "c3", "query": "q", "options": {"floor": 1}},
    )
    run = workspace.evaluate(server.url)
    assert run.status == 0, run.shown
    floors = [r.body["semantic_floor"] for r in server.requests if r.path.endswith("/search")]
    assert sorted(floors) == [0.20000000298023224, 1.0, 1.0]
    assert all(type(floor) is float for floor in floors), "always with a fraction"


# -- several problems at once ----------------------------------------------------------------


def test_all_problems_of_a_dataset_are_named(bystander: Workspace, server: LoopbackServer) -> None:
    bystander.write(
        "eval.jsonl",
        '{"taguru_eval": 1, "nam": "x"}\n'
        "\n"
        '{"case_id": "one", "query": " ", "options": {"limit": 0, "floor": 2}}\n'
        "{oops\n"
        '{"case_id": "two", "query": "q", "expected_sources": [{"source": "s"},'
        ' {"relevance": 9}]}\n'
        '{"case_id": "two", "query": "q"}\n'
        '{"case_id": "two", "query": "q"}\n'
        '{"query": "q", "extra": 1}\n',
    )
    run = bystander.evaluate(server.url)
    assert run.status == 2, run.shown
    expected = [
        ("line 1", "nam"),
        ("line 3", "one", "query"),
        ("line 3", "one", "options.limit"),
        ("line 3", "one", "options.floor"),
        ("line 4",),
        ("line 5", "two", "expected_sources[1].source"),
        ("line 5", "two", "expected_sources[1].relevance"),
        ("line 7", "two", "case_id"),
        ("line 8", "case_id"),
        ("line 8", "extra"),
    ]
    assert len(run.complaints) == len(expected), run.shown
    for words in expected:
        assert any(
            "eval.jsonl" in line and all(word in line for word in words) for line in run.complaints
        ), (words, run.shown)
    assert_no_traces(run, bystander)
    assert server.requests == []
    assert not ordinary_ran(bystander)


@pytest.mark.parametrize(("bad", "shown", "rest"), [(20, 20, None), (21, 20, 1), (45, 20, 25)])
def test_problems_past_twenty_are_counted(
    bad: int, shown: int, rest: int | None, bystander: Workspace
) -> None:
    bystander.dataset(*({"case_id": f"c{n}", "query": ""} for n in range(bad)))
    run = bystander.evaluate("http://127.0.0.1:9")
    assert run.status == 2, run.shown
    *lines, last = run.complaints
    if rest is None:
        lines.append(last)
    else:
        assert f"{rest} more problem" in last, run.shown
    assert [f"line {n}" in line for n, line in enumerate(lines, start=2)] == [True] * shown


def test_all_problems_of_a_thresholds_file_are_named(bystander: Workspace) -> None:
    bystander.dataset({"case_id": "c1", "query": "q"})
    bystander.thresholds(
        aggregate={"x": {"min": 2, "max": 1}, "recall.mrr": {}},
        cases={
            "default": {"budget.items_used": {"max": 1}},
            "overrides": {"ghost": {"recall.ndcg": {"min": 0}}, "c1": {"y": {"min": 0}}},
        },
    )
    run = bystander.evaluate("http://127.0.0.1:9", "--taguru-thresholds=thresholds.json")
    assert run.status == 2, run.shown
    expected = [
        ("aggregate", "x", "unknown metric"),
        ("aggregate", "x", "min 2", "max 1"),
        ("aggregate", "recall.mrr", "min or max"),
        ("cases.default", "budget.items_used"),
        ("cases.overrides.ghost",),
        ("cases.overrides.c1", "y"),
    ]
    assert len(run.complaints) == len(expected), run.shown
    for words in expected:
        assert any(
            "thresholds.json" in line and all(word in line for word in words)
            for line in run.complaints
        ), (words, run.shown)
    assert not ordinary_ran(bystander)


def test_a_wrong_dataset_does_not_hide_a_wrong_thresholds_file(bystander: Workspace) -> None:
    bystander.dataset({"case_id": "c1", "query": ""})
    bystander.thresholds(
        aggregate={"x": {"min": 0}}, cases={"overrides": {"c1": {"recall.mrr": {"min": 0}}}}
    )
    run = bystander.evaluate("http://127.0.0.1:9", "--taguru-thresholds=thresholds.json")
    assert run.status == 2, run.shown
    of_dataset, of_thresholds = run.complaints
    assert "query" in of_dataset
    # Which cases there are is not known, so nothing is said about the override.
    assert of_thresholds == "taguru: thresholds.json: aggregate: unknown metric 'x'"


def test_every_missing_source_is_named(bystander: Workspace, server: LoopbackServer) -> None:
    bystander.dataset(
        {
            "case_id": "one",
            "query": "q",
            "expected_sources": [
                {"source": "corpus/water.md"},
                {"source": "corpus/none-1.md"},
                {"source": "corpus/none-2.md", "relevance": 0},
            ],
        },
        {"case_id": "two", "query": "q", "expected_sources": [{"source": "corpus/none-1.md"}]},
        {
            "case_id": "three",
            "query": "q",
            "expected_citations": [{"source": "corpus/none-3.md", "paragraph": 0}],
        },
    )
    run = bystander.evaluate(server.url)
    assert run.status == 2, run.shown
    expected = [
        ("one", "expected_sources[1]", "corpus/none-1.md"),
        ("one", "expected_sources[2]", "corpus/none-2.md"),
        ("two", "expected_sources[0]", "corpus/none-1.md"),
    ]
    assert len(run.complaints) == len(expected), run.shown
    for line, words in zip(run.complaints, expected, strict=True):
        assert all(word in line for word in words), run.shown
    assert "none-3" not in run.stderr, "citations are not preflighted"
    assert_no_traces(run, bystander)
    assert ordinary_ran(bystander), "ordinary results stand"
    assert all(request.method == "GET" for request in server.requests)


# -- flags, URL, environment -----------------------------------------------------------------


@pytest.fixture
def plain(bystander: Workspace) -> Workspace:
    """A project whose dataset is fine."""
    bystander.dataset({"case_id": "c1", "query": "q"})
    return bystander


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--taguru-eval=eval.jsonl"], "--taguru-eval"),
        (["--taguru-context="], "context"),
        (["--taguru-context=\u3000"], "context"),
        (["--taguru-context=."], "context"),
        (["--taguru-context=.."], "context"),
        (["--taguru-url="], "url"),
        (["--taguru-url=http://127.0.0.1:1/?q=1"], "query"),
        (["--taguru-url=http://127.0.0.1:1/#f"], "fragment"),
        (["--taguru-url=http://127.0.0.1:99999/"], "url"),
        (["--taguru-url=http://"], "url"),
        (["--taguru-rerank=m"], "--taguru-assembly"),
        (["--taguru-max-bytes=0"], "--taguru-max-bytes"),
        (["--taguru-max-tokens=-3"], "--taguru-max-tokens"),
        (["--taguru-max-items=１２x"], "--taguru-max-items"),
        (["--taguru-concurrency=0"], "--taguru-concurrency"),
        (["--taguru-record=a.jsonl", "--taguru-replay=b.jsonl"], "--taguru-record"),
        (["--taguru-replay=nowhere.jsonl"], "nowhere.jsonl"),
        (["--taguru-config=nowhere.env"], "nowhere.env"),
        (["--taguru-record=a.jsonl", "-n2"], "--taguru-record"),
        (["--dist=each", "-n2"], "each"),
    ],
)
def test_flags_that_are_refused(
    flags: list[str], words: str, plain: Workspace, server: LoopbackServer
) -> None:
    run = plain.evaluate(server.url, *flags)
    assert run.status == 2, run.shown
    assert words.lower() in " ".join(run.complaints).lower(), run.shown
    assert_no_traces(run, plain)
    assert server.requests == []
    assert not ordinary_ran(plain)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@127.0.0.1:1/",
        "http://hunter2@127.0.0.1:1",
        "https://:hunter2@host/base",
        "ftp://user:hunter2@127.0.0.1/",
        "http://user:hunter2@[::1/",
        "http://user:hunter2@127.0.0.1:port/",
        "user:hunter2@127.0.0.1",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str, plain: Workspace) -> None:
    run = plain.evaluate(url)
    assert run.status == 2, run.shown
    assert "hunter2" not in run.stdout + run.stderr
    assert len(run.complaints) == 1, run.shown
    assert not ordinary_ran(plain)


def test_credentials_from_the_environment_are_not_repeated_either(plain: Workspace) -> None:
    run = plain.run(
        "--taguru-eval=eval.jsonl",
        "--taguru-context=sake",
        TAGURU_ADDR="user:hunter2@127.0.0.1:1",
        TAGURU_API_TOKEN="hunter3",
    )
    assert run.status == 2, run.shown
    assert "hunter" not in run.stdout + run.stderr
    assert not ordinary_ran(plain)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"])
def test_port_0_is_refused(address: str, plain: Workspace) -> None:
    run = plain.run("--taguru-eval=eval.jsonl", "--taguru-context=sake", TAGURU_ADDR=address)
    assert run.status == 2, run.shown
    assert len(run.complaints) == 1, run.shown
    assert not ordinary_ran(plain)


def test_an_unspecified_address_is_read_as_loopback(
    plain: Workspace, server: LoopbackServer
) -> None:
    port = server.url.rpartition(":")[2]
    run = plain.run(
        "--taguru-eval=eval.jsonl", "--taguru-context=sake", TAGURU_ADDR=f"0.0.0.0:{port}"
    )
    assert run.status == 0, run.shown
    assert run.artifact()["inputs"]["url"] == server.url


def test_every_bad_line_of_a_config_file_is_named(plain: Workspace) -> None:
    plain.write("server.env", "# comment\n\nTAGURU_ADDR=127.0.0.1:1\noops\n  also bad\nOTHER=1=2\n")
    run = plain.run(
        "--taguru-eval=eval.jsonl", "--taguru-context=sake", "--taguru-config=server.env"
    )
    assert run.status == 2, run.shown
    assert len(run.complaints) == 2, run.shown
    for line, number in zip(run.complaints, (4, 5), strict=True):
        assert "server.env" in line
        assert f"line {number}" in line
    assert not ordinary_ran(plain)


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("TAGURU_ADDR={address}\n", {}),
        ("\ufeffTAGURU_ADDR = {address}  \n", {}),
        ("TAGURU_ADDR=127.0.0.1:1\nTAGURU_ADDR={address}\n", {}),
        ("TAGURU_ADDR=127.0.0.1:1\n", {"TAGURU_ADDR": "{address}"}),
    ],
    ids=["plain", "bom-and-space", "last-wins", "environment-wins"],
)
def test_where_the_address_comes_from(
    text: str, environment: dict[str, str], plain: Workspace, server: LoopbackServer
) -> None:
    address = server.url.removeprefix("http://")
    plain.write("server.env", text.format(address=address))
    run = plain.run(
        "--taguru-eval=eval.jsonl",
        "--taguru-context=sake",
        "--taguru-config=server.env",
        **{name: value.format(address=address) for name, value in environment.items()},
    )
    assert run.status == 0, run.shown
    assert run.artifact()["inputs"]["url"] == server.url


def test_the_variable_names_a_config_file_too(plain: Workspace, server: LoopbackServer) -> None:
    plain.write("server.env", f"TAGURU_ADDR={server.url.removeprefix('http://')}\n")
    run = plain.run("--taguru-eval=eval.jsonl", "--taguru-context=sake", TAGURU_CONFIG="server.env")
    assert run.status == 0, run.shown
    assert len(server.requests) > 0


def test_the_header_names_the_context(workspace: Workspace, server: LoopbackServer) -> None:
    workspace.write(
        "eval.jsonl",
        '{"taguru_eval": 1, "default_target": {"context": "sake"}}\n'
        '{"case_id": "c1", "query": "q"}\n',
    )
    run = workspace.run("--taguru-eval=eval.jsonl", f"--taguru-url={server.url}")
    assert run.status == 0, run.shown
    assert run.artifact()["inputs"]["context"] == "sake"


@pytest.mark.parametrize(
    "target", ['" "', '{"context": " "}', '{"context": 3}', '["sake"]', "null"]
)
def test_a_header_without_a_usable_context(target: str, bystander: Workspace) -> None:
    bystander.write(
        "eval.jsonl",
        f'{{"taguru_eval": 1, "default_target": {target}}}\n{{"case_id": "c1", "query": "q"}}\n',
    )
    run = bystander.run("--taguru-eval=eval.jsonl")
    assert run.status == 2, run.shown
    assert "--taguru-context" in " ".join(run.complaints), run.shown
    assert not ordinary_ran(bystander)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("taguru_context", " "),
        ("taguru_context", ""),
        ("taguru_max_items", "0"),
        ("taguru_concurrency", "none"),
    ],
)
def test_ini_options_that_are_refused(option: str, value: str, plain: Workspace) -> None:
    plain.write("pytest.ini", f"[pytest]\ntaguru_assembly = true\n{option} = {value}\n")
    flags = ["--taguru-eval=eval.jsonl"]
    if option != "taguru_context":
        flags.append("--taguru-context=sake")
    run = plain.run(*flags)
    assert run.status == 2, run.shown
    assert option in " ".join(run.complaints), run.shown
    assert not ordinary_ran(plain)


BLANKED = ["url", "config", "out", "thresholds", "baseline", "rerank"]


@pytest.mark.parametrize("blank", ["", " "])
@pytest.mark.parametrize("name", BLANKED)
def test_a_blank_ini_option_is_as_good_as_none(name: str, blank: str, plain: Workspace) -> None:
    """So that -o takes back what an ini file says."""
    plain.write("pytest.ini", f"[pytest]\ntaguru_{name} = ://nowhere\n")
    flags = ["--taguru-eval=eval.jsonl", "--taguru-context=sake", "--collect-only"]
    before = plain.run(*flags)
    run = plain.run(*flags, "-o", f"taguru_{name}={blank}")
    assert run.status == 0, run.shown
    assert not run.complaints, run.shown
    assert before.status == (0 if name == "out" else 2), before.shown


@pytest.mark.parametrize("name", ["context", *BLANKED])
def test_a_blank_flag_is_refused(name: str, plain: Workspace) -> None:
    run = plain.run("--taguru-eval=eval.jsonl", "--taguru-context=sake", f"--taguru-{name}=")
    assert run.status == 2, run.shown
    assert f"--taguru-{name}: " in run.complaints[0]
    assert "blank" in run.complaints[0]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["out=eval.jsonl"], "--taguru-out: eval.jsonl is the file of --taguru-eval"),
        (["record=./eval.jsonl"], "--taguru-record: ./eval.jsonl is the file of --taguru-eval"),
        (
            ["thresholds=thresholds.json", "out=thresholds.json"],
            "--taguru-out: thresholds.json is the file of --taguru-thresholds",
        ),
        (["out=a.json", "record=a.json"], "--taguru-record: a.json is the file of --taguru-out"),
    ],
)
def test_what_is_read_is_not_written_over(
    flags: list[str], complaint: str, plain: Workspace
) -> None:
    plain.thresholds()
    names = ("eval.jsonl", "thresholds.json")
    before = [(plain.directory / name).read_bytes() for name in names]
    run = plain.evaluate("http://127.0.0.1:9", *(f"--taguru-{flag}" for flag in flags))
    assert run.status == 2, run.shown
    assert run.complaints == [f"taguru: {complaint}; name another"]
    assert [(plain.directory / name).read_bytes() for name in names] == before


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("127.0.0.1:33727", "http://127.0.0.1:33727"),
        ("localhost:8248", "http://localhost:8248"),
        ("[::1]:8248", "http://[::1]:8248"),
        ("shore.example:8248", "http://shore.example:8248"),
        ("ftp://127.0.0.1:8248", "http://HOST:PORT"),
        ("hunter:20000", "http://HOST:PORT"),
        ("127.0.0.1:8248/hunter2", "http://HOST:PORT"),
    ],
)
def test_a_url_without_its_scheme(url: str, advice: str, plain: Workspace) -> None:
    """What may be `name:token` by its form is not repeated."""
    run = plain.evaluate(url)
    assert run.status == 2, run.shown
    assert run.complaints == [
        f"taguru: --taguru-url: the URL's scheme must be http or https; write {advice}"
    ]
    assert not ordinary_ran(plain)


def test_an_unknown_context_is_an_input_error(plain: Workspace, server: LoopbackServer) -> None:
    run = plain.evaluate(server.url, context="nowhere")
    assert run.status == 2, run.shown
    assert len(run.complaints) == 1, run.shown
    assert "nowhere" in run.complaints[0]
    assert_no_traces(run, plain)
    assert ordinary_ran(plain), "ordinary results stand"
    assert all(request.method == "GET" for request in server.requests)
