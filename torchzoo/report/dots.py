"""Values as SVG: a row for each group, a dot for each value, and the mean with its interval.

`assets/dots.svg.j2` has the shapes and the colours, for light and dark pages. Here is what they show and where.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from typing import Protocol

import msgspec

from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.totals import ALL, Total, speedups_by_group
from torchzoo.case import Mode
from torchzoo.errors import UsageError
from torchzoo.report import units
from torchzoo.report.html import template
from torchzoo.report.markdown import provenance_line
from torchzoo.stats import LEAST_OF_A_MEAN, Estimate

WIDTH = 760
PLOT_LEFT, PLOT_RIGHT = 216, 572  # what stands left and right of it: the group and the mode, the mean in figures
ROW, GAP, HEADER, AXIS = 20, 8, 78, 62  # heights
DOT_OFFSETS = (0.0, -4.5, 4.5, -2.25, 2.25)  # so that equal values are seen side by side
MOST_DOUBLINGS = 6  # from 1/64x to 64x; what is beyond stands at the edge
SHARE_TICKS = (0, 20, 40, 60, 80, 100)  # percent


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A value of one model or case. Where a mouse points to its dot, it says both."""

    name: str
    value: float


class DotRow(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a row. Rows of the same name that follow each other belong together: one for each mode."""

    name: str
    mode: Mode
    values: tuple[Value, ...]
    mean: Estimate
    count: int  # what the mean is of: more than the values where some have their dots in another row


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A chart of a picture."""

    title: str
    axis: str  # what is right of 1x, or what the percent are of
    groups: tuple[DotRow, ...]
    is_share: bool = False  # the values are shares from 0 to 1, on a linear scale; else ratios, on a logarithmic one
    dot: str = "model"  # what a dot is


# --- where it stands ---


class _Tick(msgspec.Struct, frozen=True, kw_only=True):
    x: float
    text: str
    is_base: bool


class _Dot(msgspec.Struct, frozen=True, kw_only=True):
    x: float
    y: float
    text: str


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # on the first line of a name only
    mode: Mode
    y: float
    dots: tuple[_Dot, ...]
    mean: float
    interval: tuple[float, float] | None
    text: str


class _Chart(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    axis: str
    y: float  # of its top
    axis_y: float
    dot: str
    mean: str
    lines: tuple[_Line, ...]
    ticks: tuple[_Tick, ...]
    note: str  # how many dots stand at the edge, if any
    fewest: int | None  # of how many values a mean has an interval, where one has none


class _Scale(Protocol):
    def x(self, value: float) -> float:
        """The place of a value; the edge of the scale for a value beyond it."""

    def has(self, value: float) -> bool:
        """Whether a value is within the scale."""

    def ticks(self) -> tuple[_Tick, ...]:
        """The labels of the axis."""

    def shown(self, value: float) -> str:
        """A value in figures."""

    def shown_mean(self, mean: Estimate) -> str:
        """A mean in figures."""


class RatioScale(msgspec.Struct, frozen=True, kw_only=True):
    """A logarithmic scale, from a power of two to another."""

    low: int
    high: int

    def x(self, value: float) -> float:
        doublings = math.log2(value) if value > 0 else -math.inf
        share = (min(max(doublings, self.low), self.high) - self.low) / (self.high - self.low)
        return _at(share)

    def has(self, value: float) -> bool:
        return 2.0**self.low <= value <= 2.0**self.high

    def ticks(self) -> tuple[_Tick, ...]:
        return tuple(
            _Tick(x=self.x(2.0**power), text=f"{2.0**power:g}x", is_base=power == 0)
            for power in range(self.low, self.high + 1)
        )

    def shown(self, value: float) -> str:
        return f"{value:.3g}x"

    def shown_mean(self, mean: Estimate) -> str:
        return units.factor(mean) if mean.has_interval else f"{mean.value:.2f}x, no interval"


class ShareScale:
    """A linear scale, from nothing to all."""

    def x(self, value: float) -> float:
        return _at(min(max(value, 0.0), 1.0))

    def has(self, value: float) -> bool:
        return 0.0 <= value <= 1.0

    def ticks(self) -> tuple[_Tick, ...]:
        return tuple(_Tick(x=self.x(one / 100), text=f"{one}%", is_base=one == 0) for one in SHARE_TICKS)

    def shown(self, value: float) -> str:
        return f"{100 * value:.1f}%"

    def shown_mean(self, mean: Estimate) -> str:
        return self.shown(mean.value)


def _at(share: float) -> float:
    return round(PLOT_LEFT + share * (PLOT_RIGHT - PLOT_LEFT), 1)


def ratios_around(values: Sequence[float]) -> RatioScale:
    """Powers of two around all of them and around 1, within what can be seen."""
    low, high = (min(max(one, 2.0**-MOST_DOUBLINGS), 2.0**MOST_DOUBLINGS) for one in (min(values), max(values)))
    return RatioScale(low=min(-1, math.floor(math.log2(low))), high=max(1, math.ceil(math.log2(high))))


# --- the picture ---


def picture(panels: Sequence[Panel], about: str) -> str:
    """Return the whole file. `about` is a line on the machine and the software. Each panel has at least one group."""
    charts: list[_Chart] = []
    y = 0.0
    for panel in panels:
        charts.append(_chart(panel, y))
        y = charts[-1].axis_y + AXIS
    modes = {group.mode for panel in panels for group in panel.groups}
    return template("dots.svg.j2").render(
        charts=charts,
        width=WIDTH,
        height=y + 22,
        left=PLOT_LEFT,
        right=PLOT_RIGHT,
        about=about,
        first_mode=next(mode for mode in Mode if mode in modes),
    )


def _chart(panel: Panel, top: float) -> _Chart:
    values = [one.value for group in panel.groups for one in group.values]
    scale: _Scale = ShareScale() if panel.is_share else ratios_around(values)
    y = top + HEADER
    lines: list[_Line] = []
    for number, group in enumerate(panel.groups):
        is_new = number == 0 or panel.groups[number - 1].name != group.name
        y += GAP if is_new and number else 0
        lines.append(_line(group, scale, y, name=group.name if is_new else ""))
        y += ROW
    beyond = sum(not scale.has(value) for value in values)
    return _Chart(
        title=panel.title,
        axis=panel.axis,
        y=top,
        axis_y=y + GAP,
        dot=panel.dot,
        mean="mean" if panel.is_share else "geometric mean",
        lines=tuple(lines),
        ticks=scale.ticks(),
        fewest=None if all(group.mean.has_interval for group in panel.groups) else LEAST_OF_A_MEAN,
        note=f"{beyond} of the dots are beyond the scale, and stand at its edge" if beyond else "",
    )


def _line(group: DotRow, scale: _Scale, y: float, *, name: str) -> _Line:
    ordered = sorted(group.values, key=lambda one: one.value)
    return _Line(
        name=name,
        mode=group.mode,
        y=y,
        dots=tuple(
            _Dot(x=scale.x(one.value), y=y + offset, text=f"{one.name}: {scale.shown(one.value)}")
            for one, offset in zip(ordered, cycle(DOT_OFFSETS), strict=False)
        ),
        mean=scale.x(group.mean.value),
        interval=(scale.x(group.mean.low), scale.x(group.mean.high)) if group.mean.has_interval else None,
        text=f"{scale.shown_mean(group.mean)} ({group.count})",
    )


# --- the speedups of a run ---

SPEEDUP_AXIS = "eager time / candidate time: right of 1x the candidate is faster"


def speedup_picture(data: ReportData) -> str:
    """Return the picture of a run's speedups: a row for each domain and mode, a dot for each case, and the mean.

    Raises:
        UsageError: no case with a backend beside eager passed, so there is no speedup.
    """
    panels = []
    for group, by_domain in speedups_by_group(data.cases).items():
        results = [
            one for one in data.cases if one.has_candidate and one.passed and one.case.comparison_group() == group
        ]
        panels.append(_speedup_panel(group, by_domain, results))
    if not panels:
        raise UsageError("no speedups to draw: no case with a backend beside eager passed (--backend adds one)")
    return picture(panels, provenance_line([run.manifest for run in data.runs], data.device_names))


def _speedup_panel(group: str, by_domain: dict[str, dict[Mode, Total]], results: Sequence[CaseResult]) -> Panel:
    groups: list[DotRow] = []
    for domain, by_mode in by_domain.items():
        for mode in (mode for mode in Mode if mode in by_mode):
            mean = by_mode[mode].passing
            assert mean is not None
            groups.append(
                DotRow(
                    name=domain.replace("_", " "),
                    mode=mode,
                    values=tuple(map(speedup_of, (one for one in results if _row_of(one) == (domain, mode)))),
                    mean=mean,
                    count=by_mode[mode].compared,
                )
            )
    return Panel(
        title=f"Speedup of {group} over eager",
        axis=SPEEDUP_AXIS,
        groups=tuple(groups),
        dot="model" if len({(one.case.model, one.case.mode) for one in results}) == len(results) else "case",
    )


def _row_of(result: CaseResult) -> tuple[str, Mode]:
    """The row that has the case's dot: of its domain, or of all cases if its domain is not known."""
    return (ALL if result.domain is None else result.domain), result.case.mode


def speedup_of(result: CaseResult) -> Value:
    """Return the speedup of a case that passed with a backend beside eager."""
    assert result.figures is not None
    assert result.figures.speedup is not None
    return Value(name=result.case.label(), value=result.figures.speedup.value)
