"""Write constraints.txt: the newest versions of all that development needs, tried together.

    make constraints

They are what pip chooses in an empty environment of the Python that runs this; use the lowest one
that is supported, so that the versions are there for all others too.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROJECT = Path(__file__).parents[1]
FILE = PROJECT / "constraints.txt"
HEADER = """\
# The versions that this project is developed and tested with. Only `make` uses them, and whoever
# installs the package is not held to them. Written by `make constraints`.
"""


def main() -> None:
    """Install everything into an empty environment and write down what came."""
    with tempfile.TemporaryDirectory() as directory:
        environment = Path(directory) / "venv"
        venv.create(environment, with_pip=True)
        scripts = environment / ("Scripts" if sys.platform == "win32" else "bin")
        pip = [str(scripts / "python"), "-m", "pip", "--disable-pip-version-check"]
        # Dependency groups came with pip 25.1.
        subprocess.run([*pip, "install", "--quiet", "--upgrade", "pip>=25.1"], check=True)
        wanted = ["--editable", ".", "--group", "dev"]
        subprocess.run([*pip, "install", "--quiet", *wanted], cwd=PROJECT, check=True)
        freeze = [*pip, "freeze", "--exclude-editable"]
        frozen = subprocess.run(freeze, check=True, capture_output=True, text=True).stdout
    pins = sorted(frozen.splitlines(), key=lambda pin: pin.partition("==")[0].lower())
    strange = [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.!+-]+", pin)]
    if strange:
        sys.exit(f"not a plain version: {', '.join(strange)}")
    FILE.write_text(HEADER + "".join(f"{pin}\n" for pin in pins), encoding="utf-8")
    print(f"{FILE.name}: {len(pins)} packages")


if __name__ == "__main__":
    main()
