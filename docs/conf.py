"""The documentation site: the Markdown of this directory, as it stands, built by Sphinx.

The pages are plain Markdown, readable where they lie. So none of them has a toctree: the map,
index.md, links every page under a heading, and those links are the navigation. A page that the
map forgets is in no toctree, which fails the build. Links to files of the repository become
downloads here, since they are no pages.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

_PROJECT = tomllib.loads(
    (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
)["project"]

project = _PROJECT["name"]
release = _PROJECT["version"]
copyright = _PROJECT["authors"][0]["name"]
html_title = f"{project} {release}"

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3

html_theme = "furo"
html_copy_source = False
html_show_sourcelink = False

_HEADING = re.compile(r"^## (.+)$", re.M)
_PAGE = re.compile(r"\]\((?!\.\./)([\w/-]+)\.md\)")


def _toctrees(text: str) -> Iterator[str]:
    """A hidden toctree for each section of the map that links pages; a page stands where first."""
    _, *parts = _HEADING.split(text)
    placed: set[str] = set()
    for caption, section in zip(parts[::2], parts[1::2], strict=True):
        pages = [page for page in dict.fromkeys(_PAGE.findall(section)) if page not in placed]
        placed.update(pages)
        if pages:
            lines = ["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]
            yield "\n".join(lines)


def _prepare(_app: Sphinx, document: str, content: list[str]) -> None:
    up = re.escape("../" * (document.count("/") + 1))
    content[0] = re.sub(rf"\]\(({up}[^)#]+)(?:#[^)]*)?\)", r"](path:\1)", content[0])
    if document == "index":
        content[0] = "\n\n".join([content[0], *_toctrees(content[0])]) + "\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _prepare)
