"""Runs of pytest in processes of their own, cheap enough for hundreds of them.

Most of a short pytest run is spent on importing pytest. So one helper process imports it (and
the libraries the plugin needs, but not the plugin) once, and forks for each run. What runs is
`pytest` as the console script runs it, in a fresh process with its own directory, environment
and streams. Where there is no fork, each run is a subprocess.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROJECT = Path(__file__).parents[2]
GOLDEN = PROJECT / "tests" / "golden"


def tried_elsewhere() -> str | None:
    """A complaint if runs would try another copy of the plugin than the one beside these tests.

    So it is in a copied checkout with the environment of the first. Asked of a new interpreter:
    this one may have found the right copy in the current directory.
    """
    asked = subprocess.run(
        [sys.executable, "-I", "-c", "import pytest_taguru; print(pytest_taguru.__file__)"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    found = Path(asked.stdout.strip()).parent.resolve() if asked.returncode == 0 else None
    wanted = PROJECT / "pytest_taguru"
    if found == wanted.resolve():
        return None
    return (
        f"{sys.executable} imports pytest_taguru from {found or 'nowhere'}, but these are the tests"
        f" of {wanted}; use an environment of this checkout, as `make test` does"
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run that ended; `directory` is where it ran."""

    directory: Path
    status: int
    stdout: str
    stderr: str

    @property
    def shown(self) -> str:
        """Everything that was printed, for messages of failed tests."""
        return f"status {self.status}\n{self.stdout}\n--- stderr\n{self.stderr}"

    @property
    def complaints(self) -> list[str]:
        """The plugin's own lines on stderr."""
        return [line for line in self.stderr.splitlines() if line.startswith("taguru: ")]

    def artifact(self, name: str = "evaluation.json") -> Any:
        """The artifact that the run wrote."""
        return json.loads((self.directory / name).read_text("utf-8"))


#: Plugins that would reorder, repeat or decorate a run; tests/companions try them one by one.
COMPANIONS = (
    "html",
    "html_fixtures",
    "metadata",
    "pytest-split",
    "pytest_cov",
    "pytest_jsonreport",
    "randomly",
    "rerunfailures",
    "timeout",
)


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment for a run: nothing of ours, of pytest's or of a proxy's in it."""
    dropped = ("TAGURU_", "OTEL_", "PYTEST_")
    # With these pytest cuts nothing in its summary.
    in_ci = ("CI", "BUILD_NUMBER")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(dropped)
        and not name.lower().endswith("_proxy")
        and name not in in_ci
    }
    alone = " ".join(f"-p no:{name}" for name in COMPANIONS)
    return {**kept, "COLUMNS": "120", "NO_COLOR": "1", "PYTEST_ADDOPTS": alone, **extra}


class Launcher:
    """The helper process; a context manager."""

    def __init__(self) -> None:
        self._helper: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if hasattr(os, "fork"):
            self._helper = subprocess.Popen(
                [sys.executable, "-I", str(Path(__file__).with_name("forker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env=clean_environment(),
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._helper is not None:
            self._helper.communicate()
            self._helper = None

    def run(self, directory: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Run:
        """Run `pytest *arguments` in a directory and wait for its end."""
        if self._helper is None:
            return run_in_subprocess(directory, arguments, environment)
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        job = {
            "directory": str(directory),
            "arguments": list(arguments),
            "environment": dict(environment),
        }
        self._helper.stdin.write(json.dumps(job) + "\n")
        self._helper.stdin.flush()
        ended = json.loads(self._helper.stdout.readline())
        return Run(
            directory=directory,
            status=ended["status"],
            stdout=ended["stdout"],
            stderr=ended["stderr"],
        )


def run_in_subprocess(
    directory: Path, arguments: Sequence[str], environment: Mapping[str, str]
) -> Run:
    """The same without the helper."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
        check=False,
    )
    return Run(
        directory=directory, status=ended.returncode, stdout=ended.stdout, stderr=ended.stderr
    )


#: Plugins that these runs do not use and that take as long to import as pytest itself.
_WITHOUT = ("-p", "no:hypothesispytest", "-p", "no:anyio")
#: The original program's switches that take no value.
_SWITCHES = frozenset({"--assembly"})


def plugin_flags(flags: Sequence[str]) -> list[str]:
    """The original program's flags as the plugin's, values after an equals sign."""
    rest, ours = list(flags), []
    while rest:
        flag = rest.pop(0)
        name = flag.replace("--", "--taguru-", 1)
        ours.append(name if flag in _SWITCHES else f"{name}={rest.pop(0)}")
    return ours


class Workspace:
    """An empty project that treats warnings as errors, and the runs in it."""

    def __init__(self, launcher: Launcher, directory: Path) -> None:
        self._launcher = launcher
        self.directory = directory
        self.write("pytest.ini", "[pytest]\nfilterwarnings = error\n")

    def write(self, name: str, text: str) -> Path:
        """Put a file into the project."""
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8"))
        return file

    def dataset(self, *cases: Mapping[str, Any], name: str = "eval.jsonl") -> Path:
        """Write a dataset with a plain header."""
        lines = [{"taguru_eval": 1}, *cases]
        return self.write(name, "".join(json.dumps(line) + "\n" for line in lines))

    def thresholds(self, name: str = "thresholds.json", **members: Any) -> Path:
        """Write a thresholds file with its stamp."""
        return self.write(name, json.dumps({"taguru_evaluate_thresholds": 1, **members}))

    def corpus(self, name: str) -> None:
        """Copy the dataset and the thresholds of a golden corpus."""
        for file in (GOLDEN / name).iterdir():
            if file.name == "eval.jsonl" or file.name.startswith("thresholds-"):
                shutil.copy(file, self.directory)

    def run(self, *arguments: str, **environment: str) -> Run:
        """Run pytest here."""
        return self._launcher.run(
            self.directory, [*_WITHOUT, *arguments], clean_environment(**environment)
        )

    def evaluate(self, url: str, *arguments: str, context: str = "sake", **environment: str) -> Run:
        """Run pytest here with the dataset `eval.jsonl` against a server."""
        return self.run(
            "--taguru-eval=eval.jsonl",
            f"--taguru-context={context}",
            f"--taguru-url={url}",
            *arguments,
            **environment,
        )
