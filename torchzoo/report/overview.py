"""What a run comes to, for the terminal and in Markdown: totals, failures, outliers, devices, commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from torchzoo.analysis.cases import CaseResult, ReportData, Status
from torchzoo.analysis.totals import (
    OUTLIER_RULE,
    DeviceRatio,
    Outlier,
    Section,
    Total,
    device_ratios,
    outliers,
    sections,
)
from torchzoo.record import Failed, Skipped
from torchzoo.report import units
from torchzoo.report.markdown import escape, table
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
)
NARROW_HEADINGS = ("group", "passed", "speedup", "all", "cover", "T", "CM", "GM")
#: How the totals are to be read; said wherever they stand.
TOTALS_NOTE = (
    "passed: measured and not found incorrect, of the cases that could run (skipped ones could not). Speedups: "
    "geometric means over cases with a backend beside eager, with a 95% bootstrap interval over models and samples; "
    "over all cases, one that failed or is incorrect counts as 1.0x; coverage: cases that passed of those that could "
    "run. T, CM, GM: candidate over eager of time, CPU memory (peak resident) and GPU memory (peak allocated); below 1 "
    "the candidate needs less."
)


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All that is derived from a report's cases together."""

    sections: tuple[Section, ...]
    outliers: tuple[Outlier, ...]
    device_ratios: tuple[DeviceRatio, ...]


def overview(results: Sequence[CaseResult]) -> Overview:
    """Derive it."""
    return Overview(sections=sections(results), outliers=outliers(results), device_ratios=device_ratios(results))


def total_cells(total: Total) -> tuple[str, ...]:
    """The cells under `TOTAL_HEADINGS`."""
    rate = "" if total.pass_rate is None else f" ({percent(total.pass_rate)})"
    return (
        total.name if total.axis == total.name else f"{total.axis} {total.name}",
        f"{total.passed} of {total.could_run}{rate}",
        str(total.skipped or ""),
        _speedup(total.passing),
        _speedup(total.over_all),
        f"{total.compared} of {total.comparable}" if total.comparable else "",
        *(_ratio(ratio) for ratio in (total.time_ratio, total.host_memory_ratio, total.device_memory_ratio)),
    )


def percent(share: float) -> str:
    """`99.7%`; 100% is said of nothing less than all."""
    text = f"{100 * share:.0f}%"
    return f"{int(1000 * share) / 10}%" if text == "100%" and share < 1 else text


def _speedup(estimate: Estimate | None) -> str:
    return "" if estimate is None else units.factor(estimate.value, estimate.low, estimate.high)


def _ratio(estimate: Estimate | None) -> str:
    return "" if estimate is None else f"{estimate.value:.2f}"


def outlier_line(one: Outlier) -> str:
    """`fast: CASE: 3.20x where 1.19x is usual (score 4.9)`."""
    what = "fast" if one.score > 0 else "slow"
    return (
        f"{what}: {one.result.case.label()}: {one.speedup:.2f}x where {one.usual:.2f}x is usual (score {one.score:.1f})"
    )


def device_line(one: DeviceRatio) -> str:
    """`CASE: 3.20x [3.10, 3.30] as fast as cpu`."""
    return f"{one.result.case.label()}: {units.factor(one.ratio, one.low, one.high)} as fast as {one.base}"


def unpassed(results: Sequence[CaseResult], kind: type[Failed | Skipped] | None) -> list[CaseResult]:
    """Entries that failed, were skipped, or (None) were found incorrect."""
    if kind is None:
        return [result for result in results if result.status is Status.INCORRECT]
    return [result for result in results if isinstance(result.outcome, kind)]


# --- the terminal ---


def terminal_overview(data: ReportData, found: Overview) -> Any:
    """Totals, outliers and devices for the terminal; what `torchzoo run` says of a run stands before it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    for section in found.sections:
        parts.append(Text(f"\n{section.title}"))
        grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        headings, rows = used_columns(NARROW_HEADINGS, map(_narrow_cells, section.totals))
        for number, heading in enumerate(headings):
            grid.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
        for row in rows:
            grid.add_row(*map(Text, row))
        parts.append(grid)
    parts.append(Text(TOTALS_NOTE, style="dim"))
    if found.outliers:
        parts.append(Text(f"\noutliers, by the {OUTLIER_RULE}"))
        for one in found.outliers:
            parts.append(Text(f"  {outlier_line(one)}"))
            parts.append(Text(f"    {one.result.command}", no_wrap=True, overflow="ignore"))
    if found.device_ratios:
        parts.append(Text("\none device against another"))
        parts += [Text(f"  {device_line(one)}") for one in found.device_ratios]
    parts += [Text(line) for line in notes(data)]
    return Group(*parts)


def _narrow_cells(total: Total) -> tuple[str, ...]:
    """The cells under `NARROW_HEADINGS`, for 80 columns."""
    over_all = "" if total.over_all is None else f"{total.over_all.value:.2f}x"
    return (
        total.name,
        f"{total.passed}/{total.could_run}",
        _speedup(total.passing),
        over_all,
        f"{total.compared}/{total.comparable}" if total.comparable else "",
        *(_ratio(ratio) for ratio in (total.time_ratio, total.host_memory_ratio, total.device_memory_ratio)),
    )


def used_columns(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows without the columns that are empty in every row: they say nothing."""
    rows = list(rows)
    used = [number for number in range(len(headings)) if any(row[number] for row in rows)]
    return [headings[number] for number in used], [[row[number] for number in used] for row in rows]


def notes(data: ReportData) -> list[str]:
    """What is missing of the runs, in words."""
    said = [
        f"{run.damaged_lines} lines of {run.path} could not be read and are left out"
        for run in data.runs
        if run.damaged_lines
    ]
    if data.not_run:
        cases, were = ("case", "was") if data.not_run == 1 else ("cases", "were")
        said.append(f"{data.not_run} planned {cases} {were} not run")
    if data.superseded:
        said.append(f"{data.superseded} records of earlier runs stand back behind later ones of the same case")
    return said


# --- Markdown ---


def write_markdown_overview(data: ReportData, found: Overview, file: Any) -> None:
    """Totals, failures, skips, outliers, devices, and the commands, to follow the table of all cases."""
    lines: list[str] = []
    for section in found.sections:
        lines += ["", f"## Summary: {escape(section.title)}", ""]
        lines += table(*used_columns(TOTAL_HEADINGS, map(total_cells, section.totals)))
    lines += ["", escape(TOTALS_NOTE)]
    lines += [line for note in notes(data) for line in ("", escape(note))]
    results = data.cases
    for title, kind in (("Failed", Failed), ("Incorrect", None), ("Skipped", Skipped)):
        some = unpassed(results, kind)
        if some:
            rows = [[result.case.label(), result.reason, result.command] for result in some]
            lines += ["", f"## {title} ({len(some)})", "", *table(["case", "reason", "command"], rows)]
    if found.outliers:
        rows = [
            ["fast" if one.score > 0 else "slow", one.result.case.label(), f"{one.speedup:.2f}x", f"{one.usual:.2f}x"]
            for one in found.outliers
        ]
        lines += ["", "## Outliers", "", *table(["", "case", "speedup", "usual"], rows), "", escape(OUTLIER_RULE)]
    if found.device_ratios:
        rows = [
            [one.result.case.label(), one.base, units.factor(one.ratio, one.low, one.high)]
            for one in found.device_ratios
        ]
        headings = ["case", "against", "times as fast"]
        lines += ["", "## One device against another", "", *table(headings, rows)]
    commands = [" ".join(result.command.splitlines()) for result in results]
    lines += ["", "## Commands", "", "Each measures a row of the first table again.", "", "```sh", *commands, "```"]
    file.write("\n".join(lines) + "\n")
