"""Two workers of pytest-xdist against one process, on a real server, near and far.

usage: python benchmarks/scale_out.py [--cases N] [--runs N]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from against_original import ours, without_latency
from common import (
    in_turn,
    median_ratio,
    median_seconds,
    seeded_server,
    slow_line,
    write_dataset,
)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=600)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, seeded_server() as base:
        alone, spread = Path(name) / "alone", Path(name) / "spread"
        for folder in (alone, spread):
            folder.mkdir()
            write_dataset(folder / "eval.jsonl", args.cases)
        print(f"{args.cases} cases")
        print(f"{'added ms':>8} {'-n 0 s':>8} {'-n 2 s':>8} {'ratio':>7}")
        for milliseconds in (0, 10):
            with slow_line(base, milliseconds) as url:
                timings = in_turn(
                    {
                        "-n 0": ([*ours(url, alone), "-p", "xdist", "-n", "0"], alone),
                        "-n 2": ([*ours(url, spread), "-p", "xdist", "-n", "2"], spread),
                    },
                    args.runs,
                )
            ratio = median_ratio(timings["-n 2"], timings["-n 0"])
            print(
                f"{milliseconds:>8} {median_seconds(timings['-n 0']):>8.2f}"
                f" {median_seconds(timings['-n 2']):>8.2f} {ratio:>7.2f}",
                flush=True,
            )
        same = without_latency(alone / "ours.json") == without_latency(spread / "ours.json")
        print("artifacts equal:", "yes" if same else "NO")


if __name__ == "__main__":
    main()
