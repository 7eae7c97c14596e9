"""The results of a whole report, for the terminal and in Markdown: totals, failures, outliers, devices, commands."""

from __future__ import annotations

from typing import IO, Any

from torchzoo.analysis.cases import ReportData
from torchzoo.analysis.overview import Overview
from torchzoo.analysis.reproduce import shell_line
from torchzoo.analysis.totals import OUTLIER_RULE, DeviceRatio, Outlier, Total
from torchzoo.report import terminal, units
from torchzoo.report.markdown import code_block, escape, table
from torchzoo.report.sections import checks, graph_breaks
from torchzoo.report.tables import used_columns
from torchzoo.stats import Estimate

TOTAL_HEADINGS = (
    "group",
    "passed",
    "skipped",
    "speedup, passing cases",
    "speedup, all cases",
    "coverage",
    "T",
    "CM",
    "GM",
    "D",
)
NARROW_HEADINGS = ("group", "passed", "speedup", "all", "cover", "T", "CM", "GM", "D")
#: How many reasons of graph breaks the terminal shows.
MOST_BREAKS = 5
#: How to read the totals. It is shown wherever they are.
TOTALS_NOTE = (
    "passed: cases that were measured or checked, and not found incorrect or refused, of those that could run (skipped "
    "ones could not). Speedups: geometric means over cases with a backend beside eager, with an interval (95%, "
    "Student's t) over the models, of which fewer than four give none; over all cases, one that failed or is incorrect "
    "counts as 1.0x. Unsteady cases, which were compiled again while they were measured, are in no mean, nor are "
    "refused ones. Coverage: cases with a backend beside eager that passed, of those that could run. T, CM, GM, D: "
    "candidate over eager of time, CPU memory (peak resident), GPU memory (peak allocated), and of the time in which "
    "the device works in one step; below 1 the candidate needs less. D does not depend on how fast the host is."
)


def total_cells(total: Total) -> tuple[str, ...]:
    """The cells under `TOTAL_HEADINGS`."""
    rate = "" if total.pass_rate is None else f" ({percent(total.pass_rate)})"
    return (
        total.name if total.name.startswith(total.axis) else f"{total.axis} {total.name}",
        f"{total.passed} of {total.could_run}{rate}",
        str(total.skipped or ""),
        _speedup(total.passing),
        _speedup(total.over_all),
        f"{total.compared} of {total.comparable}" if total.comparable else "",
        *map(_ratio, _ratios(total)),
    )


def _ratios(total: Total) -> tuple[Estimate | None, ...]:
    return (total.time_ratio, total.host_memory_ratio, total.device_memory_ratio, total.device_time_ratio)


def percent(share: float) -> str:
    """`99.7%`. Only a share of 1 is shown as 100%."""
    text = f"{100 * share:.0f}%"
    return f"{int(1000 * share) / 10}%" if text == "100%" and share < 1 else text


def _speedup(estimate: Estimate | None) -> str:
    return "" if estimate is None else units.factor(estimate)


def _ratio(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{estimate.value:.2f}"


def speed_word(one: Outlier) -> str:
    """`fast` or `slow`."""
    return "fast" if one.score > 0 else "slow"


def notes(data: ReportData) -> list[str]:
    """What is missing of the runs, in words."""
    found = [run.damage for run in data.runs if run.damage]
    missing = [(data.not_run, "case", "cases"), (data.repeats_not_run, "repeat", "repeats of measured cases")]
    texts = [f"{count} planned {one if count == 1 else many}" for count, one, many in missing if count]
    if texts:
        were = "was" if data.not_run + data.repeats_not_run == 1 else "were"
        resume = f"; on its machine: {shell_line(['torchzoo', 'run', '--resume', str(data.runs[0].path)])}"
        found.append(f"{' and '.join(texts)} {were} not run{resume if len(data.runs) == 1 else ''}")
    if data.superseded:
        found.append(f"{data.superseded} records are left out: a later run has measured the same case again")
    return found


# --- the terminal ---


def terminal_overview(data: ReportData, found: Overview) -> Any:
    """Totals, outliers and devices. The summary of `torchzoo run` comes before it."""
    from rich.console import Group

    parts: list[Any] = []
    for section in found.sections:
        headings, rows = used_columns(NARROW_HEADINGS, [_narrow_cells(total) for total in section.totals])
        parts += [*terminal.texts(["", section.title]), terminal.table(headings, rows, right=headings[1:], gap=1)]
    parts.append(terminal.text(TOTALS_NOTE))
    if found.outliers:
        rows = [
            [speed_word(one), f"{one.speedup:.2f}x", f"{one.usual:.2f}x", one.result.case.label()]
            for one in found.outliers
        ]
        headings = ["", "speedup", "usual", "case"]
        parts += terminal.texts(["", f"outliers, by the {OUTLIER_RULE}"])
        parts.append(terminal.table(headings, rows, right=headings[1:3], gap=1))
    if found.device_ratios:
        rows = [[_times_as_fast(one), one.base, one.result.case.label()] for one in found.device_ratios]
        parts += terminal.texts(["", "one device against another"])
        parts.append(terminal.table(["times as fast", "as on", "case"], rows))
    if checked := checks.rows(data.cases):
        headings, rows = used_columns(checks.HEADINGS, checked)
        parts += [terminal.text(""), terminal.table(headings, rows, right=headings[1:], gap=1)]
    if broken := graph_breaks.lines(data.cases, MOST_BREAKS):
        parts += terminal.texts(["", "graph breaks, by the number of models"])
        parts += map(terminal.hanging, broken)
    parts += terminal.texts(notes(data))
    return Group(*parts)


def _narrow_cells(total: Total) -> tuple[str, ...]:
    """The cells under `NARROW_HEADINGS`, for 80 columns."""
    over_all = "" if total.over_all is None else f"{total.over_all.value:.2f}x"
    return (
        total.name,
        f"{total.passed}/{total.could_run}",
        "" if total.passing is None else units.factor(total.passing, has_confidence=False),
        over_all,
        f"{total.compared}/{total.comparable}" if total.comparable else "",
        *map(_ratio, _ratios(total)),
    )


def _times_as_fast(one: DeviceRatio) -> str:
    return units.factor(one.ratio)


# --- Markdown ---


def write_markdown_overview(data: ReportData, found: Overview, file: IO[str]) -> None:
    """Totals, failures, skips, outliers, devices and commands. The table of all cases comes before it."""
    lines: list[str] = []
    for section in found.sections:
        lines += ["", f"## Summary: {escape(section.title)}", ""]
        lines += table(*used_columns(TOTAL_HEADINGS, [total_cells(total) for total in section.totals]))
    lines += ["", escape(TOTALS_NOTE)]
    lines += [line for note in notes(data) for line in ("", escape(note))]
    for title, some in (
        ("Failed", found.failed),
        ("Incorrect", found.incorrect),
        ("Refused", found.refused),
        ("Unsteady", found.unsteady),
        ("Skipped", found.skipped),
    ):
        if some:
            rows = [[result.case.label(), result.reason, result.command] for result in some]
            lines += ["", f"## {title} ({len(some)})", "", *table(["case", "reason", "command"], rows)]
    if found.outliers:
        rows = [
            [speed_word(one), one.result.case.label(), f"{one.speedup:.2f}x", f"{one.usual:.2f}x"]
            for one in found.outliers
        ]
        lines += ["", "## Outliers", "", *table(["", "case", "speedup", "usual"], rows), "", escape(OUTLIER_RULE)]
    if found.device_ratios:
        rows = [[one.result.case.label(), one.base, _times_as_fast(one)] for one in found.device_ratios]
        headings = ["case", "against", "times as fast"]
        lines += ["", "## One device against another", "", *table(headings, rows)]
    if checked := checks.rows(data.cases):
        lines += ["", "## Results checked", "", *table(*used_columns(checks.HEADINGS, checked)), "", checks.EXPLAINED]
        if why := list(checks.reasons(data.cases)):
            lines += ["", *table(checks.REASON_HEADINGS, why)]
    if broken := graph_breaks.rows(data.cases):
        headings, cells = used_columns(graph_breaks.HEADINGS, broken)
        lines += [
            "",
            f"## Graph breaks ({len(broken)} reasons)",
            "",
            *table(headings, cells),
            "",
            graph_breaks.EXPLAINED,
        ]
    commands = [result.command for result in data.cases]
    lines += ["", "## Commands", "", "Each measures a row of the first table again.", "", *code_block(commands)]
    file.write("\n".join(lines) + "\n")
