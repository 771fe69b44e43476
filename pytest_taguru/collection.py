"""The dataset as a collected file and its cases as items.

The one file that leans on how pytest collects. What it relies on was tried on pytest 8.4 to 9.2;
each place says what would go wrong otherwise.
"""

from __future__ import annotations

import hashlib
import os
import re
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .engine.errors import InputError
from .engine.run import strict_reason
from .state import STATE
from .texts import failure_text, rerun_command, skip_text
from .warnings import TaguruWarning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .engine.blocks import CaseBlock
    from .engine.dataset import Case
    from .settings import Settings

MAX_NAME = 120
#: What is kept of a longer name, before an ellipsis and some digits of a hash.
KEPT = 106
_DIGITS = 12
#: What would be taken apart in a node id, or break the tools that read one.
_ESCAPED = frozenset("[]\\@")
#: Most names: nothing to escape, nothing to cut.
_PLAIN = re.compile(rf"[ -9;-?A-Z^-~]{{1,{MAX_NAME}}}")


def case_name(case_id: str) -> str:
    """A case id as a node name: what node ids cannot hold is escaped, a long one cut.

    `::` and `[` are taken apart by `file::name` and by --lf, `@` is a group of xdist's loadgroup,
    control characters and surrogates break JUnit XML, the cache and execnet.
    """
    if _PLAIN.fullmatch(case_id):
        return case_id
    pieces: list[str] = []
    for position, char in enumerate(case_id):
        code = ord(char)
        colon = char == ":" and (
            position == 0 or ":" in (case_id[position - 1], case_id[position + 1 : position + 2])
        )
        if char in _ESCAPED or colon or code < 0x20 or 0x7F <= code < 0xA0:
            pieces.append(f"\\x{code:02x}")
        elif 0xD800 <= code < 0xE000 or code in (0x2028, 0x2029, 0xFFFE, 0xFFFF):
            pieces.append(f"\\u{code:04x}")
        else:
            pieces.append(char)
    name = "".join(pieces)
    if len(name) <= MAX_NAME and not _looks_cut(name):
        return name
    digest = hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{name[:KEPT]}…{digest}"


def _looks_cut(name: str) -> bool:
    """Whether a name could be taken for that of a longer case id."""
    return len(name) == KEPT + 1 + _DIGITS and name[KEPT] == "…"


def case_names(cases: Sequence[Case]) -> list[str]:
    """The node names of a dataset's cases: stable, and unique whatever was escaped or cut."""
    return [case_name(case.case_id) for case in cases]


def file_nodeid(config: pytest.Config, path: Path) -> str:
    """The dataset's node id: relative to rootdir, or absolute outside of it.

    pytest's own choice outside rootdir is an empty one, with which --lf skips failing cases.
    """
    try:
        return path.relative_to(config.rootpath).as_posix()
    except ValueError:
        return path.as_posix()


class EvalFile(pytest.Module):
    """A dataset. A Module with an empty module object, so that fixtures of every scope work."""

    def _getobj(self) -> types.ModuleType:
        # Documented by pytest as the method to override for another underlying object.
        return types.ModuleType("taguru_eval", "Cases of a taguru dataset.")

    def collect(self) -> Iterator[EvalCase]:
        """One item per case, in the order of the dataset."""
        settings = self.config.stash[STATE].settings
        dataset = settings.dataset
        shared = None
        for index, name in enumerate(case_names(dataset.cases)):
            item = EvalCase.from_parent(
                self, name=name, callobj=judge, index=index, fixtureinfo=shared
            )
            # All cases have the same fixtures, as the sets of a parametrized test do, for which
            # pytest computes them once too (python.py, PyCollector._genfunctions). Worked out
            # for each case they are four fifths of what collecting costs. Private, hence the
            # default, with which it is only slower.
            shared = shared or getattr(item, "_fixtureinfo", None)
            yield item


class EvalCase(pytest.Function):
    """A case. A Function, so that fixtures, marks and every companion plugin work on it."""

    def __init__(self, *, index: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        dataset = self.config.stash[STATE].settings.dataset
        self.index = index
        self.case = dataset.cases[index]
        self.line = dataset.lines[index]
        self.block: CaseBlock | None = None
        self.violated = False
        self.extra_keyword_matches.add(self.case.case_id)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """The dataset's file and line, instead of this plugin's."""
        return self.path, self.line - 1, f"case {self.name}"


def judge(request: pytest.FixtureRequest, taguru_case: CaseBlock) -> None:
    """The test function of every case: it fails if a bound for the case is violated."""
    item: EvalCase = request.node
    settings = request.config.stash[STATE].settings
    violations = settings.gate.judge_case(taguru_case)[0] if settings.gate else []
    broken = [str(violation) for violation in violations]
    unmet = strict_reason(taguru_case) if settings.strict else None
    if unmet:
        broken.append(f"strict: {unmet}")
    if broken:
        item.violated = True
        where = f"{file_nodeid(item.config, item.path)}:{item.line}"
        text = failure_text(taguru_case, broken, where, rerun_command(item))
        pytest.fail(text, pytrace=False)
    failed = taguru_case.failed_calls()
    if failed:
        pytest.skip(skip_text(failed))


class Collection:
    """Adds the dataset to what pytest collects, whatever else it was told to."""

    def __init__(self, settings: Settings, config: pytest.Config) -> None:
        self._path = settings.eval.path
        self._node: EvalFile | None = None
        self._only = bool(config.getoption("taguru_only"))
        self._extend_arguments(config)

    def _extend_arguments(self, config: pytest.Config) -> None:
        """Name the dataset as an argument, unless one of them already leads to it.

        Earlier than pytest_configure the arguments would count as given by the user and testpaths
        be ignored; later, -k, --lf and --collect-only would not see it. Naming a file below
        another argument makes pytest up to 8.4 drop that argument's other tests.
        """
        given = [
            Path(os.path.normpath(config.invocation_params.dir / arg.partition("::")[0]))
            for arg in config.args
        ]
        named = [arg for arg, path in zip(config.args, given, strict=True) if path == self._path]
        if self._only:
            config.args[:] = named
        elif named or any(path in self._path.parents for path in given):
            return
        if not named and not any(mark in str(self._path) for mark in ("::", "[")):
            config.args.append(str(self._path))

    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """Take the dataset, whoever named it."""
        if file_path == self._path:
            return self._file_node(parent)
        return None

    def _file_node(self, parent: pytest.Collector) -> EvalFile:
        nodeid = file_nodeid(parent.config, self._path)
        self._node = EvalFile.from_parent(parent, path=self._path, nodeid=nodeid)
        self._node.add_marker(pytest.mark.taguru)
        return self._node

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """See to it that the cases are there, once, after the ordinary tests.

        They are not yet there when the dataset lies in a directory that pytest does not enter.
        """
        if self._node is None:
            items.extend(session.genitems(self._file_node(session)))
        cases = {item.nodeid: item for item in items if isinstance(item, EvalCase)}
        ordinary = [item for item in items if not isinstance(item, EvalCase)]
        items[:] = [*([] if self._only else ordinary), *cases.values()]


def warn_of_lost_rootdir(config: pytest.Config, path: Path) -> None:
    """Say so if pytest took the dataset for an argument when it looked for rootdir.

    It does with `--taguru-eval /elsewhere/eval.jsonl` as two words and nothing positional: then
    the project's ini file and testpaths are lost, which no plugin can prevent. Raises InputError
    where warnings are errors.
    """
    apart = "--taguru-eval" in map(str, config.invocation_params.args)
    if not apart or config.getoption("inifilename") or config.rootpath not in path.parents:
        return
    started = config.invocation_params.dir
    nearest = next(filter(_configures_pytest, (started, *started.parents)), None)
    if nearest is not None and (config.inipath is None or config.inipath.parent != nearest):
        warning = TaguruWarning(
            f"rootdir became {config.rootpath} because of --taguru-eval as a word of its own,"
            f" so the configuration in {nearest} was not found; write --taguru-eval=FILE"
        )
        try:
            config.issue_config_time_warning(warning, stacklevel=2)
        except TaguruWarning:  # a filter makes an error of it, which pytest would take for its own
            raise InputError(str(warning)) from None


def _configures_pytest(directory: Path) -> bool:
    """Whether a directory holds a file that pytest would have taken for its configuration."""
    if (directory / "pytest.ini").is_file() or (directory / ".pytest.ini").is_file():
        return True
    sections = {
        "pyproject.toml": "[tool.pytest",
        "tox.ini": "[pytest]",
        "setup.cfg": "[tool:pytest]",
    }
    for name, section in sections.items():
        try:
            if section in (directory / name).read_text("utf-8", "replace"):
                return True
        except OSError:
            continue
    return False
