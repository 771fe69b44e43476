"""What a user may override: where the server is, how it is spoken to, what a case needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.fake_taguru import FakeTaguru
from tests.support.runs import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.replay_server import LoopbackServer
    from tests.support.runs import Run, Workspace

NOWHERE = "http://127.0.0.1:9"
CASE = {"case_id": "c", "query": "q", "expected_sources": [{"source": "corpus/water.md"}]}
HITS = {"q": [("corpus/water.md", 0)]}

#: A conftest whose suite starts its own server, as somebody else would write it.
OWN_SERVER = f"""
import sys
sys.path.insert(0, {str(PROJECT)!r})
import pytest
from pathlib import Path
from tests.support.fake_taguru import FakeTaguru

@pytest.fixture(scope="session")
def taguru_url():
    with FakeTaguru(hits={{"q": [("corpus/water.md", 0)]}}).serve() as server:
        yield server.url
        Path("asked").write_text(str(len(server.requests)))
"""

#: A conftest that mounts an adapter in the session of the plugin.
OWN_ADAPTER = """
import json
import pytest
import requests
from requests.adapters import HTTPAdapter

class Canned(HTTPAdapter):
    def send(self, request, **_):
        answer = requests.Response()
        answer.status_code, answer.request, answer.url = 200, request, request.url
        path = request.path_url
        if path == "/health":
            body = {"status": "ok", "version": "0.9.7"}
        elif path.endswith("/embeddings"):
            body = {"result": {"provider_model": "canned"}}
        elif "/sources?" in path:
            body = {"result": {"sources": [] if "after=" in path else ["corpus/water.md"]}}
        elif path.endswith("/search"):
            lanes = {"bm25": {"ran": True}, "vector": {"ran": False}}
            hit = {"source": "corpus/water.md", "paragraph": 0, "score": 1.5, "text": "",
                   "lanes": {"bm25": {"rank": 1, "score": 1.5}}}
            plan = {"contexts": [{"context": "sake", "lanes": lanes}]}
            body = {"result": {"plan": plan, "hits": [hit]}}
        else:
            revision = {"graph": 1, "passages": 1, "config": 0}
            body = {"result": {"revision": revision, "usage": {"last_write_epoch": 7}}}
        answer._content = json.dumps(body).encode()
        answer.raw = __import__("io").BytesIO(answer._content)
        return answer

@pytest.fixture(scope="session")
def taguru_http(taguru_http):
    taguru_http.mount("http://canned.invalid", Canned())
    return taguru_http
"""


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with FakeTaguru(hits=HITS).serve() as server:
        yield server


def assert_found(run: Run) -> None:
    assert run.status == 0, run.shown
    (case,) = run.artifact()["cases"]
    assert case["recall"]["recall_at_k"] == 1.0


# -- taguru_url ------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [[], [f"--taguru-url={NOWHERE}"]], ids=["alone", "and-a-flag"])
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "xdist"])
def test_a_conftest_may_start_the_server(
    flags: list[str], workers: list[str], workspace: Workspace
) -> None:
    workspace.dataset(CASE)
    workspace.write("conftest.py", OWN_SERVER)
    run = workspace.run("--taguru-eval=eval.jsonl", "--taguru-context=sake", *flags, *workers)
    assert_found(run)
    # health, context, embeddings, two pages of sources, one search, context again
    assert (workspace.directory / "asked").read_text() == "7"
    assert run.artifact()["inputs"]["url"].startswith("http://127.0.0.1:")
    assert run.artifact()["inputs"]["url"] != NOWHERE
    assert "fixture" in run.stdout, "the final section says where the URL came from"


def test_a_plugin_may_start_the_server(workspace: Workspace) -> None:
    """A plugin that is registered after ours, as every one that a conftest names."""
    workspace.dataset(CASE)
    workspace.write("my_plugin.py", OWN_SERVER)
    workspace.write("conftest.py", "pytest_plugins = ['my_plugin']\n")
    workspace.write("pytest.ini", "[pytest]\nfilterwarnings = error\npythonpath = .\n")
    assert_found(workspace.run("--taguru-eval=eval.jsonl", "--taguru-context=sake"))


def test_fixtures_beside_the_dataset_are_seen(workspace: Workspace) -> None:
    """In a sub-directory, next to the dataset and nowhere else."""
    workspace.dataset(CASE, name="quality/gate/eval.jsonl")
    workspace.write("quality/gate/conftest.py", OWN_SERVER)
    workspace.write("test_ordinary.py", "def test_ordinary(): pass\n")
    run = workspace.run("--taguru-eval=quality/gate/eval.jsonl", "--taguru-context=sake")
    assert_found(run)
    assert "2 passed" in run.stdout


def test_fixtures_beside_a_dataset_outside_rootdir_are_seen(workspace: Workspace) -> None:
    workspace.dataset(CASE, name="elsewhere/eval.jsonl")
    workspace.write("elsewhere/conftest.py", OWN_SERVER)
    workspace.write("inside/pytest.ini", "[pytest]\nfilterwarnings = error\n")
    workspace.write("inside/test_ordinary.py", "def test_ordinary(): pass\n")
    run = workspace.run(
        "--rootdir=inside",
        "-c",
        "inside/pytest.ini",
        "--taguru-eval=elsewhere/eval.jsonl",
        "--taguru-context=sake",
        "inside",
    )
    assert_found(run)
    assert "2 passed" in run.stdout


def test_the_nearest_override_counts(workspace: Workspace, server: LoopbackServer) -> None:
    workspace.dataset(CASE, name="quality/eval.jsonl")
    for place, url in (("", NOWHERE), ("quality/", server.url)):
        workspace.write(f"{place}conftest.py", returning(url))
    run = workspace.run("--taguru-eval=quality/eval.jsonl", "--taguru-context=sake")
    assert_found(run)


def returning(url: str) -> str:
    """A conftest that says where the server is."""
    return f"import pytest\n@pytest.fixture(scope='session')\ndef taguru_url(): return {url!r}\n"


def unseen(conftest: str, fixture: str, dataset: str) -> str:
    return (
        f"{conftest}: its fixture {fixture} is not seen by the cases of {dataset}, so it is not"
        " used; move it to a conftest.py in the dataset's directory or above, or into a plugin"
        " (-p NAME)"
    )


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["serial", "xdist"])
def test_a_fixture_in_a_sibling_directory_is_not_seen(
    workers: list[str], workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.dataset(CASE, {**CASE, "case_id": "d"}, name="quality/eval.jsonl")
    workspace.write("unit/conftest.py", returning(NOWHERE))
    workspace.write("unit/test_ordinary.py", "def test_ordinary(): pass\n")
    run = workspace.run(
        "--taguru-eval=quality/eval.jsonl",
        "--taguru-context=sake",
        f"--taguru-url={server.url}",
        *workers,
    )
    assert run.status == 0, run.shown
    assert "--taguru-url" in run.stdout, "the final section says where the URL came from"
    hint = unseen("unit/conftest.py", "taguru_url", "quality/eval.jsonl")
    assert run.complaints == [f"taguru: {hint}"]
    assert run.stdout.count(f"note: {hint}\n") == 1


def test_fixtures_below_the_dataset_are_not_seen(workspace: Workspace) -> None:
    """As after `pytest --taguru-eval=eval.jsonl` in a suite that has all its own in tests/."""
    workspace.dataset(CASE)
    workspace.write("tests/conftest.py", OWN_SERVER + OWN_ADAPTER)
    run = workspace.run(
        "--taguru-eval=eval.jsonl", "--taguru-context=sake", TAGURU_ADDR="127.0.0.1:9"
    )
    assert run.status == 1, run.shown
    unreachable, *hints = run.complaints
    assert NOWHERE in unreachable
    assert hints == [
        f"taguru: {unseen('tests/conftest.py', name, 'eval.jsonl')}"
        for name in ("taguru_url", "taguru_http")
    ]


@pytest.mark.parametrize("seen", ["conftest.py", "quality/conftest.py", "my_plugin.py"])
def test_where_an_override_is_seen_another_is_no_mistake(
    seen: str, workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.dataset(CASE, name="quality/eval.jsonl")
    workspace.write(seen, returning(server.url))
    workspace.write("unit/conftest.py", returning(NOWHERE))
    workspace.write("unit/test_ordinary.py", "def test_ordinary(): pass\n")
    workspace.write("pytest.ini", "[pytest]\nfilterwarnings = error\npythonpath = .\n")
    named = ["-p", "my_plugin"] if seen == "my_plugin.py" else []
    run = workspace.run("--taguru-eval=quality/eval.jsonl", "--taguru-context=sake", *named)
    assert_found(run)
    assert run.complaints == []


def test_what_only_has_the_name_of_a_fixture_is_none(
    workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.dataset(CASE, name="quality/eval.jsonl")
    workspace.write("unit/conftest.py", "taguru_url = 'http://127.0.0.1:9'\n")
    workspace.write("unit/test_ordinary.py", "def test_ordinary(): pass\n")
    run = workspace.run(
        "--taguru-eval=quality/eval.jsonl", "--taguru-context=sake", f"--taguru-url={server.url}"
    )
    assert_found(run)
    assert run.complaints == []


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        ("'http://user:hunter2@127.0.0.1:1'", "hunter2"),
        ("'ftp://127.0.0.1'", None),
        ("''", None),
        ("None", None),
        ("7", None),
    ],
)
def test_a_fixture_that_returns_no_url(
    value: str, hidden: str | None, workspace: Workspace
) -> None:
    workspace.dataset(CASE)
    workspace.write(
        "conftest.py",
        f"import pytest\n@pytest.fixture(scope='session')\ndef taguru_url(): return {value}\n",
    )
    run = workspace.run("--taguru-eval=eval.jsonl", "--taguru-context=sake")
    assert run.status == 2, run.shown
    assert ["taguru_url" in line for line in run.complaints] == [True], run.shown
    assert hidden is None or hidden not in run.stdout + run.stderr
    assert not (workspace.directory / "evaluation.json").exists()


def test_a_fixture_that_fails_looks_as_always(workspace: Workspace) -> None:
    workspace.dataset(CASE, {**CASE, "case_id": "d"})
    workspace.write(
        "conftest.py",
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def taguru_url():\n"
        "    raise RuntimeError('the container does not start')\n",
    )
    run = workspace.run("--taguru-eval=eval.jsonl", "--taguru-context=sake")
    assert run.status == 1, run.shown
    assert "RuntimeError: the container does not start" in run.stdout
    assert "conftest.py:4" in run.stdout
    assert not (workspace.directory / "evaluation.json").exists()


# -- taguru_http -----------------------------------------------------------------------------


def test_an_adapter_may_be_mounted(workspace: Workspace) -> None:
    workspace.dataset(CASE)
    workspace.write("conftest.py", OWN_ADAPTER)
    run = workspace.evaluate("http://canned.invalid/")
    assert_found(run)
    assert run.artifact()["corpus"]["embeddings"] == {"provider_model": "canned"}
    assert run.artifact()["inputs"]["url"] == "http://canned.invalid"


def test_headers_may_be_added(workspace: Workspace, server: LoopbackServer) -> None:
    workspace.dataset(CASE)
    workspace.write(
        "conftest.py",
        "import pytest\n"
        "@pytest.fixture(scope='session')\n"
        "def taguru_http(taguru_http):\n"
        "    taguru_http.headers['X-Team'] = 'search'\n"
        "    taguru_http.headers['Authorization'] = 'Basic nonsense'\n"
        "    return taguru_http\n",
    )
    assert_found(workspace.evaluate(server.url, TAGURU_API_TOKEN="token"))
    assert {request.headers["x-team"] for request in server.requests} == {"search"}
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer token"}


def test_the_session_may_be_another_one(workspace: Workspace, server: LoopbackServer) -> None:
    workspace.dataset(CASE)
    workspace.write(
        "conftest.py",
        "import pytest, requests\n"
        "@pytest.fixture(scope='session')\n"
        "def taguru_http():\n"
        "    with requests.Session() as session:\n"
        "        session.headers['X-Mine'] = 'yes'\n"
        "        yield session\n",
    )
    assert_found(workspace.evaluate(server.url))
    assert {request.headers["x-mine"] for request in server.requests} == {"yes"}


def test_the_library_responses_works(workspace: Workspace) -> None:
    """It replaces the adapter's own `send`, as mocking libraries for requests do."""
    workspace.dataset(CASE)
    workspace.write(
        "conftest.py",
        "import pytest, responses\n"
        "@pytest.fixture(scope='session')\n"
        "def taguru_url():\n"
        "    url = 'http://mocked.invalid'\n"
        "    with responses.RequestsMock(assert_all_requests_are_fired=True) as mock:\n"
        "        mock.get(f'{url}/health', json={'status': 'ok', 'version': '0.9.7'})\n"
        "        revision = {'graph': 1, 'passages': 1, 'config': 0}\n"
        "        reading = {'revision': revision, 'usage': {'last_write_epoch': 7}}\n"
        "        mock.get(f'{url}/contexts/sake', json={'result': reading})\n"
        "        model = {'provider_model': None}\n"
        "        mock.get(f'{url}/contexts/sake/embeddings', json={'result': model})\n"
        "        pages = f'{url}/contexts/sake/sources'\n"
        "        mock.get(pages, json={'result': {'sources': ['corpus/water.md']}})\n"
        "        mock.get(pages, json={'result': {'sources': []}})\n"
        "        hits = [{'source': 'corpus/water.md', 'paragraph': 0}]\n"
        "        mock.post(f'{pages}/search', json={'result': hits})\n"
        "        yield url\n",
    )
    assert_found(workspace.run("--taguru-eval=eval.jsonl", "--taguru-context=sake"))


# -- fixtures around the cases ---------------------------------------------------------------


AROUND = """
import pytest
from pathlib import Path

def note(text):
    with Path("order").open("a") as order:
        print(text, file=order)

@pytest.fixture(scope="session", autouse=True)
def whole_session():
    note("session")
    yield
    note("session ends")

@pytest.fixture(scope="package", autouse=True)
def whole_package():
    note("package")

@pytest.fixture(scope="module", autouse=True)
def whole_module(request):
    note(f"module {Path(request.node.path).name} {request.module is not None}")

@pytest.fixture(autouse=True)
def around(request, tmp_path, monkeypatch, capsys):
    assert request.cls is None
    note(f"before {request.node.name}")
    yield
    note(f"after {request.node.name}")
"""


def test_autouse_fixtures_of_every_scope_apply(
    workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.dataset(CASE, {**CASE, "case_id": "d"}, name="quality/eval.jsonl")
    workspace.write("quality/conftest.py", AROUND)
    run = workspace.run(
        "--taguru-eval=quality/eval.jsonl", "--taguru-context=sake", f"--taguru-url={server.url}"
    )
    assert run.status == 0, run.shown
    assert (workspace.directory / "order").read_text().splitlines() == [
        "session",
        "package",
        "module eval.jsonl True",
        "before c",
        "after c",
        "before d",
        "after d",
        "session ends",
    ]


def test_an_ordinary_test_may_use_the_fixtures(
    workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.dataset(CASE)
    workspace.write(
        "test_ordinary.py",
        "import requests\n"
        "def test_ordinary(taguru_url, taguru_http):\n"
        f"    assert taguru_url == {server.url!r}\n"
        "    assert isinstance(taguru_http, requests.Session)\n"
        "    assert taguru_http.get(taguru_url + '/health').status_code == 200\n",
    )
    assert_found(workspace.evaluate(server.url))


def test_fixtures_are_listed_with_their_words(workspace: Workspace) -> None:
    workspace.dataset(CASE)
    run = workspace.evaluate(NOWHERE, "--fixtures")
    assert run.status == 0, run.shown
    for name in ("taguru_url", "taguru_http", "taguru_run", "taguru_case"):
        assert f"\n{name} " in run.stdout
    assert "no docstring available" not in run.stdout.split("taguru_url", 1)[1][:600]


# -- the hooks -------------------------------------------------------------------------------


def test_a_hook_sees_every_case_and_another_may_extend_the_artifact(
    workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.dataset(CASE, {**CASE, "case_id": "d::[1]"})
    workspace.write(
        "conftest.py",
        "from pathlib import Path\n"
        "def pytest_taguru_case(item, block):\n"
        "    with Path('seen').open('a') as seen:\n"
        "        print(block.case_id, block.recall.recall_at_k, item.nodeid, file=seen)\n"
        "def pytest_taguru_artifact(config, artifact):\n"
        "    assert 'cases' not in artifact\n"
        "    artifact.setdefault('extensions', {})['mine'] = {'rows': 2}\n",
    )
    run = workspace.evaluate(server.url)
    assert run.status == 0, run.shown
    first, second = (workspace.directory / "seen").read_text().splitlines()
    assert first == "c 1.0 eval.jsonl::c"
    assert second.startswith("d::[1] 1.0 eval.jsonl::")
    assert second.count("::") == 2, "the node's name is escaped, the case id is not"
    artifact = run.artifact()
    assert artifact["extensions"] == {"mine": {"rows": 2}}
    assert [case["case_id"] for case in artifact["cases"]] == ["c", "d::[1]"]


def test_a_hook_may_add_nothing_but_extensions(
    workspace: Workspace, server: LoopbackServer
) -> None:
    workspace.dataset(CASE)
    workspace.write(
        "conftest.py",
        "def pytest_taguru_artifact(config, artifact):\n"
        "    artifact['inputs']['context'] = 'another'\n"
        "    artifact['mine'] = 1\n",
    )
    run = workspace.evaluate(server.url)
    if run.status == 0:  # ignored
        assert "mine" not in run.artifact()
        assert run.artifact()["inputs"]["context"] == "sake"
    else:  # refused
        assert run.status == 1, run.shown
        assert not (workspace.directory / "evaluation.json").exists()
        assert run.complaints
