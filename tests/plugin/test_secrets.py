"""Every output of every kind, searched for what must not be in it.

What a run lets out when nothing goes wrong is in test_traffic.py; here something does, while
pytest is told to show all that it can.
"""

from __future__ import annotations

import base64
import json
import os
import signal
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import pytest

from tests.support.fake_taguru import FakeTaguru
from tests.support.held import NO_TIME_OUT, Holder, finish, start
from tests.support.replay_server import Answer, LoopbackServer, Request, result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.runs import Run, Workspace

TOKEN = "canary-token-7c211433f02071597741e6ff5a8ea34789abbf43"
USER, PASSWORD = "canary-user", "canary-pass/word"
USERINFO = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}"
SENTENCE = "The canary paragraph slept under the ninth floorboard."
SECRETS = (
    TOKEN,
    USER,
    PASSWORD,
    quote(PASSWORD, safe=""),
    base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode(),
    base64.b64encode(TOKEN.encode()).decode(),
)
CORPUS = (SENTENCE, "ninth floorboard", "anary paragraph")

CASES = [
    {
        "case_id": name,
        "query": name,
        "expected_sources": [{"source": "corpus/water.md"}],
        "expected_citations": [{"source": "corpus/water.md", "paragraph": 0, "quote": "floor"}],
    }
    for name in ("first", "second", "third")
]
HITS = {str(case["case_id"]): [("corpus/water.md", 0), ("corpus/rice.md", 1)] for case in CASES}

#: As much as pytest will say of a failure, in several of its styles, and looking ahead or not.
STYLES = {
    "full": ("--tb=auto", "--full-trace"),
    "long": ("--tb=long", "--taguru-concurrency=1"),
    "short": ("--tb=short",),
    "native": ("--tb=native", "--taguru-concurrency=1"),
}
LOUD = (
    *("-vvv", "-rA", "--showlocals", "--setup-show", "--trace-config"),
    *("--log-level=DEBUG", "--log-file=run.log", "--log-file-level=DEBUG"),
    *("--junitxml=junit.xml", "-o", "junit_logging=all", "--debug=debug.log"),
)


def cited(request: Request) -> Answer | None:
    """Citations that hold text of the corpus, as the hits do."""
    if request.path.endswith("/citations"):
        return result({"text": SENTENCE, "source": "corpus/water.md", "section": None})
    return None


def serve(hook: Any = cited) -> LoopbackServer:
    return FakeTaguru(hits=HITS, text=SENTENCE, hook=hook).serve()


@pytest.fixture
def project(workspace: Workspace) -> Workspace:
    workspace.dataset(*CASES)
    workspace.thresholds(aggregate={"recall.mrr": {"min": 2}})
    return workspace


INPUTS = {"eval.jsonl", "conftest.py", "pytest.ini", "thresholds.json", "server.env"}


def places(run: Run) -> Iterator[tuple[str, str]]:
    """Everything that a run let out, by where."""
    yield "stdout", run.stdout
    yield "stderr", run.stderr
    for file in run.directory.rglob("*"):
        if file.is_file() and file.name not in INPUTS and "__pycache__" not in file.parts:
            yield file.name, file.read_bytes().decode("utf-8", "replace")


def assert_nothing_got_out(run: Run) -> None:
    for place, text in places(run):
        for secret in SECRETS:
            assert secret not in text, f"{secret!r} is in {place}"
        if place != "recording.jsonl":
            for words in CORPUS:
                assert words not in text, f"{words!r} is in {place}"


# -- something breaks --------------------------------------------------------------------------

ADAPTER = """
import pytest, requests
from requests.adapters import HTTPAdapter

class Mine(HTTPAdapter):
    def send(self, request, stream=False, timeout=None, verify=True, cert=None, proxies=None):
        headers, settings = request.headers, dict(proxies=proxies)
        {send}

@pytest.fixture(scope="session")
def taguru_http(taguru_http):
    taguru_http.mount("http://", Mine())
    return taguru_http
"""
BEFORE = 'if {part!r} in request.url: raise RuntimeError("a bug of mine")\n'
RETURN = "        return super().send(request, stream, timeout, verify, cert, proxies)"


def adapter(send: str) -> str:
    return ADAPTER.format(send=send)


def raising_at(part: str) -> str:
    return adapter(BEFORE.format(part=part) + RETURN)


AFTERWARDS = adapter(
    "answer = super().send(request, stream, timeout, verify, cert, proxies)\n"
    "        raise RuntimeError(f'a bug of mine: {answer}, {headers}, {settings}')"
)
ONCE_READ = adapter(
    "answer = super().send(request, stream, timeout, verify, cert, proxies)\n"
    "        if 'search' in request.url: answer.iter_content = None\n"
    "        return answer"
)


def breaking(name: str) -> str:
    """A conftest that puts a bug into a function of ours, and into its module."""
    module, _, function = name.rpartition(".")
    source = f"def {function}(*args, **kwargs): raise TypeError('a bug of ours')"
    return f"import {module} as module\nexec({source!r}, vars(module))\n"


#: What breaks → the conftest that does it, and words that show that it did.
BREAKS: dict[str, tuple[str, str]] = {
    "adapter, health": (raising_at("/health"), "a bug of mine"),
    "adapter, sources": (raising_at("/sources?"), "a bug of mine"),
    "adapter, search": (raising_at("/search"), "a bug of mine"),
    "adapter, citations": (raising_at("/citations"), "a bug of mine"),
    "adapter, answered": (AFTERWARDS, "a bug of mine"),
    "adapter, unreadable": (ONCE_READ, "not callable"),
    "ours, decoding": (breaking("pytest_taguru.engine.lanes._read_search"), "a bug of ours"),
    "ours, scoring": (breaking("pytest_taguru.engine.scoring.first_ranks"), "a bug of ours"),
    "ours, quotes": (breaking("pytest_taguru.engine.scoring.contains_quote"), "a bug of ours"),
    "ours, reasons": (
        breaking("pytest_taguru.engine.direct._usual_head"),
        "a bug of ours",
    ),
    "ours, the end": (breaking("pytest_taguru.gate.conclude"), "a bug of ours"),
    "hook, case": (
        "def pytest_taguru_case(item, block): raise RuntimeError('a bug of mine')\n",
        "a bug of mine",
    ),
    "hook, artifact": (
        "def pytest_taguru_artifact(artifact): raise RuntimeError('a bug of mine')\n",
        "a bug of mine",
    ),
    "hook, status": (
        "def pytest_taguru_exitstatus(report): raise RuntimeError('a bug of mine')\n",
        "a bug of mine",
    ),
    "hook, report": (
        "def pytest_runtest_logreport(report): raise RuntimeError('a bug of mine')\n",
        "INTERNALERROR",
    ),
    "fixture": (
        "import pytest\n"
        "@pytest.fixture(autouse=True)\n"
        "def mine(taguru_case, taguru_run, taguru_http):\n"
        "    everything = dict(locals())\n"
        "    raise RuntimeError(f'a bug of mine {everything}')\n",
        "a bug of mine",
    ),
    "crash": (
        "import os\ndef pytest_taguru_case(item, block): os.abort()\n",
        "Fatal Python error: Aborted",
    ),
}


TWO_BREAKS = ("adapter, answered", "ours, quotes")


@pytest.mark.parametrize(
    ("breaks", "style"),
    [
        *((breaks, "full") for breaks in BREAKS),
        *((breaks, "long") for breaks in BREAKS if breaks.startswith(("adapter", "ours"))),
        *((breaks, style) for breaks in TWO_BREAKS for style in ("short", "native")),
    ],
)
def test_nothing_gets_out_when_something_breaks(
    breaks: str, style: str, project: Workspace
) -> None:
    conftest, words = BREAKS[breaks]
    project.write("conftest.py", conftest)
    with serve() as server:
        run = project.evaluate(
            server.url,
            *(*LOUD, *STYLES[style], "--taguru-record=recording.jsonl"),
            TAGURU_API_TOKEN=TOKEN,
            https_proxy=f"http://{USERINFO}@127.0.0.1:9",
        )
    assert run.status != 0, run.shown
    assert words in run.stdout + run.stderr, run.shown
    assert_nothing_got_out(run)


@pytest.mark.parametrize("breaks", ["adapter, search", "ours, decoding", "hook, report"])
def test_nothing_gets_out_of_a_worker(breaks: str, project: Workspace) -> None:
    conftest, words = BREAKS[breaks]
    project.write("conftest.py", conftest)
    with serve() as server:
        run = project.evaluate(server.url, *LOUD, "-n2", "--full-trace", TAGURU_API_TOKEN=TOKEN)
    assert run.status != 0, run.shown
    assert words in run.stdout + run.stderr, run.shown
    assert_nothing_got_out(run)


@pytest.mark.parametrize("breaks", ["ours, decoding", "ours, the end", "hook, report"])
def test_nothing_gets_out_of_a_recording(breaks: str, project: Workspace) -> None:
    """Its text is in memory as a whole while a run is answered from it."""
    with serve() as server:
        recorded = project.evaluate(
            server.url, "--taguru-record=recording.jsonl", TAGURU_API_TOKEN=TOKEN
        )
    assert recorded.status == 0, recorded.shown
    assert SENTENCE in (project.directory / "recording.jsonl").read_text("utf-8")
    assert_nothing_got_out(recorded)
    conftest, words = BREAKS[breaks]
    project.write("conftest.py", conftest)
    run = project.evaluate(
        "http://h", *LOUD, "--full-trace", "--taguru-replay=recording.jsonl", TAGURU_API_TOKEN=TOKEN
    )
    assert words in run.stdout + run.stderr, run.shown
    assert_nothing_got_out(run)


def test_a_bug_of_ours_can_be_found(project: Workspace) -> None:
    """Although no variables are shown, the places are."""
    project.write("conftest.py", BREAKS["ours, decoding"][0])
    with serve() as server:
        run = project.evaluate(server.url)
    assert "TypeError: a bug of ours" in run.stdout
    assert "called from lanes.py:" in run.stdout
    assert "called from cases.py:" in run.stdout


@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize(
    "breaks", ["adapter, health", "adapter, search", "hook, case", "adapter, answered"]
)
def test_a_bug_of_theirs_is_shown_where_it_is(breaks: str, number: int, project: Workspace) -> None:
    project.write("conftest.py", BREAKS[breaks][0])
    with serve() as server:
        run = project.evaluate(server.url, f"--taguru-concurrency={number}")
    assert "RuntimeError: a bug of mine" in run.stdout
    assert "conftest.py:" in run.stdout
    for words in ("requests/", "pytest_taguru/", "raised in", "During handling"):
        assert words not in run.stdout + run.stderr, run.shown


# -- somebody interrupts -----------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize("path", ["/health", "/contexts/sake/sources/search", "/contexts/sake"])
@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize("kind", ["Ctrl-C", "alarm"])
def test_nothing_gets_out_of_a_request_that_is_interrupted(
    kind: str, number: int, path: str, project: Workspace
) -> None:
    """The exception comes out of the main thread, wherever that is."""
    ring = (
        "import pytest, signal\n"
        "def ring(number, frame): pytest.fail('somebody rang')\n"
        "signal.signal(signal.SIGALRM, ring)\n"
    )
    project.write("conftest.py", NO_TIME_OUT + ring)
    holder = Holder(lambda request: request.path == path, cited)
    with serve(holder) as server:
        process = start(
            project.directory,
            *("--taguru-eval=eval.jsonl", "--taguru-context=sake", f"--taguru-url={server.url}"),
            *(f"--taguru-concurrency={number}", *LOUD, "--full-trace", "-x"),
            TAGURU_API_TOKEN=TOKEN,
            https_proxy=f"http://{USERINFO}@127.0.0.1:9",
        )
        try:
            holder.wait()
            os.kill(process.pid, signal.SIGINT if kind == "Ctrl-C" else signal.SIGALRM)
            run = finish(process, project.directory)
        finally:
            holder.release()
    assert ("KeyboardInterrupt" if kind == "Ctrl-C" else "somebody rang") in run.stdout, run.shown
    assert_nothing_got_out(run)


# -- credentials in other places ---------------------------------------------------------------


@pytest.mark.parametrize("where", ["flag", "ini", "variable", "file", "fixture"])
def test_credentials_in_a_url_are_refused_and_nowhere_repeated(
    where: str, project: Workspace
) -> None:
    with serve() as server:
        host = urlsplit(server.url).netloc
        url, arguments, environment = f"http://{USERINFO}@{host}", [], {}
        if where == "flag":
            arguments = [f"--taguru-url={url}"]
        elif where == "ini":
            project.write("pytest.ini", f"[pytest]\ntaguru_url = {url}\n")
        elif where == "variable":
            environment = {"TAGURU_ADDR": f"{USERINFO}@{host}"}
        elif where == "file":
            project.write("server.env", f"TAGURU_ADDR={USERINFO}@{host}\n")
            arguments = ["--taguru-config=server.env"]
        else:
            project.write(
                "conftest.py",
                "import pytest\n"
                "@pytest.fixture(scope='session')\n"
                f"def taguru_url(): return {url!r}\n",
            )
        quiet = [word for word in LOUD if not word.startswith("--debug")]  # it lists the words
        run = project.run(
            "--taguru-eval=eval.jsonl",
            "--taguru-context=sake",
            *quiet,
            "--full-trace",
            *arguments,
            **environment,
        )
    assert run.status == 2, run.shown
    assert len(run.complaints) == 1
    assert "credentials do not belong in the URL" in run.complaints[0]
    assert server.requests == []
    # A fixture's own source is shown by nobody; pytest does not print a fixture's value.
    assert_nothing_got_out(run)


@pytest.mark.parametrize("reachable", [True, False])
def test_credentials_of_a_proxy(reachable: bool, project: Workspace) -> None:
    seen: list[str | None] = []

    def note(request: Request) -> Answer | None:
        seen.append(request.headers.get("proxy-authorization"))
        split = urlsplit(request.path)
        path = split.path + (f"?{split.query}" if split.query else "")
        inner = Request(
            method=request.method, path=path, body=request.body, headers=request.headers
        )
        return FakeTaguru(hits=HITS, text=SENTENCE, hook=cited).answer(inner)

    with serve(note) as proxy:
        host = urlsplit(proxy.url).netloc
        if not reachable:
            proxy.stop()
        run = project.evaluate(
            "http://taguru.invalid:8248",
            *LOUD,
            "--taguru-record=recording.jsonl",
            TAGURU_API_TOKEN=TOKEN,
            http_proxy=f"http://{USERINFO}@{host}",
        )
    if reachable:
        assert run.status == 0, run.shown
        expected = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        assert set(seen) == {f"Basic {expected}"}
        assert len(run.artifact()["cases"]) == 3
    else:
        assert run.status == 1, run.shown
        assert run.complaints[0] == (
            "taguru: no taguru server at http://taguru.invalid:8248:"
            " the proxy cannot be reached, or refuses"
        )
    assert_nothing_got_out(run)


@pytest.mark.parametrize("status", [200, 401, 500])
def test_a_server_that_repeats_what_it_was_sent(status: int, project: Workspace) -> None:
    """As a debugging page does: headers and all."""

    def repeat(request: Request) -> Answer | None:
        if not request.path.endswith("/search"):
            return cited(request)
        body = json.dumps(dict(request.headers))
        return Answer(status=status, body=body, headers={"retry-after": TOKEN})

    with serve(repeat) as server:
        run = project.evaluate(
            server.url, *LOUD, "--taguru-record=recording.jsonl", TAGURU_API_TOKEN=TOKEN
        )
        assert any(request.headers["authorization"].endswith(TOKEN) for request in server.requests)
    assert run.status == 0, run.shown
    assert "Bearer [token]" in (project.directory / "recording.jsonl").read_text("utf-8")
    assert "3 skipped" in run.stdout
    assert_nothing_got_out(run)


# -- listings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("--fixtures", "-v"),
        ("--fixtures-per-test",),
        ("--markers",),
        ("--collect-only", "-vv"),
        ("--setup-plan",),
        ("--setup-only",),
        ("--setup-show", "-s"),
        ("--help",),
        ("-VV",),
    ],
    ids=" ".join,
)
def test_listings(arguments: tuple[str, ...], project: Workspace) -> None:
    with serve() as server:
        run = project.evaluate(
            server.url,
            *arguments,
            *("--trace-config", "--debug=debug.log", "--log-file=run.log"),
            TAGURU_API_TOKEN=TOKEN,
            TAGURU_API_TOKENS=f"other:{TOKEN}",
            http_proxy="",
            https_proxy=f"http://{USERINFO}@127.0.0.1:9",
        )
    assert run.status in (0, 1), run.shown
    assert_nothing_got_out(run)


def test_the_search_finds_what_it_looks_for(project: Workspace) -> None:
    """So the tests above could fail."""
    project.write(
        "conftest.py",
        "import logging, os\n"
        "def pytest_taguru_case(item, block):\n"
        "    logging.getLogger().warning(os.environ['TAGURU_API_TOKEN'])\n",
    )
    with serve() as server:
        run = project.evaluate(server.url, *LOUD, TAGURU_API_TOKEN=TOKEN)
    found = {place for place, text in places(run) if TOKEN in text}
    assert found >= {"stdout", "run.log", "junit.xml"}
    with pytest.raises(AssertionError, match="canary-token"):
        assert_nothing_got_out(run)
