"""Series over time as one HTML file that opens offline, in the look of the report's page.

`history.html.j2` is the page's text, `history.js` its behaviour. Observable Plot draws the series that is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchzoo.analysis.change_points import ChangePoint
from torchzoo.analysis.series import IndexedRun, Series
from torchzoo.report.html import digits, offline_page
from torchzoo.report.over_time import change_text, series_title, value_text
from torchzoo.report.run_comparison import NAMES

#: A small chart: its size in pixels, and the most values in it.
WIDTH, HEIGHT, MOST_VALUES = 160, 28, 80

#: A series and its change points.
Found = tuple[Series, Sequence[ChangePoint]]


def page(found: Sequence[Found]) -> str:
    """Return the whole file."""
    runs = _runs(found)
    return offline_page(
        "history",
        _data(found, runs),
        title="torchzoo history",
        subtitle=_subtitle(found, runs),
        rows=[_row(number, *one) for number, one in enumerate(found)],
        filters=_filters(found),
        changed=sum(bool(points) for _, points in found),
        width=WIDTH,
        height=HEIGHT,
    )


def _runs(found: Sequence[Found]) -> list[IndexedRun]:
    runs = {point.run.path: point.run for series, _ in found for point in series.points}
    return sorted(runs.values(), key=lambda run: (run.created_at, run.path))


def _subtitle(found: Sequence[Found], runs: Sequence[IndexedRun]) -> str:
    machines = sorted({series.machine for series, _ in found})
    days = " to ".join(dict.fromkeys((runs[0].created_at[:10], runs[-1].created_at[:10]))) if runs else "no runs"
    return f"{len(found)} series · {len(runs)} runs, {days} · {'; '.join(machines)}"


def _filters(found: Sequence[Found]) -> list[dict[str, Any]]:
    series = [one for one, _ in found]
    all_of = {
        "Metric": {NAMES[one.metric] for one in series},
        "Mode": {one.case.mode.value for one in series},
        "Device": {one.case.device for one in series},
        "Backend": {str(one.case.backend) for one in series},
        "Machine": {one.machine for one in series},
    }
    return [
        {"key": label.lower(), "label": label, "options": sorted(options)}
        for label, options in all_of.items()
        if len(options) > 1
    ]


def _row(number: int, series: Series, points: Sequence[ChangePoint]) -> dict[str, Any]:
    last, change = series.last, points[-1] if points else None
    latest = series.points[-1] if series.points else None
    return {
        "id": number,
        "label": series.case.label(),
        "metric": NAMES[series.metric],
        "machine": series.machine,
        "line": _line(series.values),
        "marks": [_place(point.index, len(series.points)) for point in points],
        "last": "-" if last is None else value_text(series.metric, last.value),
        "key": None if last is None else last.value,
        "change": "" if change is None else f"{change.ratio.value:.3f}x",
        "change_key": None if change is None else abs(math.log(change.ratio.value)),
        "worse": change is not None and change.ratio.value > 1,
        "day": "" if change is None else series.points[change.index].run.created_at[:10],
        "status": "" if latest is None else latest.status.value,
        "runs": len(series.points),
    }


def _place(index: int, count: int) -> float:
    """Where a run stands in the small chart, in pixels."""
    return round(2 + (WIDTH - 4) * index / max(1, count - 1), 1)


def _line(values: Sequence[float]) -> str:
    """The path of the small chart, with a gap where a value is missing; of many values, evenly spaced ones."""
    step = max(1, math.ceil(len(values) / MOST_VALUES))
    places = sorted({*range(0, len(values), step), len(values) - 1}) if values else []
    real = [values[place] for place in places if not math.isnan(values[place])]
    if not real:
        return ""
    low, span = min(real), max(real) - min(real)
    parts, is_open = [], False
    for place in places:
        if math.isnan(values[place]):
            is_open = False
            continue
        y = HEIGHT / 2 if span == 0 else HEIGHT - 3 - (HEIGHT - 6) * (values[place] - low) / span
        parts.append(f"{'L' if is_open else 'M'}{_place(place, len(values))} {y:.1f}")
        is_open = True
    return "".join(parts) + ("h0.1" if len(real) == 1 else "")


def _data(found: Sequence[Found], runs: Sequence[IndexedRun]) -> dict[str, Any]:
    """The data of `history.js`. Nights with the same software share its list."""
    place = {run.path: number for number, run in enumerate(runs)}
    software = {id(run.software): run.software for run in runs}
    number_of = {key: number for number, key in enumerate(software)}
    return {
        "software": [dict(facts) for facts in software.values()],
        "runs": [[run.created_at, run.name, number_of[id(run.software)]] for run in runs],
        "series": [_series(series, points, place) for series, points in found],
    }


def _series(series: Series, points: Sequence[ChangePoint], place: dict[str, int]) -> dict[str, Any]:
    figures = [point.figure for point in series.points]
    return {
        "title": series_title(series),
        "machine": series.machine,
        "metric": NAMES[series.metric],
        "unit": series.metric.unit,
        "mode": series.case.mode,
        "device": series.case.device,
        "backend": str(series.case.backend),
        "search": f"{series_title(series)} {series.machine}".lower(),
        "x": [place[point.run.path] for point in series.points],
        "v": [one and digits(one.value) for one in figures],
        "lo": [one and digits(one.low) for one in figures],
        "hi": [one and digits(one.high) for one in figures],
        "not": {
            number: f"{point.status}: {point.reason}" if point.reason else point.status
            for number, point in enumerate(series.points)
            if point.figure is None
        },
        "changes": [
            {
                "at": point.index,
                "text": change_text(point),
                "before": value_text(series.metric, point.median_before),
                "after": value_text(series.metric, point.median_after),
                "worse": point.ratio.value > 1,
            }
            for point in points
        ],
    }
