"""A report as one HTML file that opens offline. It fetches nothing, and no name or message can run as code.

Observable Plot draws the charts. `page.html.j2` is the page's text, `page.js` its behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from torchzoo.analysis.beside_eager import has_several_backends
from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.frame import values
from torchzoo.analysis.overview import Overview, overview
from torchzoo.analysis.totals import OUTLIER_RULE, Total
from torchzoo.files import to_json
from torchzoo.report import units
from torchzoo.report.document import about_run
from torchzoo.report.html.case_table import Heading, capital, case_columns, filters
from torchzoo.report.html.charts import chart_data, figures
from torchzoo.report.html.offline import inert_json, policy, read_asset, template
from torchzoo.report.markdown import machines, provenance_line, software
from torchzoo.report.overview import TOTAL_HEADINGS, TOTALS_NOTE, notes, percent, speed_word, total_cells
from torchzoo.report.sections import backends, checks, generation, graph_breaks, scaling
from torchzoo.report.summary import where_time_went
from torchzoo.report.tables import used_columns
from torchzoo.stats import Estimate

#: Tables on one subject each, left out where they have no rows: title, section, and how to read it.
_SPECIAL = (
    ("Generation", generation, ""),
    ("Scaling over ranks", scaling, ""),
    ("Results checked", checks, checks.EXPLAINED),
    ("Graph breaks by reason", graph_breaks, graph_breaks.EXPLAINED),
)


def page(data: ReportData) -> str:
    """The whole file."""
    from markupsafe import Markup

    results = data.cases
    rows = [values(result) for result in results]
    found = overview(results)
    ids = {id(result): number for number, result in enumerate(results)}
    scripts = {
        "theme": read_asset("theme.js"),
        "d3": read_asset("vendor", "d3.min.js"),
        "plot": read_asset("vendor", "plot.umd.min.js"),
        "page": read_asset("page.js"),
    }
    columns = case_columns(rows, has_eager=not has_several_backends(results))
    return template("page.html.j2").render(
        title=_title(data),
        subtitle=provenance_line([run.manifest for run in data.runs], data.device_names),
        policy=policy(scripts.values()),
        css=Markup(read_asset("page.css")),  # noqa: S704  ours, like the scripts
        scripts={name: Markup(text) for name, text in scripts.items()},  # noqa: S704
        data=Markup(inert_json(chart_data(data, rows, found, ids))),  # noqa: S704  nothing in it can end the element
        cards=_cards(data, found),
        notes=[*notes(data), *backends.notes(results)],
        totals=[_totals_table(section.title, section.totals) for section in found.sections],
        totals_note=TOTALS_NOTE,
        outliers=[
            {
                "id": ids[id(one.result)],
                "label": one.result.case.label(),
                "what": speed_word(one),
                "speedup": f"{one.speedup:.2f}x",
                "usual": f"{one.usual:.2f}x",
                "score": f"{one.score:.1f}",
            }
            for one in found.outliers
        ],
        outlier_rule=OUTLIER_RULE,
        special=_special(results),
        filters=filters(rows),
        figures=figures(rows, found),
        columns=[Heading("Model"), *(heading for heading, _ in columns)],
        rows=[
            {"model": row["model"], "command": row["command"], "cells": [cell(row, result) for _, cell in columns]}
            for row, result in zip(rows, results, strict=True)
        ],
        problems=_problems(found, ids),
        method=_method(data),
        environment=msgspec.json.format(to_json([about_run(run.manifest) for run in data.runs]), indent=1).decode(),
        licences=f"{read_asset('vendor', 'LICENSE-plot')}\n{read_asset('vendor', 'LICENSE-d3')}",
    )


def _special(results: Sequence[CaseResult]) -> list[dict[str, Any]]:
    tables = [("Models and backends", backends.headings(results), backends.rows(results), backends.EXPLAINED)]
    tables += [(title, section.HEADINGS, section.rows(results), note) for title, section, note in _SPECIAL]
    return [
        {"title": title, "headings": headings, "rows": rows, "note": note}
        for title, all_headings, all_rows, note in tables
        for headings, rows in [used_columns(all_headings, all_rows)]
        if rows
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


def _totals_table(title: str, totals: Sequence[Total]) -> dict[str, Any]:
    headings, rows = used_columns(TOTAL_HEADINGS, [total_cells(total) for total in totals])
    by_axis = groupby(zip(totals, rows, strict=True), key=lambda one: one[0].axis)
    groups = [[row for _, row in group] for _, group in by_axis]
    return {"title": title, "headings": [headings[0].title(), *map(capital, headings[1:])], "groups": groups}


def _problems(found: Overview, ids: dict[int, int]) -> list[dict[str, Any]]:
    kinds = (("Failed", found.failed), ("Incorrect", found.incorrect), ("Skipped", found.skipped))
    return [
        {
            "title": title,
            "rows": [
                {"id": ids[id(e)], "label": e.case.label(), "reason": e.reason, "command": e.command} for e in some
            ],
        }
        for title, some in kinds
        if some
    ]
