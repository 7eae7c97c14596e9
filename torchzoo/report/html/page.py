"""A report as one HTML file that opens offline.

Observable Plot draws the charts. `page.html.j2` is the page's text, `page.js` its behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from torchzoo.analysis.beside_eager import has_several_backends
from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.frame import values
from torchzoo.analysis.totals import Overview, Total, overview
from torchzoo.files import to_json
from torchzoo.report import checks, graph_breaks, some_cases, units
from torchzoo.report.document import Block, Fold, Heading
from torchzoo.report.html import offline_page, render
from torchzoo.report.html.case_table import ColumnHeading, case_columns, filters
from torchzoo.report.html.charts import chart_data, figures
from torchzoo.report.json_report import about_run
from torchzoo.report.markdown import machines, provenance_line, software
from torchzoo.report.overview import TOTALS_NOTE, notes, outliers, percent, problems, totals_tables
from torchzoo.report.summary import where_time_went
from torchzoo.stats import Estimate


def page(data: ReportData) -> str:
    """Return the whole file."""
    results = data.cases
    rows = [values(result) for result in results]
    found = overview(results)
    ids = {id(result): number for number, result in enumerate(results)}
    not_passed = problems(found)
    opens = {result.case.label(): number for number, result in enumerate(results)}
    columns = case_columns(rows, has_eager=not has_several_backends(results))
    return offline_page(
        "page",
        chart_data(data, rows, found, ids),
        title=_title(data),
        subtitle=provenance_line([run.manifest for run in data.runs], data.device_names),
        cards=_cards(data, found),
        notes=[*notes(data), *some_cases.disagreements(results)],
        summary=render(_summary(data, found), opens),
        filters=filters(rows),
        figures=figures(rows, found),
        columns=[ColumnHeading("Model"), *(heading for heading, _ in columns)],
        rows=[
            {"model": row["model"], "command": row["command"], "cells": [cell(row, result) for _, cell in columns]}
            for row, result in zip(rows, results, strict=True)
        ],
        problems=render(not_passed, opens) if not_passed else "",
        method=_method(data),
        environment=msgspec.json.format(to_json([about_run(run.manifest) for run in data.runs]), indent=1).decode(),
    )


def _summary(data: ReportData, found: Overview) -> list[Block]:
    """The tables of the report. The totals of all cases are open, those of each kind of speedup folded."""
    (title, everything), *kinds = totals_tables(found)
    by_backend = some_cases.several_backends(data.cases)
    return [
        Heading(f"Summary: {title}"),
        msgspec.structs.replace(everything, notes=(TOTALS_NOTE,)),
        *(Fold((totals,), f"Summary: {title}") for title, totals in kinds),
        *outliers(found, has_scores=True),
        *([Heading("Models and backends"), *by_backend] if by_backend else []),
        *some_cases.document(data.cases),
        *checks.document(data.cases),
        *graph_breaks.document(data.cases),
    ]


# --- words ---


def _title(data: ReportData) -> str:
    names = list(dict.fromkeys(run.path.resolve().name for run in data.runs))
    return f"torchzoo report: {', '.join(names)}"


def _method(data: ReportData) -> list[str]:
    lines = [
        f"Machine: {machines(run.manifest for run in data.runs)}.",
        f"Software: {software(*(run.manifest for run in data.runs))}.",
        "Latency: wall time of one step, the device synchronised before and after. The median of blocks of about "
        "20 ms, with an interval from order statistics.",
        "Speedup: eager time over candidate time. Both take turns (A B B A, B A A B) in one process, and the speedup "
        "is the median of the paired ratios.",
        "Throughput: many steps with one synchronisation at the end.",
    ]
    for run in data.runs:
        lines.append(f"Command: {' '.join(run.manifest.command)}")
        lines += [f"{line[0].upper()}{line[1:]}." for line in where_time_went(run)]
    return lines


def _cards(data: ReportData, found: Overview) -> list[dict[str, Any]]:
    everything = found.sections[0].totals[0]
    parts = [f"{everything.measured} measured", f"{everything.failed} failed", f"{everything.skipped} skipped"]
    if everything.checked:
        parts[0] = f"{everything.measured} measured, {everything.checked} checked"
    if everything.incorrect:
        parts[0] += f" ({everything.incorrect} incorrect)"
    if data.not_run:
        parts.append(f"{data.not_run} not run")
    if data.repeats_not_run:
        parts.append(f"{data.repeats_not_run} repeats not run")
    cards = [
        {
            "title": "Cases passed",
            "value": "-" if everything.pass_rate is None else percent(everything.pass_rate),
            "lines": [f"{everything.passed} of {everything.could_run} that could run", ", ".join(parts)],
        }
    ]
    kinds = [section.totals[0] for section in found.sections[1:]] or [everything]
    titles = [section.title for section in found.sections[1:]] or [_only_kind(data.cases)]
    cards += [_speedup_card(title, total) for title, total in zip(titles, kinds, strict=True) if total.passing][:6]
    if len(kinds) == 1 and everything.time_ratio is not None:
        lines = [
            f"{name} {units.factor(ratio)}"
            for name, ratio in (
                ("CPU memory", everything.host_memory_ratio),
                ("GPU memory", everything.device_memory_ratio),
            )
            if ratio is not None
        ]
        cards.append({"title": "Time against eager", "value": f"{everything.time_ratio.value:.2f}", "lines": lines})
    slow = sum(one.score < 0 for one in found.outliers)
    if any(total.passing for total in kinds):
        cards.append(
            {
                "title": "Outlying speedups",
                "value": str(len(found.outliers)),
                "lines": [f"{len(found.outliers) - slow} fast, {slow} slow, by the rule below"],
            }
        )
    return cards


def _only_kind(results: Sequence[CaseResult]) -> str:
    kinds = {result.case.comparison_group() for result in results if result.has_candidate}
    return f"{next(iter(kinds))} over eager" if kinds else ""


def _speedup_card(title: str, total: Total) -> dict[str, Any]:
    assert total.passing is not None
    assert total.over_all is not None
    return {
        "title": f"Speedup, {title}",
        "value": f"{total.passing.value:.2f}x",
        "lines": [
            f"geometric mean, {_ends_of(total.passing)}",
            f"{total.over_all.value:.2f}x over all; {total.compared} of {total.comparable} cases",
        ],
    }


def _ends_of(mean: Estimate) -> str:
    return f"95% [{mean.low:.2f}, {mean.high:.2f}]" if mean.has_interval else mean.why_no_interval
