"""A report as one HTML file that opens offline: charts by Observable Plot, nothing fetched, foreign text inert."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib import resources
from itertools import groupby
from typing import Any

import msgspec

from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.frame import values
from torchzoo.analysis.totals import OUTLIER_RULE, DeviceRatio, Total, comparison_group
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Failed, Skipped
from torchzoo.report import units
from torchzoo.report.document import facts
from torchzoo.report.markdown import machine, software
from torchzoo.report.overview import (
    TOTAL_HEADINGS,
    TOTALS_NOTE,
    Overview,
    notes,
    overview,
    percent,
    total_cells,
    unpassed,
    used_columns,
)
from torchzoo.report.remarks import remarks_of
from torchzoo.report.summary import where_time_went
from torchzoo.report.tables import figure_lines

#: How many step times the file may hold: some six bytes each.
SAMPLES = 400_000
SAMPLES_PER_VARIANT = (50, 2000)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A chart's section; `page.js` has a function of the name `id`."""

    id: str
    short: str  # in the page's navigation
    title: str
    text: str


TOTALS = Figure(
    id="totals",
    short="Speedups",
    title="Speedups by group",
    text="Geometric means of each case's paired speedup. The filter does not change them.",
)
RATIOS = Figure(
    id="ratios",
    short="Ratios",
    title="Time, CPU memory and GPU memory against eager",
    text="Candidate over eager, per model, on a logarithmic scale; below 1 the candidate needs less (T, CM and GM of "
    "the TorchBench paper, arXiv:2304.14226). CPU memory is the process's peak resident size.",
)
BREAKDOWN = Figure(
    id="breakdown",
    short="Breakdown",
    title="Where a step's time goes",
    text="Shares of a profiled step's wall time: the device computes, only moves data, or idles. On the CPU, active is "
    "time inside operators and idle is Python and the framework.",
)
DEVICES = Figure(
    id="devices",
    short="Devices",
    title="One device against another",
    text="Latency on the first device over latency on another, same model, mode, backend, precision and batch; the "
    "ends of both intervals put against each other.",
)
MEMORY = Figure(
    id="memory",
    short="Memory",
    title="Peak memory",
    text="Peaks over a few steady steps, in a pass of their own. The scale is logarithmic.",
)
COMPILE = Figure(
    id="compile",
    short="Compile time",
    title="First step, compilation included",
    text="Wall time is shared with the cases that prepare at the same time, unless the run was exclusive; CPU time is "
    "not.",
)


class Cell(msgspec.Struct, frozen=True):
    """A cell of the table of cases; `key` is what a number is sorted by."""

    text: str
    key: float | None = None
    is_number: bool = False
    badge: str = ""


class Heading(msgspec.Struct, frozen=True):
    name: str
    is_number: bool = False
    title: str = ""


def page(data: ReportData) -> str:
    """The whole file."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    results = data.cases
    rows = [values(result) for result in results]
    found = overview(results)
    ids = {id(result): number for number, result in enumerate(results)}
    scripts = {
        "theme": _read("theme.js"),
        "d3": _read("vendor", "d3.min.js"),
        "plot": _read("vendor", "plot.umd.min.js"),
        "page": _read("page.js"),
    }
    columns = _columns(rows)
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return template.from_string(
        _read("page.html.j2")
    ).render(
        title=_title(data),
        subtitle=_subtitle(data),
        policy=_policy(scripts.values()),
        css=Markup(_read("page.css")),  # noqa: S704  ours, like the scripts
        scripts={name: Markup(text) for name, text in scripts.items()},  # noqa: S704
        data=Markup(_inert_json(_data(data, rows, found, ids))),  # noqa: S704  nothing in it can end the element
        cards=_cards(data, found),
        notes=notes(data),
        totals=[_totals_table(section.title, section.totals) for section in found.sections],
        totals_note=TOTALS_NOTE,
        outliers=[
            {
                "id": ids[id(one.result)],
                "label": one.result.case.label(),
                "what": "fast" if one.score > 0 else "slow",
                "speedup": f"{one.speedup:.2f}x",
                "usual": f"{one.usual:.2f}x",
                "score": f"{one.score:.1f}",
            }
            for one in found.outliers
        ],
        outlier_rule=OUTLIER_RULE,
        filters=_filters(rows),
        figures=_figures(rows, found),
        columns=[heading for heading, _ in columns],
        rows=[
            {"model": row["model"], "command": row["command"], "cells": [cell(row, result) for _, cell in columns[1:]]}
            for row, result in zip(rows, results, strict=True)
        ],
        problems=_problems(results, ids),
        method=_method(data),
        environment=msgspec.json.format(
            msgspec.json.encode([facts(run.manifest) for run in data.runs]), indent=1
        ).decode(),
        licences=f"{_read('vendor', 'LICENSE-plot')}\n{_read('vendor', 'LICENSE-d3')}",
    )


def _read(*parts: str) -> str:
    return resources.files("torchzoo.report.html").joinpath("assets", *parts).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """Only these scripts run, and nothing is fetched: whatever else might get into the page is inert."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _inert_json(data: Any) -> str:
    """JSON that neither ends its script element nor opens another, whatever the text in it."""
    text = msgspec.json.encode(data).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


# --- words ---


def _title(data: ReportData) -> str:
    names = list(dict.fromkeys(run.path.resolve().name for run in data.runs))
    return f"torchzoo report: {', '.join(names)}"


def _subtitle(data: ReportData) -> str:
    environment = data.manifest.environment
    devices = {e.figures.measured.device_name for e in data.cases if e.figures is not None}
    dates = sorted({run.manifest.created_at[:10] for run in data.runs})
    parts = [*sorted(devices), f"torch {environment.get('torch')}", f"torchzoo {environment.get('torchzoo')}", *dates]
    return " · ".join(parts)


def _method(data: ReportData) -> list[str]:
    lines = [
        f"Machine: {machine(data.manifest)}.",
        f"Software: {software(data.manifest)}.",
        "Latency: wall time of one step, the device synchronised before and after; the median of blocks of about "
        "20 ms, with the interval of order statistics.",
        "Speedup: eager time over candidate time in turns A B B A in one process, the median of the paired ratios.",
        "Throughput: many steps with one synchronisation.",
    ]
    for run in data.runs:
        lines.append(f"Command: {' '.join(run.manifest.command)}")
        lines += [f"{line[0].upper()}{line[1:]}." for line in where_time_went(run)]
    return lines


def _cards(data: ReportData, found: Overview) -> list[dict[str, Any]]:
    everything = found.sections[0].totals[0]
    parts = [f"{everything.measured} measured", f"{everything.failed} failed", f"{everything.skipped} skipped"]
    if everything.incorrect:
        parts[0] += f" ({everything.incorrect} incorrect)"
    if data.not_run:
        parts.append(f"{data.not_run} not run")
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
            f"{ratio.value:.2f} {name} [{ratio.low:.2f}, {ratio.high:.2f}]"
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
    kinds = {comparison_group(result.case) for result in results if result.has_candidate}
    return f"{next(iter(kinds))} over eager" if kinds else ""


def _speedup_card(title: str, total: Total) -> dict[str, Any]:
    assert total.passing is not None
    assert total.over_all is not None
    return {
        "title": f"Speedup, {title}",
        "value": f"{total.passing.value:.2f}x",
        "lines": [
            f"95% [{total.passing.low:.2f}, {total.passing.high:.2f}], geometric mean",
            f"{total.over_all.value:.2f}x over all; {total.compared} of {total.comparable} cases",
        ],
    }


def _totals_table(title: str, totals: Sequence[Total]) -> dict[str, Any]:
    headings, rows = used_columns(TOTAL_HEADINGS, map(total_cells, totals))
    by_axis = groupby(zip(totals, rows, strict=True), key=lambda one: one[0].axis)
    groups = [[row for _, row in group] for _, group in by_axis]
    return {"title": title, "headings": [headings[0].title(), *map(_capital, headings[1:])], "groups": groups}


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _problems(results: Sequence[CaseResult], ids: dict[int, int]) -> list[dict[str, Any]]:
    kinds = (("Failed", Failed), ("Incorrect", None), ("Skipped", Skipped))
    return [
        {
            "title": title,
            "rows": [
                {"id": ids[id(e)], "label": e.case.label(), "reason": e.reason, "command": e.command} for e in some
            ],
        }
        for title, kind in kinds
        if (some := unpassed(results, kind))
    ]


# --- the table of cases ---

_FILTERS = {
    "domain": "Domain",
    "mode": "Mode",
    "device": "Device",
    "backend": "Backend",
    "precision": "Precision",
    "outcome": "Outcome",
}


def _varies(rows: Sequence[dict[str, Any]], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _shown_outcome(result: CaseResult) -> str:
    return result.status


def _filters(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for name, label in _FILTERS.items():
        options = ["passed", "incorrect", "failed", "skipped"]
        if name != "outcome":
            options = sorted({row[name] for row in rows if row[name] is not None})
        if len(options) > 1:
            found.append({"key": name, "label": label, "options": options})
    return found


def _columns(rows: Sequence[dict[str, Any]]) -> list[tuple[Heading, Any]]:
    """Headings with what makes a cell of a row and its result; an axis along which no case differs has no column."""

    def text(name: str) -> Any:
        return lambda row, _: Cell((row[name] or "").replace("_", " ") if name == "domain" else row[name] or "")

    def number(name: str, shown: Any) -> Any:
        return lambda row, _: Cell("" if row[name] is None else shown(row, row[name]), row[name], is_number=True)

    def latency(name: str) -> Any:
        return lambda row, result: Cell(_latency(result, name), row[f"{name}latency_s"], is_number=True)

    axes = [
        (Heading(_capital(name.replace("_", " "))), text(name))
        for name in ("mode", "device", "backend", "precision", "memory_format", "compile_scope")
        if name == "mode" or _varies(rows, name)
    ]
    on_device = any(row["device_peak_allocated_bytes"] is not None for row in rows)
    memory = "device_peak_allocated_bytes" if on_device else "host_peak_rss_bytes"
    compared = any(row["speedup"] is not None for row in rows)
    columns = [
        (Heading("Model"), None),
        *axes,
        (Heading("Outcome"), lambda _, result: Cell(_shown_outcome(result), badge=_shown_outcome(result))),
        (Heading("Batch", is_number=True), number("batch_size", lambda _, value: f"{value:,}")),
        (Heading("Eager", is_number=True, title="Latency of an eager step"), latency("eager_")),
    ]
    if compared:
        columns += [
            (Heading("Candidate", is_number=True, title="Latency of a step of the backend"), latency("")),
            (
                Heading("Speedup", is_number=True, title="Eager time over candidate time, paired"),
                lambda row, result: Cell(_speedup(result), row["speedup"], is_number=True),
            ),
        ]
    what = "Peak allocated on the device" if on_device else "Peak resident on the host"
    columns.append((Heading("Memory", is_number=True, title=what), number(memory, lambda _, value: units.size(value))))
    if compared:
        seconds = number("first_step_s", lambda _, value: units.seconds(value))
        columns.append((Heading("First step", is_number=True, title="Compilation included"), seconds))
    if _varies(rows, "domain"):
        columns.append((Heading("Domain"), text("domain")))
    return [*columns, (Heading("Note"), lambda _, result: Cell("; ".join(_notes(result))))]


def _latency(result: CaseResult, variant: str) -> str:
    if result.figures is None:
        return ""
    if variant == "eager_":
        return units.latency(result.figures.eager.latency_s)
    return units.latency(result.figures.candidate.latency_s) if result.figures.candidate else ""


def _speedup(result: CaseResult) -> str:
    return (
        units.speedup(result.figures.speedup)
        if result.figures is not None and result.figures.speedup is not None
        else ""
    )


def _notes(result: CaseResult) -> list[str]:
    return ([result.reason] if result.reason else []) + remarks_of(result.measured)


# --- what the scripts draw ---


def _figures(rows: Sequence[dict[str, Any]], found: Overview) -> list[Figure]:
    has_ratios = any(total.passing for total in found.sections[0].totals)
    wanted = {
        TOTALS: has_ratios,
        RATIOS: has_ratios,
        BREAKDOWN: any(row["eager_active_share"] is not None for row in rows),
        DEVICES: bool(found.device_ratios),
        MEMORY: any(row["eager_host_peak_rss_bytes"] is not None for row in rows),
        COMPILE: any(row["graphs"] is not None for row in rows),
    }
    return [figure for figure, is_wanted in wanted.items() if is_wanted]


def _data(data: ReportData, rows: Sequence[dict[str, Any]], found: Overview, ids: dict[int, int]) -> dict[str, Any]:
    variants = sum(1 + (result.figures.candidate is not None) for result in data.cases if result.figures is not None)
    least, most = SAMPLES_PER_VARIANT
    keep = max(least, min(most, SAMPLES // max(1, variants)))
    return {
        "cases": [
            _case(number, result, row, keep) for number, (result, row) in enumerate(zip(data.cases, rows, strict=True))
        ],
        "totals": [
            {
                "axis": total.axis,
                "name": total.name,
                "passing": _ends(total.passing),
                "all": _ends(total.over_all),
                "compared": total.compared,
                "comparable": total.comparable,
            }
            for total in found.sections[0].totals
        ],
        "devices": [_device(one, ids) for one in found.device_ratios],
    }


def _device(one: DeviceRatio, ids: dict[int, int]) -> dict[str, Any]:
    return {
        "id": ids[id(one.result)],
        "base": one.base,
        "device": one.device,
        "ratio": one.ratio,
        "low": one.low,
        "high": one.high,
    }


def _ends(estimate: Any) -> list[float] | None:
    return None if estimate is None else [estimate.value, estimate.low, estimate.high]


def _case(number: int, result: CaseResult, row: dict[str, Any], keep: int) -> dict[str, Any]:
    case = result.case
    found: dict[str, Any] = {
        "id": number,
        "label": case.label(),
        "model": case.model,
        "domain": row["domain"] or "",
        "mode": row["mode"],
        "device": case.device,
        "device_name": row["device_name"],
        "backend": row["backend"],
        "precision": row["precision"],
        "format": row["memory_format"],
        "scope": row["compile_scope"],
        "kind": comparison_group(case),
        "outcome": _shown_outcome(result),
        "passes": result.passed,
        "reason": result.reason,
        "command": result.command,
        "notes": remarks_of(result.measured),
        "search": f"{case.label()} {row['domain'] or ''} {_shown_outcome(result)} {result.reason}".lower(),
        "lines": [],
    }
    if result.figures is None:
        return found
    found["lines"] = [
        [label, *cells]
        for label, cells in figure_lines(
            result.figures, [result.figures.eager, *([result.figures.candidate] if result.figures.candidate else [])]
        )
    ]
    found["memory"] = {
        name: [row[f"eager_{column}"], row[column] if result.has_candidate else None]
        for name, column in (
            ("device", "device_peak_allocated_bytes"),
            ("host", "host_peak_rss_bytes"),
            ("unique", "host_uss_bytes"),
        )
    }
    found["samples"] = _samples(result, keep)
    if row["speedup"] is not None:
        found["speedup_text"] = _speedup(result)
        found["ratios"] = [_digits(row[name]) for name in ("time_ratio", "host_memory_ratio", "device_memory_ratio")]
        found["compile"] = [_digits(row[name]) for name in ("first_step_s", "first_step_cpu_s", "compile_s")]
    shares = {
        variant: [_digits(row[f"{prefix}{part}_share"]) for part in ("active", "movement", "idle")]
        for variant, prefix in ((EAGER_VARIANT, "eager_"), (CANDIDATE_VARIANT, ""))
        if row[f"{prefix}active_share"] is not None and (variant == EAGER_VARIANT or result.has_candidate)
    }
    if shares:
        found["shares"] = shares
    return found


def _samples(result: CaseResult, keep: int) -> dict[str, Any]:
    """Step times in milliseconds of each variant, in the order they ran; quartiles over all of them."""
    import numpy as np

    found = {}
    for variant in (EAGER_VARIANT, CANDIDATE_VARIANT):
        steps_ms = 1e3 * np.array(
            [
                sample
                for measured in result.measured
                for block in measured.blocks
                if block.variant == variant
                for sample in block.samples_s
            ]
        )
        if len(steps_ms) == 0:
            continue
        kept = steps_ms
        if len(steps_ms) > keep:
            kept = steps_ms[np.linspace(0, len(steps_ms) - 1, keep).round().astype(int)]
        found[variant] = {
            "of": len(steps_ms),
            "ms": [_digits(step) for step in kept.tolist()],
            "quartiles": [_digits(each) for each in np.quantile(steps_ms, [0, 0.25, 0.5, 0.75, 1]).tolist()],
        }
    return found


def _digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
