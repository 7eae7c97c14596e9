"""Runs over time as people read them in the terminal, and as JSON: series, and what changed between two versions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from torchzoo.analysis.compare import Change
from torchzoo.analysis.judge import Finding, Verdict
from torchzoo.analysis.run_figures import Metric, RunFigure
from torchzoo.analysis.series import IndexedRun, Series, SoftwareChange
from torchzoo.report import terminal, units
from torchzoo.report.run_comparison import NAMES, findings_table
from torchzoo.report.text import json_text
from torchzoo.stats import Estimate

if TYPE_CHECKING:
    from torchzoo.analysis.change_points import ChangePoint

_BARS = "▁▂▃▄▅▆▇█"
_SPARK = 60  # characters
_FEW = 6  # facts of software that are named in a line


def value_text(metric: Metric, value: float) -> str:
    """`7.03 ms`, `1.50 GiB` or `0.675x`."""
    return units.metric_value(value, metric.unit)


def figure_text(figure: RunFigure) -> str:
    """The value with its interval; of a memory, with the least and the most of the processes where they differ."""
    if figure.metric.unit != "bytes":
        estimate = Estimate(
            value=figure.value,
            low=figure.low,
            high=figure.high,
            confidence=figure.confidence,
            count=len(figure.processes),
            of="processes",
        )
        return units.latency(estimate) if figure.metric.unit == "s" else units.speedup(estimate)
    text, *ends = (value_text(figure.metric, value) for value in (figure.value, figure.low, figure.high))
    return text if figure.low == figure.high else f"{text} [{ends[0]}, {ends[1]}]"


def change_text(point: ChangePoint) -> str:
    """`1.070x [1.065, 1.075]`: after over before."""
    ratio = point.ratio
    return f"{ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}]"


def p_text(p_value: float) -> str:
    """`p = 2e-08`; `p < 1e-15` where the number is too small to be told from 0."""
    return f"p = {p_value:.0e}" if p_value >= 1e-15 else "p < 1e-15"


def software_text(changes: Sequence[SoftwareChange]) -> str:
    """`torch 2.14.0 -> 2.15.0, timm 1.0.19 -> 1.0.20 and 3 more`."""
    return units.first_few([f"{one.name} {one.before} -> {one.after}" for one in changes], _FEW)


def sparkline(values: Sequence[float], width: int = _SPARK) -> str:
    """The values as bars of text, on a scale from the least to the most. A space stands for a missing value.

    If there are more values than `width`, a bar stands for the median of several.
    """
    groups = min(width, len(values))
    bounds = [number * len(values) // groups for number in range(groups + 1)] if groups else [0]
    shown = [_middle(values[start:end]) for start, end in pairwise(bounds)]
    real = [value for value in shown if not math.isnan(value)]
    if not real:
        return " " * len(shown)
    low, span = min(real), max(real) - min(real)
    places = [0.0 if math.isnan(v) or span == 0 else (v - low) / span for v in shown]
    return "".join(
        " " if math.isnan(value) else _BARS[round(place * (len(_BARS) - 1))]
        for value, place in zip(shown, places, strict=True)
    )


def _middle(values: Sequence[float]) -> float:
    real = sorted(value for value in values if not math.isnan(value))
    return real[len(real) // 2] if real else math.nan


# --- series ---


def series_title(series: Series) -> str:
    """`resnet18 train cuda inductor bs16, latency`."""
    basis = f" ({series.basis})" if series.basis else ""
    return f"{series.case.label()}, {NAMES[series.metric]}{basis}"


def one_series(series: Series, points: Sequence[ChangePoint], *, last: int) -> Any:
    """A series in the terminal: its form, its change points, and its last runs, a line each.

    Args:
        series: what is shown.
        points: its change points.
        last: how many runs have a line; 0 for all.
    """
    from rich.console import Group

    by_place = {point.index: point for point in points}
    software = series.software_changes()
    shown = range(len(series.points))[-last:] if last else range(len(series.points))
    rows = []
    for place in shown:
        point = series.points[place]
        value = figure_text(point.figure) if point.figure is not None else f"{point.status}"
        marks = []
        if place in by_place:
            marks.append(f"CHANGE {change_text(by_place[place])}, {p_text(by_place[place].p_value)}")
        if place in software:
            marks.append(software_text(software[place]))
        if point.reason:
            marks.append(point.reason)
        rows.append((point.run.created_at[:16].replace("T", " "), point.run.name, value, "; ".join(marks)))
    parts: list[Any] = [terminal.text(series_title(series)), terminal.text(f"on {series.machine}"), ""]
    if series.last is not None:
        real = [value for value in series.values if not math.isnan(value)]
        ends = " to ".join(value_text(series.metric, value) for value in (min(real), max(real)))
        parts += [terminal.text(f"{sparkline(series.values)}  {ends}"), ""]
    if len(shown) < len(series.points):
        note = f"the last {len(shown)} of {len(series.points)} runs; --last 0 shows all"
        earlier = [point for point in points if point.index < shown.start]
        parts += [terminal.text(_earlier(series, point)) for point in earlier]
        parts.append(terminal.text(note))
    parts.append(terminal.table(("run (UTC)", "folder", "value", "what changed"), rows))
    if not points:
        parts += ["", terminal.text("no change point")]
    return Group(*parts)


def _earlier(series: Series, point: ChangePoint) -> str:
    day = series.points[point.index].run.created_at[:10]
    return f"{day}: CHANGE {change_text(point)}, {p_text(point.p_value)}"


def many_series(found: Sequence[tuple[Series, Sequence[ChangePoint]]]) -> Any:
    """A line for each series: its form, its last value and its last change."""
    from rich.console import Group

    machines = list(dict.fromkeys(series.machine for series, _ in found))
    parts: list[Any] = []
    for machine in machines:
        rows = []
        for series, points in found:
            if series.machine != machine:
                continue
            last, change = series.last, points[-1] if points else None
            rows.append(
                (
                    series_title(series),
                    sparkline(series.values, 24),
                    "-" if last is None else value_text(series.metric, last.value),
                    ""
                    if change is None
                    else f"{change_text(change)} on {series.points[change.index].run.created_at[:10]}",
                )
            )
        parts += [terminal.text(f"on {machine}"), terminal.CaseTable(("runs", "last", "last change"), rows), ""]
    parts.append(terminal.text("Narrow the choice to one series to see each run (-t, -d, --backend, --metric ...)."))
    return Group(*parts)


def series_json(found: Sequence[tuple[Series, Sequence[ChangePoint]]]) -> str:
    """The series as JSON: values in seconds, bytes or as ratios, unrounded."""
    return json_text([_series_facts(series, points) for series, points in found], indent=1) + "\n"


def _series_facts(series: Series, points: Sequence[ChangePoint]) -> dict[str, Any]:
    software = series.software_changes()
    return {
        "case": series.case,
        "machine": series.machine,
        "metric": series.metric,
        "basis": series.basis,
        "unit": series.metric.unit,
        "points": [
            {
                "run": point.run.path,
                "created_at": point.run.created_at,
                "status": point.status,
                "reason": point.reason,
                "figure": point.figure,
                "software_changes": software.get(place, ()),
            }
            for place, point in enumerate(series.points)
        ],
        "change_points": points,
    }


# --- two versions ---


def side_text(name: str, runs: Sequence[IndexedRun]) -> str:
    """`2.15.0: 10 runs, 2026-11-13 to 2026-11-22`."""
    days = list(dict.fromkeys((runs[0].created_at[:10], runs[-1].created_at[:10])))
    return f"{name}: {len(runs)} {'run' if len(runs) == 1 else 'runs'}, {' to '.join(days)}"


def machine_parts(findings: Sequence[Finding], changes: Sequence[Any], still_failing: int) -> list[Any]:
    """What changed on one kind of machine, in the terminal: statuses, the figures that differ, and how many do not."""
    shown = [change for change in changes if change.change not in (Change.NEW, Change.GONE)]
    parts: list[Any] = [
        terminal.text(f"{change.change}: {change.case.label()}: {change.base} -> {change.candidate}")
        for change in shown
    ]
    order = [Verdict.SLOWER, Verdict.MORE, Verdict.FASTER, Verdict.LESS, Verdict.INCONCLUSIVE]
    wanted = sorted(
        (one for one in findings if one.is_notable or one.is_open),
        key=lambda one: (order.index(one.verdict), -abs(math.log(one.ratio.value))),
    )
    if wanted:
        parts += [terminal.text(one) if isinstance(one, str) else one for one in findings_table(wanted)]
    for metric in Metric:
        verdicts = Counter(one.verdict for one in findings if one.metric is metric)
        if verdicts:
            counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
            parts.append(terminal.text(f"{NAMES[metric]}: {counted}"))
    kinds = Counter(change.change for change in changes)
    states = [f"{kinds[kind]} {kind}" for kind in Change if kinds[kind]]
    states += [f"{still_failing} failing in both"] if still_failing else []
    if states:
        parts.append(terminal.text(f"status: {', '.join(states)}"))
    return parts
