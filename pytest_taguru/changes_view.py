"""A comparison as a person or a tool reads it: text, Markdown for a comment, JSON."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from .engine.comparison import DECIDING
from .engine.statistics import PAIRS_FOR_EVIDENCE, TOLERANCE
from .engine.words import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .engine.comparison import AggregateChange, CaseChange, Comparison, MetricChange
    from .engine.statistics import PairedStatistics

#: What GitHub takes in a comment is 65,536 characters; GitLab takes more.
MARKDOWN_LIMIT = 60_000
WORST_SHOWN = 10
_WARNINGS_SHOWN = 10
_SIGNIFICANT = 0.05
_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"

_AGGREGATE_TITLES = ("metric", "n", "base", "head", "delta")
_PAIRED_TITLES = ("metric", "pairs", "moved", "mean", "95 % interval", "p", "p (Holm)")


def summary_lines(
    comparison: Comparison,
    *,
    shown: str | None = None,
    failed: Sequence[str] = (),
    colour: bool = False,
    whole_runs: bool = True,
) -> list[str]:
    """The summary as lines of text; `shown` is where changes.jsonl is, `failed` why it fails.

    Without `whole_runs` only paired cases are shown: between a whole set and a selection of it
    an aggregate moves for no reason.
    """
    paint = _painted if colour else _unpainted
    lines = [_counted(comparison)]
    if whole_runs:
        lines += ["", "Deciding metrics, whole runs"]
        lines += _table(_AGGREGATE_TITLES, _deciding_rows(comparison), paint)
    lines += ["", "Deciding metrics, paired cases, HEAD minus BASE"]
    lines += _table(_PAIRED_TITLES, _paired_rows(comparison), paint)
    lines += (f"  {sentence}" for sentence in _readings(comparison))
    others = [_aggregate_row(change, "") for change in _moved_others(comparison)]
    if others and whole_runs:
        lines += ["", "Other aggregates that moved"]
        lines += _table(("metric", "", "base", "head", "delta"), others, paint)
    lines += _worst_lines(comparison)
    if comparison.warnings:
        lines += ["", f"{len(comparison.warnings)} warning(s) make the two runs less comparable"]
    if failed:
        lines += ["", *(paint(f"FAILED {printable(reason)}", -1) for reason in failed)]
    if shown is not None:
        lines += ["", f"wrote {printable(shown)}"]
    return lines


def _counted(comparison: Comparison) -> str:
    counts = comparison.counts
    return (
        f"{counts.cases_base} case(s) in BASE, {counts.cases_head} in HEAD:"
        f" {counts.improved} improved, {counts.regressed} regressed, {counts.added} added,"
        f" {counts.removed} removed, {counts.unchanged} unchanged"
    )


def _worst_lines(comparison: Comparison) -> list[str]:
    worst = worst_cases(comparison)
    if not worst:
        return []
    title = f"Worst cases ({len(worst)} of {comparison.counts.regressed} that regressed)"
    lines = ["", title]
    for change in worst:
        moved = ", ".join(map(_moved, change.metrics))
        lines.append(f"  {printable(change.case_id)}: {moved}")
    return lines


# -- what goes into it -----------------------------------------------------------------------


def worst_cases(comparison: Comparison) -> list[CaseChange]:
    """The few cases that lost most: by the sum of their lost shares, then of their sources."""
    regressed = (change for change in comparison.changes if change.kind == "regressed")
    return nsmallest(WORST_SHOWN, regressed, key=_loss)


def _loss(change: CaseChange) -> tuple[float, float, str]:
    shares = sources = 0.0
    for metric in change.metrics:
        delta = metric.delta
        if delta is None or delta > 0:
            continue
        if metric.metric == "diversity.sources":
            sources += delta
        else:
            shares += delta
    return shares, sources, change.case_id


def _moved(metric: MetricChange) -> str:
    sides = metric.sides
    return (
        f"{metric.metric} {_number(sides.base)} -> {_number(sides.head)} ({_signed(metric.delta)})"
    )


def _deciding_rows(comparison: Comparison) -> list[tuple[tuple[str, ...], float]]:
    by_name = {change.metric: change for change in comparison.header.metrics}
    rows: list[tuple[tuple[str, ...], float]] = []
    for name in DECIDING:
        one, other = comparison.samples.get(name, (None, None))
        n = _whole(other) if one == other else f"{_whole(one)} -> {_whole(other)}"
        change = by_name.get(name)
        rows.append(_aggregate_row(change, n) if change else ((name, n, "-", "-", "-"), 0.0))
    return rows


def _aggregate_row(change: AggregateChange, n: str) -> tuple[tuple[str, ...], float]:
    sides = change.sides
    cells = (
        printable(change.metric),
        n,
        _number(sides.base),
        _number(sides.head),
        _signed(change.delta),
    )
    # Only of a deciding metric is it known which way is better.
    return cells, (change.delta or 0.0) if change.metric in DECIDING else 0.0


def _moved_others(comparison: Comparison) -> list[AggregateChange]:
    return [
        change
        for change in comparison.header.metrics
        if change.metric not in DECIDING and (change.delta is None or abs(change.delta) > TOLERANCE)
    ]


def _paired_rows(comparison: Comparison) -> list[tuple[tuple[str, ...], float]]:
    rows: list[tuple[tuple[str, ...], float]] = []
    for entry in comparison.header.statistics:
        interval = entry.interval
        within = f"{_signed(interval.low)} to {_signed(interval.high)}" if interval else "-"
        cells = (
            entry.metric,
            str(entry.n),
            str(entry.moved),
            _signed(entry.mean_difference),
            within if entry.moved else "none moved" if entry.n else "-",
            _chance(entry.p),
            _chance(entry.p_holm),
        )
        rows.append((cells, entry.mean_difference or 0.0))
    return rows


def _readings(comparison: Comparison) -> list[str]:
    """What the numbers allow to say, so that no evidence is not taken for no regression."""
    entries = comparison.header.statistics
    lines = [line for entry in entries if (line := _reading(entry))]
    few = [
        f"{entry.metric} ({entry.moved} of {entry.n})"
        for entry in entries
        if 0 < entry.moved < PAIRS_FOR_EVIDENCE
    ]
    if few:
        lines.append(
            f"Fewer than {PAIRS_FOR_EVIDENCE} pairs moved in {', '.join(few)}: no p can be under"
            " 0.05, so this can neither show a change nor rule one out."
        )
    still = [f"{entry.metric} ({entry.n})" for entry in entries if entry.n and not entry.moved]
    if still:
        lines.append(
            f"No pair moved in {', '.join(still)}: true of these cases, no proof for others."
        )
    missing = [entry.metric for entry in entries if not entry.n]
    if missing:
        lines.append(f"No pair to look at for {', '.join(missing)}: nothing can be said.")
    return lines


def _reading(entry: PairedStatistics) -> str:
    few = entry.moved < PAIRS_FOR_EVIDENCE
    if few or entry.mean_difference is None or entry.p_holm is None:
        return ""
    way = "fell" if entry.mean_difference < 0 else "rose"
    if entry.p_holm < _SIGNIFICANT:
        return (
            f"{entry.metric} {way} by more than chance would explain"
            f" (p {_chance(entry.p_holm)} after Holm)."
        )
    return (
        f"{entry.metric} {way}, which chance alone could explain"
        f" (p {_chance(entry.p_holm)} after Holm); that is not proof that nothing changed."
    )


# -- numbers and words -----------------------------------------------------------------------


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _signed(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value if abs(value) > TOLERANCE else 0.0:+.3f}"


def _chance(p: float | None) -> str:
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


# -- text ------------------------------------------------------------------------------------


def _unpainted(line: str, _: float) -> str:
    return line


def _painted(line: str, direction: float) -> str:
    if abs(direction) <= TOLERANCE:
        return line
    return f"{_RED if direction < 0 else _GREEN}{line}{_PLAIN}"


def _table(
    titles: Sequence[str],
    rows: Iterable[tuple[Sequence[str], float]],
    paint: Callable[[str, float], str],
) -> list[str]:
    """Rows under titles, the first column flush left, numbers flush right."""
    rows = list(rows)
    widths = [
        max(_width(cells[column]) for cells in (titles, *(row for row, _ in rows)))
        for column in range(len(titles))
    ]
    lines = []
    for cells, direction in ((titles, 0.0), *rows):
        gaps = [" " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)]
        first = f"  {cells[0]}{gaps[0]}"
        rest = (f"  {gap}{cell}" for cell, gap in zip(cells[1:], gaps[1:], strict=True))
        lines.append(paint(f"{first}{''.join(rest)}".rstrip(), direction))
    return lines


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth  # takes as long to import as all else; most tables are ASCII

    return max(wcswidth(text), 0)


# -- Markdown --------------------------------------------------------------------------------


def markdown(
    comparison: Comparison,
    *,
    shown: str | None = None,
    failed: Sequence[str] = (),
    limit: int = MARKDOWN_LIMIT,
) -> str:
    """The summary for a pull request comment, at most `limit` bytes.

    What does not fit is left out, least important first, and the last line counts it.
    """
    page = _Page(limit)
    page.block("", [f"**Retrieval comparison.** {_counted(comparison)}."])
    page.block("", [f"- **FAILED** {_escaped(reason)}" for reason in failed], "reason(s)")
    page.table("", _AGGREGATE_TITLES, _deciding_rows(comparison), "deciding metric(s)")
    page.table(
        "Paired cases, HEAD minus BASE:", _PAIRED_TITLES, _paired_rows(comparison), "statistic(s)"
    )
    page.block("", [f"- {_escaped(line)}" for line in _readings(comparison)], "remark(s)")
    if shown is not None:
        page.block("", [f"All changes: `{_code(shown)}`."])
    worst = worst_cases(comparison)
    page.block(
        f"Worst cases ({len(worst)} of {comparison.counts.regressed} that regressed):",
        [f"- {_escaped(it.case_id)}: {', '.join(map(_moved, it.metrics))}" for it in worst],
        "worst case(s)",
    )
    warnings = [f"- {_escaped(warning)}" for warning in comparison.warnings]
    page.block(f"{len(warnings)} warning(s):", warnings[:_WARNINGS_SHOWN], "warning(s)")
    page.left_out("warning(s)", len(warnings[_WARNINGS_SHOWN:]))
    others = [_aggregate_row(change, "") for change in _moved_others(comparison)]
    rows = [((cells[0], *cells[2:]), direction) for cells, direction in others]
    page.table(
        "Other aggregates that moved:", ("metric", "base", "head", "delta"), rows, "aggregate(s)"
    )
    return page.text()


class _Page:
    """Markdown that grows block by block, line by line, up to a number of UTF-8 bytes."""

    _ROOM = 400  # for the line that says what was left out

    def __init__(self, limit: int) -> None:
        self._free = limit - self._ROOM
        self._lines: list[str] = []
        self._missing: dict[str, int] = {}

    def block(self, title: str, lines: Sequence[str], what: str = "line(s)", head: int = 0) -> None:
        """Add lines as far as they fit; the first `head` of them are worth nothing alone."""
        if len(lines) <= head:
            return
        opening = [*([title, ""] if title else []), *lines[:head]]
        for position, line in enumerate(lines[head:]):
            addition = [*opening, line]
            size = sum(len(one.encode("utf-8", "replace")) + 1 for one in addition)
            if size + 1 > self._free:
                self.left_out(what, len(lines) - head - position)
                break
            self._free -= size
            self._lines += addition
            opening = []
        if not opening:
            self._lines.append("")
            self._free -= 1

    def table(
        self,
        title: str,
        titles: Sequence[str],
        rows: Sequence[tuple[Sequence[str], float]],
        what: str,
    ) -> None:
        """Add a table, its first column flush left."""
        cells = [titles, *(row for row, _ in rows)]
        lines = [f"| {' | '.join(map(_escaped, row))} |" for row in cells]
        lines.insert(1, "|---" + "|---:" * (len(titles) - 1) + "|")
        self.block(title, lines, what, head=2)

    def left_out(self, what: str, number: int) -> None:
        """Remember what is not on the page."""
        if number:
            self._missing[what] = self._missing.get(what, 0) + number

    def text(self) -> str:
        """The page."""
        lines = list(self._lines)
        if self._missing:
            parts = ", ".join(f"{number} {what}" for what, number in self._missing.items())
            lines += [f"_Left out here: {parts}._", ""]
        return "\n".join(lines)


_SPECIAL = str.maketrans(
    {one: f"\\{one}" for one in "\\`*_{}[]<>|#~$"} | {"&": "&amp;", "@": "&#64;"}
)


def _escaped(text: str) -> str:
    """Somebody else's text that stays text: no markup, no table cell, no mention of a person."""
    return printable(text).translate(_SPECIAL)


def _code(text: str) -> str:
    return printable(text).replace("`", "'")


# -- JSON ------------------------------------------------------------------------------------


def as_json(
    comparison: Comparison, *, shown: str | None = None, failed: Sequence[str] = ()
) -> bytes:
    """The summary as one JSON object, for a tool."""
    header = comparison.header
    by_name = {change.metric: change for change in header.metrics}
    summary: dict[str, Any] = {
        "counts": header.counts,
        "base": header.base,
        "head": header.head,
        "deciding": [by_name[name] for name in DECIDING if name in by_name],
        "statistics": header.statistics,
        "others_moved": _moved_others(comparison),
        "worst": worst_cases(comparison),
        "warnings": comparison.warnings,
        "failed": list(failed),
        "changes": UNSET if shown is None else shown,
    }
    return msgspec.json.format(msgspec.json.encode(summary), indent=2)
