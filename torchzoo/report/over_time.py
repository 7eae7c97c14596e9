"""Documents on runs over time, and JSON: series, the speed of runs, and what changed between two versions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from torchzoo.analysis.compare import StatusChange
from torchzoo.analysis.judge import Finding
from torchzoo.analysis.run_figures import Metric, RunFigure
from torchzoo.analysis.series import IndexedRun, Series, SoftwareChange, SpeedSeries, software_changes
from torchzoo.analysis.time_use import SPEED_FIGURES, RunConditions
from torchzoo.report import bars, units
from torchzoo.report.document import Block, Heading, Items, Text, table
from torchzoo.report.run_comparison import NAMES, tally, what_changed
from torchzoo.report.text import json_text
from torchzoo.settings import Settings
from torchzoo.stats import Estimate

if TYPE_CHECKING:
    from torchzoo.analysis.change_points import ChangePoint

_BARS = 60  # of a series
_FEW = 6  # facts of software that are named in a line


def value_text(metric: Metric, value: float) -> str:
    """`7.03 ms`, `1.50 GiB` or `0.675x`."""
    return units.metric_value(value, metric.unit)


def figure_text(figure: RunFigure) -> str:
    """The value with its interval; of memory and counts, with the least and the most of processes that differ."""
    if not figure.metric.is_time:
        text, *ends = (value_text(figure.metric, value) for value in (figure.value, figure.low, figure.high))
        return text if figure.low == figure.high else f"{text} [{ends[0]}, {ends[1]}]"
    value, low, high, count = figure.value, figure.low, figure.high, len(figure.processes)
    estimate = Estimate(value=value, low=low, high=high, confidence=figure.confidence, count=count, of="processes")
    return units.latency(estimate) if figure.metric.unit == "s" else units.speedup(estimate)


def change_text(point: ChangePoint) -> str:
    """`1.070x [1.065, 1.075], p = 2e-08`: after over before; `p < 1e-15` where p is too small to be told from 0."""
    p_value = f"p = {point.p_value:.0e}" if point.p_value >= 1e-15 else "p < 1e-15"
    return f"{_ratio_text(point)}, {p_value}"


def _ratio_text(point: ChangePoint) -> str:
    return units.factor(point.ratio, decimals=3)


def software_text(changes: Sequence[SoftwareChange]) -> str:
    """`torch 2.14.0 -> 2.15.0, timm 1.0.19 -> 1.0.20 and 3 more`."""
    return units.first_few([f"{one.name} {one.before} -> {one.after}" for one in changes], _FEW)


# --- series ---


def series_title(series: Series) -> str:
    """`resnet18 train cuda inductor bs16, latency`."""
    basis = f" ({series.basis})" if series.basis else ""
    return f"{series.case.label()}, {NAMES[series.metric]}{basis}"


def one_series(series: Series, points: Sequence[ChangePoint], *, last: int) -> list[Block]:
    """A series: its form, its change points, and its last runs (0: all)."""
    first = max(0, len(series.points) - last) if last else 0
    blocks: list[Block] = [Heading(series_title(series)), Text(f"on {series.machine}")]
    if series.last is not None:
        real = [value for value in series.values if not math.isnan(value)]
        ends = " to ".join(value_text(series.metric, value) for value in (min(real), max(real)))
        blocks.append(Text(f"{bars.in_time(series.values, _BARS)}  {ends}"))
    if first:
        changes = {point.index: [f"CHANGE {change_text(point)}"] for point in points}
        blocks.append(_left_out([point.run for point in series.points], changes, first))
    blocks.append(table(("run (UTC)", "folder", "value", "what changed"), _run_rows(series, points, first)))
    return [*blocks, *([] if points else [Text("no change point")])]


def _left_out(runs: Sequence[IndexedRun], changes: Mapping[int, Sequence[str]], first: int) -> Items:
    """The changes of the runs before the first one that is listed, and how many runs are listed."""
    places = [place for place in sorted(changes) if place < first]
    earlier = [f"{runs[place].created_at[:10]}: {text}" for place in places for text in changes[place]]
    return Items((*earlier, f"the last {len(runs) - first} of {len(runs)} runs; --last 0 shows all"))


def _run_rows(series: Series, points: Sequence[ChangePoint], first: int) -> Iterator[tuple[str, ...]]:
    by_place = {point.index: point for point in points}
    software = series.software_changes()
    for place, point in list(enumerate(series.points))[first:]:
        value = figure_text(point.figure) if point.figure is not None else f"{point.status}"
        changed = [f"CHANGE {change_text(by_place[place])}"] if place in by_place else []
        changed += [software_text(software[place])] if place in software else []
        changed += [point.reason] if point.reason else []
        yield point.run.created_at[:16].replace("T", " "), point.run.name, value, "; ".join(changed)


def many_series(found: Sequence[tuple[Series, Sequence[ChangePoint]]]) -> list[Block]:
    """A row for each series: its form, its last value and its last change."""
    blocks: list[Block] = []
    for machine in dict.fromkeys(series.machine for series, _ in found):
        rows = [_series_row(*one) for one in found if one[0].machine == machine]
        blocks += [Heading(f"on {machine}"), table(("case", "runs", "last", "last change"), rows)]
    return [*blocks, Text("Narrow the choice to one series to see each run (-t, -d, --backend, --metric ...).")]


def _series_row(series: Series, points: Sequence[ChangePoint]) -> tuple[str, ...]:
    last = "-" if series.last is None else value_text(series.metric, series.last.value)
    change = ""
    if points:
        change = f"{_ratio_text(points[-1])} on {series.points[points[-1].index].run.created_at[:10]}"
    return series_title(series), bars.in_time(series.values, 24), last, change


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


# --- the speed of runs ---

#: The change points of a series of speeds, by figure.
SpeedChanges = Mapping[str, Sequence["ChangePoint"]]

_SPEED: dict[str, tuple[str, Callable[[float], str]]] = {
    "cases_per_minute": ("cases a minute", units.number),
    "window_share": ("in windows", "{:.0%}".format),
    "cpu_s_per_case": ("CPU time a case", units.seconds),
}


def run_speeds(found: Sequence[tuple[SpeedSeries, SpeedChanges]], *, last: int) -> list[Block]:
    """A table of runs for each series of speeds, with the last runs of each (0: all)."""
    blocks: list[Block] = []
    for series, points in found:
        runs, first = series.runs, max(0, len(series.points) - last) if last else 0
        changes: dict[int, list[str]] = {}
        for figure, some in points.items():
            for point in some:
                changes.setdefault(point.index, []).append(f"CHANGE of {_SPEED[figure][0]} {change_text(point)}")
        blocks += [Heading(f"on {series.machine}"), Text(_conditions_text(series.conditions))]
        blocks += [_left_out(runs, changes, first)] if first else []
        headings = ("run (UTC)", "folder", *(name for name, _ in _SPEED.values()), "what changed")
        blocks.append(table(headings, list(_speed_rows(series, changes))[first:]))
        blocks += [] if changes else [Text("no change point")]
    return blocks


def _conditions_text(conditions: RunConditions) -> str:
    """`24 cases (plan 0beec7b5), 2 lanes, 16 cores, jobs 12`: with the settings that are not the default."""
    usual = _flat_settings(Settings())
    settings = {name: value for name, value in _flat_settings(conditions.settings).items() if value != usual[name]}
    parts = [
        f"{units.counted(conditions.cases, 'case')} (plan {conditions.plan})",
        units.counted(conditions.lanes, "lane"),
        units.counted(conditions.cores, "core"),
        *(f"{name} {json_text(value)}" for name, value in settings.items()),
    ]
    return ", ".join(parts)


def _flat_settings(settings: Settings) -> dict[str, Any]:
    flat: dict[str, Any] = msgspec.to_builtins(settings)
    limits = flat.pop("limits")
    return flat | {f"limits.{name}": limit_s for name, limit_s in limits.items()}


def _speed_rows(series: SpeedSeries, changes: Mapping[int, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    before = series.runs[0]
    for place, (run, speed) in enumerate(series.points):
        values = [(getattr(speed, figure), text) for figure, (_, text) in _SPEED.items()]
        software = software_changes(before.software, run.software)
        changed = [*changes.get(place, ()), *([software_text(software)] if software else [])]
        figures = ("-" if value is None else text(value) for value, text in values)
        yield run.created_at[:16].replace("T", " "), run.name, *figures, "; ".join(changed)
        before = run


def speeds_json(found: Sequence[tuple[SpeedSeries, SpeedChanges]]) -> str:
    """The speeds as JSON, unrounded."""
    facts = [
        {
            "machine": series.machine,
            "conditions": series.conditions,
            "points": [
                {"run": run.path, "created_at": run.created_at}
                | {figure: getattr(speed, figure) for figure in SPEED_FIGURES}
                for run, speed in series.points
            ],
            "change_points": points,
        }
        for series, points in found
    ]
    return json_text(facts, indent=1) + "\n"


# --- two versions ---


def side_text(name: str, runs: Sequence[IndexedRun]) -> str:
    """`2.15.0: 10 runs, 2026-11-13 to 2026-11-22`."""
    days = list(dict.fromkeys((runs[0].created_at[:10], runs[-1].created_at[:10])))
    return f"{name}: {units.counted(len(runs), 'run')}, {' to '.join(days)}"


def machine_changes(
    machine: str, findings: Sequence[Finding], changes: Sequence[StatusChange], still_failing: int
) -> list[Block]:
    """The changes on one kind of machine: statuses, the figures that differ, and how many do not."""
    return [
        Heading(f"on {machine}"),
        *what_changed(findings, changes),
        Items(tuple(tally(findings, changes, still_failing))),
    ]
