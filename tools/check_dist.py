"""Build wheel and sdist into dist/, look into them, and run the example from the wheel.

    make dist

The wheel is installed into an empty environment, with pytest and nothing that only development
needs, and the example project is run there from its recording, away from this checkout.
"""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PROJECT = Path(__file__).parents[1]
DIST = PROJECT / "dist"
PACKAGE = "pytest_taguru"

SCHEMAS = {"eval-case", "eval-header", "thresholds"}
ENTRY_POINTS = {
    ("pytest11", "taguru", "pytest_taguru.plugin"),
    ("console_scripts", "taguru-eval-compare", "pytest_taguru.compare:main"),
}
IN_SDIST = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "constraints.txt",
    "docs/conf.py",
    "docs/howto/ci.md",
    "docs/index.md",
    "example_project/recording.jsonl",
    "pyproject.toml",
    "pytest_taguru/py.typed",
    "tests/conftest.py",
    "tools/check_dist.py",
)
#: What a run leaves behind, or what is a machine's own.
NEVER = ("__pycache__", ".pyc", ".venv", ".git/", "_build", "evaluation.json", ".egg-info")
#: Names of golden files of the tests, which are no leftovers.
EXCEPT = "/tests/golden/"


class Refused(Exception):  # noqa: N818 - it is a verdict
    """What is built is not fit to be released."""


def main() -> int:
    """Do it all; 0 if the package is fit to be released."""
    try:
        wheel, sdist = build()
        check_wheel(wheel)
        check_sdist(sdist)
        run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)])
        run_example(wheel)
    except Refused as refused:
        print(f"refused: {refused}", file=sys.stderr)
        return 1
    print(f"fit to be released: {wheel.name}, {sdist.name}")
    return 0


def run(
    command: Sequence[str], directory: Path = PROJECT, expected: int = 0, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command that must end with a status; what it prints is shown if it does not."""
    ours = ("TAGURU_", "PYTEST_", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    ended = subprocess.run(
        command,
        cwd=directory,
        env={**kept, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if ended.returncode != expected:
        shown = f"{ended.stdout}{ended.stderr}".strip()
        raise Refused(f"{' '.join(command)}: status {ended.returncode}\n{shown}")
    return ended


def build() -> tuple[Path, Path]:
    """Wheel and sdist of this checkout; the wheel is built from the sdist, as others would."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--outdir", str(DIST), str(PROJECT)])
    wheels, sdists = sorted(DIST.glob("*.whl")), sorted(DIST.glob("*.tar.gz"))
    if (len(wheels), len(sdists)) != (1, 1):
        raise Refused(f"built {[file.name for file in (*wheels, *sdists)]}")
    return wheels[0], sdists[0]


def check_wheel(wheel: Path) -> None:
    """What an installation gets: the package, its schemas and entry points, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        points = configparser.ConfigParser()
        points.read_string(archive.read(f"{info}/entry_points.txt").decode())
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
    refuse_leftovers(wheel.name, names)
    others = sorted({name.partition("/")[0] for name in names} - {PACKAGE, info})
    if others:
        raise Refused(f"{wheel.name} also holds {', '.join(others)}")
    wanted = {f"{PACKAGE}/schemas/{name}.schema.json" for name in SCHEMAS}
    wanted |= {f"{PACKAGE}/py.typed", f"{info}/licenses/LICENSE"}
    sources = (PROJECT / PACKAGE).rglob("*.py")
    wanted |= {source.relative_to(PROJECT).as_posix() for source in sources}
    missing = sorted(wanted - set(names))
    if missing:
        raise Refused(f"{wheel.name} lacks {', '.join(missing)}")
    found = {(group, *item) for group in points.sections() for item in points.items(group)}
    if found != ENTRY_POINTS:
        raise Refused(f"{wheel.name} has the entry points {sorted(found)}")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    if metadata["Version"] != project["version"]:
        raise Refused(f"{wheel.name} says that it is {metadata['Version']}")
    if "Framework :: Pytest" not in (metadata.get_all("Classifier") or []):
        raise Refused(f"{wheel.name} does not say that it is a pytest plugin")


def check_sdist(sdist: Path) -> None:
    """What a distributor gets: all that is needed to test and document the package again."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    refuse_leftovers(sdist.name, names)
    missing = [name for name in IN_SDIST if name not in names]
    if missing:
        raise Refused(f"{sdist.name} lacks {', '.join(missing)}")


def refuse_leftovers(where: str, names: Sequence[str] | set[str]) -> None:
    """Nothing that a run or a machine left behind."""
    left = [
        name for name in names if EXCEPT not in f"/{name}" and any(part in name for part in NEVER)
    ]
    if left:
        raise Refused(f"{where} holds {', '.join(sorted(left))}")


def run_example(wheel: Path) -> None:
    """The example from its recording, with nothing installed but the wheel and what it needs."""
    with tempfile.TemporaryDirectory() as directory:
        here = Path(directory)
        environment = here / "venv"
        venv.create(environment, with_pip=True)
        scripts = environment / ("Scripts" if sys.platform == "win32" else "bin")
        python = str(scripts / "python")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        run([*pip, str(wheel)], here)
        unwanted = shutil.ignore_patterns("__pycache__", ".*_cache", "evaluation.json")
        example = shutil.copytree(PROJECT / "example_project", here / "example", ignore=unwanted)
        where = f"import {PACKAGE}; print({PACKAGE}.__file__)"
        installed = Path(run([python, "-I", "-c", where], example).stdout.strip())
        if not installed.is_relative_to(environment):
            raise Refused(f"the example would run with {installed}, not with the wheel")
        pytest = [python, "-m", "pytest", "-q"]
        flags = ["--taguru-eval=eval.jsonl", "--taguru-replay=recording.jsonl"]
        run([*pytest, *flags], example)
        artifact = json.loads((example / "evaluation.json").read_text("utf-8"))
        if not artifact["thresholds"]["passed"]:
            raise Refused("the example's thresholds are violated")
        strict = "--taguru-thresholds=thresholds-strict.json"
        run([*pytest, *flags, strict, "--taguru-out=strict.json"], example, expected=3)
        run([str(scripts / "taguru-eval-compare"), "evaluation.json", "strict.json"], example)
        run([*pytest, "--collect-only"], example)


if __name__ == "__main__":
    sys.exit(main())
