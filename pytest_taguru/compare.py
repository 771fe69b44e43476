"""The console script `taguru-eval-compare`: two artifacts compared, or one judged again."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import __version__
from .engine.comparison import (
    DECIDING,
    FAIL_ON,
    Artifact,
    compare,
    parse_max_drops,
    read_artifact,
    reasons,
)
from .engine.errors import EvaluationError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "taguru-eval-compare"
VIOLATED = 3
_DEFAULT_OUT = "changes.jsonl"

_DESCRIPTION = """\
Compare two evaluation.json files case by case and write changes.jsonl, one line per case that
is not as it was. The metrics listed below decide whether a case improved or regressed.

  {program} baseline.json evaluation.json
  {program} baseline.json evaluation.json --fail-on regressed --max-drop recall.ndcg=0.02
  {program} baseline.json evaluation.json --format markdown > comment.md
  {program} --judge evaluation.json --thresholds thresholds.json
"""
_EPILOG = """\
Exit status: 0 compared, whatever was found; 1 the changes could not be written; 2 a usage error,
or a file that is not an evaluation.json; 3 a reason that was asked for with --fail-on or
--max-drop, or with --judge a violated bound.

The metrics that decide, each of which --max-drop takes:
  {metrics}
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: {message} (see {PROGRAM} --help)\n")


class _Once(argparse.Action):
    """A flag of which a second one is a mistake, not a correction."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice")
        if not str(values).strip():
            parser.error(f"{option_string} is blank")
        setattr(namespace, self.dest, values)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} BASE.json HEAD.json [options]\n"
        f"       {PROGRAM} --judge evaluation.json --thresholds FILE [--format FORMAT]",
        description=_DESCRIPTION.format(program=PROGRAM),
        epilog=_EPILOG.format(metrics="\n  ".join(DECIDING)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "artifacts", nargs="*", metavar="BASE.json HEAD.json", help="the earlier and the later run"
    )
    parser.add_argument(
        "--out", action=_Once, metavar="FILE", help=f"where the changes go ({_DEFAULT_OUT})"
    )
    parser.add_argument(
        "--format",
        action=_Once,
        choices=("text", "markdown", "json"),
        help="of the summary on standard output (text); markdown fits a pull request comment",
    )
    gate = parser.add_argument_group("making it fail (status 3)")
    gate.add_argument(
        "--fail-on",
        action="append",
        choices=FAIL_ON,
        default=[],
        help="if any case regressed or was removed, or the runs are less comparable; repeatable",
    )
    gate.add_argument(
        "--max-drop",
        action="append",
        default=[],
        metavar="METRIC=VALUE",
        help="if a metric's mean over the paired cases fell by more than VALUE; repeatable",
    )
    again = parser.add_argument_group("judging again, without a server")
    again.add_argument("--judge", action=_Once, metavar="FILE", help="the evaluation.json to judge")
    again.add_argument(
        "--thresholds", action=_Once, metavar="FILE", help="the thresholds file to judge it by"
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    collecting = gc.isenabled()
    gc.disable()  # of all the cases nothing is garbage, and looking for it takes a while
    try:
        return _run(parser, options)
    finally:
        if collecting:
            gc.enable()


def _run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    # A case id may hold what the terminal's encoding does not; that must not end in a traceback.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _judge(parser, options) if _judging(options) else _compare(parser, options)
    except EvaluationError as error:
        for problem in error.problems:
            _complain(problem)
        return error.status


def _show(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough; what is left to say must not fail at exit again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(line: str) -> None:
    from .engine.words import printable  # not needed as long as all is well

    sys.stderr.write(f"{PROGRAM}: {printable(line)}\n")


def _judging(options: argparse.Namespace) -> bool:
    return options.judge is not None or options.thresholds is not None


# -- comparing -------------------------------------------------------------------------------


def _compare(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    files: list[str] = options.artifacts
    if len(files) != 2:
        parser.error(f"expected BASE.json and HEAD.json, got {len(files)} file(s)")
    max_drop = parse_max_drops(options.max_drop, "--max-drop")
    out = options.out or _DEFAULT_OUT
    if any(Path(out).resolve() == Path(file).resolve() for file in files):
        parser.error(f"--out {out} would replace a file that is being compared")
    base, head = _side("BASE", files[0]), _side("HEAD", files[1])
    comparison = compare(base, head)

    from . import changes_view as view
    from .engine.files import write_atomically
    from .engine.words import printable

    sys.stderr.writelines(
        f"{PROGRAM}: warning: {printable(warning)}\n" for warning in comparison.warnings
    )
    failed = reasons(comparison, options.fail_on, max_drop)
    write_atomically(Path(out), out, [comparison.lines()])
    if options.format == "markdown":
        _show(view.markdown(comparison, shown=out, failed=failed))
    elif options.format == "json":
        _show(view.as_json(comparison, shown=out, failed=failed).decode() + "\n")
    else:
        lines = view.summary_lines(comparison, shown=out, failed=failed, colour=_colour())
        _show("\n".join(lines) + "\n")
        return VIOLATED if failed else 0
    for reason in failed:
        _complain(f"failed: {reason}")
    return VIOLATED if failed else 0


def _side(name: str, file: str) -> Artifact:
    try:
        return read_artifact(Path(file), file)
    except InputError as error:
        raise InputError(*(f"{name} {problem}" for problem in error.problems)) from None


def _colour() -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


# -- judging again ---------------------------------------------------------------------------


def _judge(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.judge is None or options.thresholds is None:
        parser.error("--judge and --thresholds go together")
    if options.artifacts or options.out or options.fail_on or options.max_drop:
        parser.error("--judge takes one artifact and --thresholds, nothing of a comparison")
    if options.format == "markdown":
        parser.error("--judge prints text or json")

    import msgspec

    from .engine.verdict import judge_again
    from .engine.words import printable

    report = judge_again(
        Path(options.judge), options.judge, Path(options.thresholds), options.thresholds
    )
    if options.format == "json":
        _show(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
        return 0 if report.passed else VIOLATED
    skipped = report.skipped if isinstance(report.skipped, list) else []
    lines = [f"skipped: {line}" for line in skipped]
    for violation in report.broken:
        where = f"case {violation.case_id}: " if isinstance(violation.case_id, str) else ""
        lines.append(f"violated: {where}{violation}")
    verdict = "passed" if report.passed else f"failed, {len(report.broken)} violation(s)"
    lines.append(f"{options.judge} by {options.thresholds}: {verdict}")
    _show("".join(f"{printable(line)}\n" for line in lines))
    return 0 if report.passed else VIOLATED


if __name__ == "__main__":
    sys.exit(main())
