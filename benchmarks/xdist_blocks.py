"""What it costs to send blocks from xdist's workers: the same items with blocks and without.

    python benchmarks/xdist_blocks.py [ITEMS [BYTES [ROUNDS]]]

Each item is a test that does nothing, so that all there is to pay for beside pytest itself is the
block: JSON text on its call report, through execnet, kept by the controller in a BlockStore. It
exits with 1 if the blocks make a run of the fastest rounds more than a fifth slower.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ALLOWED = 1.2

TESTS = """
import pytest

@pytest.mark.parametrize("number", range({items}))
def test_nothing(number):
    pass
"""

CONFTEST = """
import json
import pytest

from pytest_taguru.engine.store import BlockStore

HIT = {{"source": "corpus/brewery.md", "paragraph": 0, "score": 1.5, "lanes": {{}}}}
BLOCK = json.dumps([HIT] * ({bytes} // len(json.dumps(HIT)) + 1))[:{bytes}]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and item.config.getoption("blocks"):
        report.taguru_block = BLOCK
    return report


class Controller:
    def __init__(self):
        self.store = BlockStore()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report):
        block = report.__dict__.pop("taguru_block", None)
        if block is not None:
            self.store.put(len(self.store), block.encode("utf-8"))

    def pytest_sessionfinish(self):
        print(f"KEPT {{len(self.store)}} {{sum(map(len, self.store.encoded()))}}")
        self.store.close()


def pytest_addoption(parser):
    parser.addoption("--blocks", action="store_true")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller())
"""


def seconds(directory: Path, *, blocks: bool, items: int, size: int) -> float:
    """The wall time of one run, checked for what it kept."""
    flags = ["--blocks"] if blocks else []
    plain = ["-q", "-p", "xdist", "-n", "2", "-p", "no:cacheprovider"]
    started = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *plain, *flags],
        cwd=directory,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    took = time.perf_counter() - started
    kept = f"KEPT {items} {items * size}" if blocks else "KEPT 0 0"
    if kept not in ended.stdout:
        raise SystemExit(f"{kept} was expected:\n{ended.stdout}")
    return took


def main(arguments: list[str]) -> int:
    """Measure in turns and print a table."""
    defaults = ["2000", "20000", "5"]
    items, size, rounds = map(int, arguments + defaults[len(arguments) :])
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "pytest.ini").write_text("[pytest]\n")
        (directory / "test_nothing.py").write_text(TESTS.format(items=items))
        (directory / "conftest.py").write_text(CONFTEST.format(bytes=size))
        without, sent = [], []
        for _ in range(rounds):
            without.append(seconds(directory, blocks=False, items=items, size=size))
            sent.append(seconds(directory, blocks=True, items=items, size=size))
    ratio = min(sent) / min(without)
    say = sys.stdout.write
    say(f"{items} items, -n 2, {rounds} rounds in turns: fastest (all), seconds\n")
    for title, measured in (("without blocks", without), (f"blocks of {size:,} bytes", sent)):
        every = " ".join(f"{one:.2f}" for one in measured)
        say(f"| {title:24} | {min(measured):6.2f} | {every} |\n")
    say(f"ratio {ratio:.3f}, at most {ALLOWED} allowed\n")
    return int(ratio > ALLOWED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
