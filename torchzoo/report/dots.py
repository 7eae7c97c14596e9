"""Values as SVG: a row for each group, a dot for each value, and the mean with its interval.

`assets/dots.svg.j2` has the shapes and the colours, for light and dark pages. Here is what they show and where.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from typing import Any, NamedTuple

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


# --- the picture ---


class _Scale(NamedTuple):
    """An axis: shares from 0 to 1, or ratios on a logarithmic scale from one power of two to another."""

    low: int
    high: int
    is_share: bool

    def x(self, value: float) -> float:
        """The place of a value; the edge of the scale for a value beyond it."""
        place = value if self.is_share else math.log2(value) if value > 0 else -math.inf
        share = (min(max(place, self.low), self.high) - self.low) / (self.high - self.low)
        return round(PLOT_LEFT + share * (PLOT_RIGHT - PLOT_LEFT), 1)

    def has(self, value: float) -> bool:
        return self.low <= value <= self.high if self.is_share else 2.0**self.low <= value <= 2.0**self.high

    def ticks(self) -> list[dict[str, Any]]:
        if self.is_share:
            return [{"x": self.x(one / 100), "text": f"{one}%", "is_base": one == 0} for one in SHARE_TICKS]
        powers = range(self.low, self.high + 1)
        return [{"x": self.x(2.0**one), "text": f"{2.0**one:g}x", "is_base": one == 0} for one in powers]

    def shown(self, value: float) -> str:
        return f"{100 * value:.1f}%" if self.is_share else f"{value:.3g}x"

    def shown_mean(self, mean: Estimate) -> str:
        if self.is_share:
            return self.shown(mean.value)
        return units.factor(mean) if mean.has_interval else f"{mean.value:.2f}x, no interval"


def _scale_of(panel: Panel) -> _Scale:
    """The scale of shares, or powers of two around all values and around 1, within what can be seen."""
    if panel.is_share:
        return _Scale(0, 1, is_share=True)
    values = [one.value for group in panel.groups for one in group.values]
    low, high = (min(max(one, 2.0**-MOST_DOUBLINGS), 2.0**MOST_DOUBLINGS) for one in (min(values), max(values)))
    return _Scale(min(-1, math.floor(math.log2(low))), max(1, math.ceil(math.log2(high))), is_share=False)


def picture(panels: Sequence[Panel], about: str) -> str:
    """Return the whole file. `about` is a line on the machine and the software. Each panel has at least one group."""
    charts: list[dict[str, Any]] = []
    y = 0.0
    for panel in panels:
        charts.append(_chart(panel, y))
        y = charts[-1]["axis_y"] + AXIS
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


def _chart(panel: Panel, top: float) -> dict[str, Any]:
    scale, y = _scale_of(panel), top + HEADER
    lines = []
    for number, group in enumerate(panel.groups):
        is_new = number == 0 or panel.groups[number - 1].name != group.name
        y += GAP if is_new and number else 0
        lines.append(_line(group, scale, y) | {"name": group.name if is_new else ""})
        y += ROW
    beyond = sum(not scale.has(one.value) for group in panel.groups for one in group.values)
    return {
        "title": panel.title,
        "axis": panel.axis,
        "y": top,
        "axis_y": y + GAP,
        "dot": panel.dot,
        "mean": "mean" if panel.is_share else "geometric mean",
        "lines": lines,
        "ticks": scale.ticks(),
        "fewest": None if all(group.mean.has_interval for group in panel.groups) else LEAST_OF_A_MEAN,
        "note": f"{beyond} of the dots are beyond the scale, and stand at its edge" if beyond else "",
    }


def _line(group: DotRow, scale: _Scale, y: float) -> dict[str, Any]:
    ordered = zip(sorted(group.values, key=lambda one: one.value), cycle(DOT_OFFSETS), strict=False)
    return {
        "mode": group.mode,
        "y": y,
        "dots": [
            {"x": scale.x(one.value), "y": y + offset, "text": f"{one.name}: {scale.shown(one.value)}"}
            for one, offset in ordered
        ],
        "mean": scale.x(group.mean.value),
        "interval": (scale.x(group.mean.low), scale.x(group.mean.high)) if group.mean.has_interval else None,
        "text": f"{scale.shown_mean(group.mean)} ({group.count})",
    }


# --- the speedups of a run ---

SPEEDUP_AXIS = "eager time / candidate time: right of 1x the candidate is faster"


def speedup_picture(data: ReportData) -> str:
    """Return the picture of a run's speedups: a row for each domain and mode, a dot for each case, and the mean."""
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
