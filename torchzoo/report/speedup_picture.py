"""The picture of a run's speedups as SVG: a row for each domain and mode, a dot for each case, and the mean.

`assets/speedups.svg.j2` has the shapes and the colours, for light and dark pages. Here is what they show and where.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.totals import ALL, Total, comparison_group, speedups_by_group
from torchzoo.case import Mode
from torchzoo.errors import UsageError
from torchzoo.report import units
from torchzoo.report.html.offline import template
from torchzoo.report.markdown import provenance_line

WIDTH = 760
PLOT_LEFT, PLOT_RIGHT = 216, 572  # what stands left and right of it: the domain and the mode, the mean in figures
ROW, GAP, HEADER, AXIS = 20, 8, 78, 62  # heights
DOT_OFFSETS = (0.0, -4.5, 4.5, -2.25, 2.25)  # so that equal speedups are seen side by side
MOST_DOUBLINGS = 6  # from 1/64x to 64x; what is beyond stands at the edge


class Dot(msgspec.Struct, frozen=True, kw_only=True):
    """One case."""

    x: float
    y: float
    text: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The cases of one domain in one mode, with their geometric mean."""

    name: str  # of the domain, on its first line only
    mode: Mode
    y: float
    dots: tuple[Dot, ...]
    mean: float
    low: float
    high: float
    text: str


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    x: float
    text: str
    is_one: bool


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """The speedups of one kind, `inductor on cuda`."""

    title: str
    y: float  # of its top
    axis_y: float
    dot: str  # what a dot is: a model, or a case where a model has several in one line
    lines: tuple[Line, ...]
    ticks: tuple[Tick, ...]
    note: str  # how many dots stand at the edge, if any


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Where a speedup stands: logarithmic, from a power of two to another."""

    low: int
    high: int

    def x(self, speedup: float) -> float:
        doublings = math.log2(speedup) if speedup > 0 else -math.inf
        share = (min(max(doublings, self.low), self.high) - self.low) / (self.high - self.low)
        return round(PLOT_LEFT + share * (PLOT_RIGHT - PLOT_LEFT), 1)

    def has(self, speedup: float) -> bool:
        return 2.0**self.low <= speedup <= 2.0**self.high


def picture(data: ReportData) -> str:
    """The whole file.

    Raises:
        UsageError: no case with a backend beside eager passed, so there is no speedup.
    """
    charts: list[Chart] = []
    y = 0.0
    for group, by_domain in speedups_by_group(data.cases).items():
        results = [
            one for one in data.cases if one.has_candidate and one.passed and comparison_group(one.case) == group
        ]
        chart = _chart(group, by_domain, results, y)
        charts.append(chart)
        y = chart.axis_y + AXIS
    if not charts:
        raise UsageError("no speedups to draw: no case with a backend beside eager passed (--backend adds one)")
    return template("speedups.svg.j2").render(
        charts=charts,
        width=WIDTH,
        height=y + 22,
        left=PLOT_LEFT,
        right=PLOT_RIGHT,
        about=provenance_line(data),
        modes=[mode for mode in Mode if any(line.mode is mode for chart in charts for line in chart.lines)],
    )


def _chart(group: str, by_domain: dict[str, dict[Mode, Total]], results: Sequence[CaseResult], top: float) -> Chart:
    speedups = [_speedup(result) for result in results]
    scale = _scale(speedups)
    y = top + HEADER
    lines: list[Line] = []
    for domain, by_mode in by_domain.items():
        for number, mode in enumerate(mode for mode in Mode if mode in by_mode):
            mean = by_mode[mode].passing
            assert mean is not None
            some = [result for result in results if _row_of(result) == (domain, mode)]
            lines.append(
                Line(
                    name=domain.replace("_", " ") if number == 0 else "",
                    mode=mode,
                    y=y,
                    dots=_dots(some, scale, y),
                    mean=scale.x(mean.value),
                    low=scale.x(mean.low),
                    high=scale.x(mean.high),
                    text=f"{units.factor(mean)} ({by_mode[mode].compared})",
                )
            )
            y += ROW
        y += GAP
    beyond = sum(not scale.has(speedup) for speedup in speedups)
    return Chart(
        title=f"Speedup of {group} over eager",
        y=top,
        axis_y=y,
        dot="model" if len({(one.case.model, one.case.mode) for one in results}) == len(results) else "case",
        lines=tuple(lines),
        ticks=tuple(
            Tick(x=scale.x(2.0**power), text=f"{2.0**power:g}x", is_one=power == 0)
            for power in range(scale.low, scale.high + 1)
        ),
        note=f"{beyond} of the dots are beyond the scale, and stand at its edge" if beyond else "",
    )


def _row_of(result: CaseResult) -> tuple[str, Mode]:
    """The row that has its dot: of its domain; of all where its domain is not known."""
    return (ALL if result.domain is None else result.domain), result.case.mode


def _dots(results: Sequence[CaseResult], scale: Scale, y: float) -> tuple[Dot, ...]:
    ordered = sorted(results, key=_speedup)
    return tuple(
        Dot(
            x=scale.x(_speedup(result)),
            y=y + DOT_OFFSETS[number % len(DOT_OFFSETS)],
            text=f"{result.case.label()}: {_speedup(result):.3g}x",
        )
        for number, result in enumerate(ordered)
    )


def _scale(speedups: Sequence[float]) -> Scale:
    """Powers of two around all of them and around 1, within what can be seen."""
    low, high = (min(max(one, 2.0**-MOST_DOUBLINGS), 2.0**MOST_DOUBLINGS) for one in (min(speedups), max(speedups)))
    return Scale(low=min(-1, math.floor(math.log2(low))), high=max(1, math.ceil(math.log2(high))))


def _speedup(result: CaseResult) -> float:
    assert result.figures is not None
    assert result.figures.speedup is not None
    return result.figures.speedup.value
