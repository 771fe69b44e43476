"""Time and memory of comparing two artifacts of 20,000 cases, next to the original program.

    python benchmarks/compare_20000.py [--cases 20000] [--rounds 7] [--moved 0.1] [--keep DIR]

Both run as whole processes on the same files, taking turns, so that load hits both alike. The
original is the `taguru` on PATH, or TAGURU_TEST_BIN. The ratio is of the medians.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = Path(__file__).parents[1] / "tests" / "golden" / "compare" / "same" / "base.json"
FILES = ("base.json", "head.json")
LIMIT = 1.5
_SHARES = (("recall", "recall_at_k"), ("recall", "mrr"), ("recall", "ndcg"))


def main() -> int:
    """Generate, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--moved", type=float, default=0.1, help="share of cases that change")
    parser.add_argument("--keep", type=Path, help="generate into this directory and leave it")
    options = parser.parse_args()
    original = os.environ.get("TAGURU_TEST_BIN") or shutil.which("taguru")
    ours = Path(sysconfig.get_path("scripts")) / "taguru-eval-compare"
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        # A child's peak memory starts at its parent's, so the parent must stay small.
        _apart(generate, directory, options.cases, options.moved)
        commands = {"taguru-eval-compare": [str(ours), *FILES, "--out", "ours.jsonl"]}
        if original:
            commands["taguru"] = [original, "evaluate", "compare", *FILES, "--out", "theirs.jsonl"]
        measured = measure(commands, directory, options.rounds)
        size = sum((directory / file).stat().st_size for file in FILES) / 1e6
    report(measured, options.cases, size)
    return 0


def _apart(work: Callable[..., None], *arguments: object) -> None:
    child = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    child.start()
    child.join()
    if child.exitcode:
        sys.exit("the artifacts could not be generated")


def generate(directory: Path, cases: int, moved: float) -> None:
    """Write base.json and head.json from the cases of a recorded run, over and over."""
    artifact = json.loads(SEED.read_text("utf-8"))
    templates = artifact["cases"]
    rng = random.Random(7)
    for name in FILES:
        artifact["cases"] = [
            _case(templates[number % len(templates)], number) for number in range(cases)
        ]
        if name == FILES[1]:
            for case in artifact["cases"]:
                if rng.random() < moved:
                    _move(case, rng)
        text = json.dumps(artifact, ensure_ascii=False, indent=2)
        (directory / name).write_text(text, "utf-8")


def _case(template: dict[str, Any], number: int) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(json.dumps(template))
    case["case_id"] = f"{case['case_id']}-{number:05d}"
    return case


def _move(case: dict[str, Any], rng: random.Random) -> None:
    """Give every deciding metric of a case another value."""
    for block, field in _SHARES:
        if block in case:
            case[block][field] = rng.random() if field == "ndcg" else rng.choice((0, 0.5, 1))
    for share in case.get("coverage", {}).values():
        share["value"] = rng.choice((0, 0.5, 1))
    for part in ("recall", "validity"):
        if "citations" in case:
            case["citations"][part]["value"] = rng.choice((0, 0.5, 1))
    case["diversity_sources"] = rng.randint(1, 6)


def measure(
    commands: dict[str, list[str]], directory: Path, rounds: int
) -> dict[str, tuple[list[float], float]]:
    """Seconds of each round and peak megabytes, per command."""
    measured: dict[str, tuple[list[float], float]] = {name: ([], 0.0) for name in commands}
    for _ in range(rounds + 1):  # the first one warms the file cache and does not count
        for name, command in commands.items():
            started = time.perf_counter()
            peak = _run(command, directory)
            measured[name][0].append(time.perf_counter() - started)
            measured[name] = measured[name][0], max(measured[name][1], peak)
    return {name: (seconds[1:], peak) for name, (seconds, peak) in measured.items()}


def _run(command: list[str], directory: Path) -> float:
    """Run one command and return its peak resident set, in megabytes."""
    process = subprocess.Popen(
        command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    # Unlike RUSAGE_CHILDREN, wait4 tells one child from the others.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[0]} ended with status {process.returncode}")
    return usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def report(measured: dict[str, tuple[list[float], float]], cases: int, size: float) -> None:
    """Print the table."""
    lines = [
        f"2 artifacts of {cases} cases, {size:.0f} MB together, Python {sys.version.split()[0]}",
        f"{'':22}{'median s':>10}{'best s':>10}{'worst s':>10}{'peak MB':>10}",
    ]
    for name, (seconds, peak) in measured.items():
        figures = (statistics.median(seconds), min(seconds), max(seconds))
        lines.append(f"{name:22}{''.join(f'{it:>10.3f}' for it in figures)}{peak:>10.0f}")
    if "taguru" in measured:
        ours, theirs = (statistics.median(seconds) for seconds, _ in measured.values())
        lines.append(f"ratio {ours / theirs:.2f} (aim: at most {LIMIT})")
    else:
        lines.append("no `taguru` found: nothing to compare with")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
