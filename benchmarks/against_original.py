"""The whole pytest process against `taguru evaluate`, over lines of different latency.

usage: python benchmarks/against_original.py [--cases N] [--runs N]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from common import (
    CONTEXT,
    WITH_PLUGIN,
    binary,
    in_turn,
    median_ratio,
    median_seconds,
    seeded_server,
    slow_line,
    write_dataset,
)

#: Added milliseconds a round trip, and the ratio that is asked for.
LINES = ((0, 2.0), (10, 0.15), (50, 0.14))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=600)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--line", type=int, action="append", help="only these latencies")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, seeded_server() as base:
        folder = Path(name)
        write_dataset(folder / "eval.jsonl", args.cases)
        print(f"{'added ms':>8} {'original s':>11} {'ours s':>8} {'ratio':>7} {'wanted':>7}")
        for milliseconds, wanted in LINES:
            if args.line and milliseconds not in args.line:
                continue
            with slow_line(base, milliseconds) as url:
                runs = args.runs if milliseconds < 50 else min(args.runs, 2)
                timings = in_turn(
                    {
                        "ours": (ours(url, folder), folder),
                        "theirs": (theirs(url, folder), folder),
                    },
                    runs,
                )
            ratio = median_ratio(timings["ours"], timings["theirs"])
            print(
                f"{milliseconds:>8} {median_seconds(timings['theirs']):>11.2f}"
                f" {median_seconds(timings['ours']):>8.2f} {ratio:>7.3f} {wanted:>7.2f}",
                flush=True,
            )
        same = without_latency(folder / "ours.json") == without_latency(folder / "theirs.json")
        print("artifacts equal:", "yes" if same else "NO")


def ours(url: str, folder: Path) -> list[str]:
    """The plugin's command line."""
    return [
        *WITH_PLUGIN, "-q", "--taguru-only",
        "--taguru-eval=eval.jsonl", f"--taguru-context={CONTEXT}", f"--taguru-url={url}",
        f"--taguru-out={folder / 'ours.json'}",
    ]  # fmt: skip


def theirs(url: str, folder: Path) -> list[str]:
    """The original program's."""
    return [
        binary(), "evaluate", "--eval", "eval.jsonl", "--context", CONTEXT, "--url", url,
        "--out", str(folder / "theirs.json"),
    ]  # fmt: skip


def without_latency(file: Path) -> object:
    """The cases of an artifact without what differs from run to run."""
    text = file.read_text(encoding="utf-8")

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        return {key: value for key, value in items if key != "latency_ms"}

    return json.loads(text, object_pairs_hook=pairs)["cases"]


if __name__ == "__main__":
    main()
