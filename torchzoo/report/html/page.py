"""A report as one HTML file that opens offline.

Observable Plot draws the charts. `page.html.j2` is the page's text, `page.js` its behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from torchzoo.analysis.cases import CaseResult, ReportData, Status
from torchzoo.analysis.frame import CHECKED, Row, values
from torchzoo.analysis.totals import Overview, Total, overview
from torchzoo.case import AXES
from torchzoo.files import to_json
from torchzoo.report import checks, graph_breaks, some_cases, units
from torchzoo.report.columns import CANDIDATE, EAGER, FIRST_STEP, MEMORY, SPEEDUP, TIME, FigureColumn
from torchzoo.report.document import Block, Fold, Heading
from torchzoo.report.html import capital, offline_page, render
from torchzoo.report.html.charts import chart_data, figures
from torchzoo.report.json_report import about_run
from torchzoo.report.markdown import machines, provenance_line, software
from torchzoo.report.overview import TOTALS_NOTE, notes, outliers, percent, problems, totals_tables
from torchzoo.report.remarks import remarks_of
from torchzoo.report.summary import where_time_went


def page(data: ReportData) -> str:
    """Return the whole file."""
    results = data.cases
    rows = [values(result) for result in results]
    found = overview(results)
    ids = {id(result): number for number, result in enumerate(results)}
    not_passed = problems(found)
    opens = {result.case.label(): number for number, result in enumerate(results)}
    columns = case_columns(rows, has_eager=not some_cases.has_several_backends(results))
    return offline_page(
        "page",
        chart_data(data, rows, found, ids),
        title=f"torchzoo report: {', '.join(dict.fromkeys(run.path.resolve().name for run in data.runs))}",
        subtitle=provenance_line([run.manifest for run in data.runs], data.device_names),
        cards=_cards(data, found),
        notes=[*notes(data), *some_cases.disagreements(results)],
        summary=render(_summary(data, found), opens),
        filters=filters(rows),
        figures=figures(rows, found),
        columns=[{"name": "Model", "is_number": False, "title": ""}, *columns],
        rows=[
            {"model": row["model"], "command": row["command"], "cells": [one.cell(row, result) for one in columns]}
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
        *some_cases.three_figures(data.cases, data.host),
        *some_cases.document(data.cases),
        *checks.document(data.cases),
        *graph_breaks.document(data.cases),
    ]


# --- words ---


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
    groups = dict.fromkeys(one.case.comparison_group() for one in data.cases if one.has_candidate)
    kinds = [section.totals[0] for section in found.sections[1:]] or [everything]
    titles = [section.title for section in found.sections[1:]] or [f"{kind} over eager" for kind in groups]
    cards += [_speedup_card(title, total) for title, total in zip(titles, kinds, strict=False) if total.passing][:6]
    if len(kinds) == 1 and everything.time_ratio is not None:
        ratios = {"CPU memory": everything.host_memory_ratio, "GPU memory": everything.device_memory_ratio}
        lines = [f"{name} {units.factor(ratio)}" for name, ratio in ratios.items() if ratio is not None]
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


def _speedup_card(title: str, total: Total) -> dict[str, Any]:
    mean, over_all = total.passing, total.over_all
    assert mean is not None
    assert over_all is not None
    ends = f"95% [{mean.low:.2f}, {mean.high:.2f}]" if mean.has_interval else mean.why_no_interval
    counted = f"{over_all.value:.2f}x over all; {total.compared} of {total.comparable} cases"
    lines = [f"geometric mean, {ends}", counted]
    return {"title": f"Speedup, {title}", "value": f"{mean.value:.2f}x", "lines": lines}


# --- the table of cases, and the filters ---

_FILTERS = {
    "domain": "Domain",
    **{axis.name: axis.name.capitalize() for axis in AXES if axis.is_filter},
    "outcome": "Outcome",
}
#: What can have become of a case, the best first. Few runs only check.
OUTCOMES = (
    Status.PASSED,
    Status.CHECKED,
    Status.INCORRECT,
    Status.REFUSED,
    Status.UNSTEADY,
    Status.FAILED,
    Status.SKIPPED,
)
_AXES = [axis.name for axis in AXES if axis.name not in ("batch_size", "seed")]


class CaseColumn(NamedTuple):
    """A column: its heading, which shows `title` when the mouse is over it, and what makes its cell for a case."""

    name: str
    cell: Callable[[Row, CaseResult], dict[str, Any]]
    is_number: bool = False
    title: str = ""


def _cell(text: str, key: float | None = None, *, is_number: bool = False, badge: str = "") -> dict[str, Any]:
    """A cell. A column of numbers is sorted by `key`."""
    return {"text": text, "key": key, "is_number": is_number, "badge": badge}


def filters(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The axes along which a reader can choose cases, with their values."""
    has_checks = any(row["outcome"] == CHECKED for row in rows)
    options = {name: sorted({row[name] for row in rows if row[name] is not None}) for name in _FILTERS}
    options["outcome"] = [one for one in OUTCOMES if one is not Status.CHECKED or has_checks]
    return [
        {"key": name, "label": label, "options": options[name]}
        for name, label in _FILTERS.items()
        if len(options[name]) > 1
    ]


def case_columns(rows: Sequence[Row], *, has_eager: bool = True) -> list[CaseColumn]:
    """The columns beside the model's name. An axis has no column if all cases are the same in it.

    Without `has_eager`, another table has eager's figures, and the time is that of each case's own backend.
    """
    has_candidates = any(row["speedup"] is not None for row in rows)
    figures = [EAGER, CANDIDATE, SPEEDUP, MEMORY, FIRST_STEP] if has_candidates else [EAGER, MEMORY]
    if not has_eager:
        figures = [TIME, *(one for one in figures if one not in (EAGER, CANDIDATE))]
    varied = [name for name in _AXES if name == "mode" or _varies(rows, name)]
    return [
        *(CaseColumn(capital(name.replace("_", " ")), _text(name)) for name in varied),
        CaseColumn("Outcome", lambda _, result: _cell(result.status, badge=result.status)),
        CaseColumn("Batch", _batch, is_number=True),
        *(CaseColumn(capital(one.heading), _figure(one), is_number=True, title=one.figure.text) for one in figures),
        *([CaseColumn("Domain", _text("domain"))] if _varies(rows, "domain") else []),
        CaseColumn(
            "Note", lambda _, result: _cell("; ".join(filter(None, [result.reason, *remarks_of(result.measured)])))
        ),
    ]


def _varies(rows: Sequence[Row], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _text(name: str) -> Callable[[Row, CaseResult], dict[str, Any]]:
    return lambda row, _: _cell((row[name] or "").replace("_", " ") if name == "domain" else row[name] or "")


def _batch(row: Row, _: CaseResult) -> dict[str, Any]:
    size = row["batch_size"]
    return _cell("" if size is None else f"{size:,}", size, is_number=True)


def _figure(column: FigureColumn) -> Callable[[Row, CaseResult], dict[str, Any]]:
    def cell(row: Row, result: CaseResult) -> dict[str, Any]:
        text = "" if result.figures is None else column.cell(result.figures)
        return _cell(text, None if result.figures is None else row[column.figure.name], is_number=True)

    return cell
