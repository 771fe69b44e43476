"""What the plugin costs a suite that does not use it: nothing that can be measured.

Pairs of whole processes, one with the plugin loaded and idle, one without it.

usage: python benchmarks/inactive.py [--pairs N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from common import PYTEST, WITH_PLUGIN, in_turn


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = "".join(f"def test_{number}():\n    pass\n\n\n" for number in range(1000))
        (folder / "test_empty.py").write_text(tests)
        (folder / "pytest.ini").write_text("[pytest]\n")
        print(f"{'':>16} {'blocked s':>10} {'idle s':>8} {'ratio':>7} {'wanted':>7}")
        for what, flags in (("--version", ["--version"]), ("1,000 tests", ["-q"])):
            timings = in_turn(
                {
                    "idle": ([*WITH_PLUGIN, *flags], folder),
                    "blocked": ([*PYTEST, *flags], folder),
                },
                args.pairs,
            )
            idle = [timing.seconds for timing in timings["idle"]]
            blocked = [timing.seconds for timing in timings["blocked"]]
            ratio = statistics.median(a / b for a, b in zip(idle, blocked, strict=True))
            print(
                f"{what:>16} {statistics.median(blocked):>10.3f}"
                f" {statistics.median(idle):>8.3f} {ratio:>7.3f} {1.01:>7.2f}"
            )


if __name__ == "__main__":
    main()
