"""Represent a series: a metric of a case on one kind of machine, with a value for each run, in the order of time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from torchzoo.analysis.cases import Status
from torchzoo.analysis.run_figures import Metric, RunFigure
from torchzoo.analysis.time_use import RunConditions, RunSpeed
from torchzoo.case import Case


class IndexedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a run that a series needs."""

    path: str
    created_at: str  # UTC, ISO 8601
    hardware: str  # the whole machine
    software: Mapping[str, str]  # facts by name (`differences.software_facts`)

    @property
    def name(self) -> str:
        """The name of the run's folder, or NIGHT for NIGHT/run, where `torchzoo watch` keeps the run of a night."""
        path = Path(self.path)
        return path.parent.name if path.name == "run" else path.name

    @property
    def torch(self) -> str:
        """The version of torch; `none` if it is not known."""
        return self.software.get("torch", "none")


class SeriesPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A run's point in a series. Without a figure, the case did not pass: it failed, was skipped or unsteady."""

    run: IndexedRun
    status: Status
    reason: str = ""
    figure: RunFigure | None = None


class SoftwareChange(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that changed since the run before; `none` where a run does not have it."""

    name: str
    before: str
    after: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A series, its points in the order of time."""

    case: Case
    machine: str
    metric: Metric
    basis: str
    points: tuple[SeriesPoint, ...]

    @property
    def last(self) -> RunFigure | None:
        """The latest figure."""
        return next((point.figure for point in reversed(self.points) if point.figure is not None), None)

    @property
    def values(self) -> list[float]:
        """The value of each point, in the metric's unit; NaN without a figure."""
        return [math.nan if point.figure is None else point.figure.value for point in self.points]

    def software_changes(self) -> dict[int, tuple[SoftwareChange, ...]]:
        """The software changes since the run before, by the place of the point in `points`."""
        found = {}
        for place in range(1, len(self.points)):
            changes = software_changes(self.points[place - 1].run.software, self.points[place].run.software)
            if changes:
                found[place] = changes
        return found


class SpeedSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The speeds of runs under the same conditions on one kind of machine, in the order of time."""

    machine: str
    conditions: RunConditions
    points: tuple[tuple[IndexedRun, RunSpeed], ...]

    @property
    def runs(self) -> list[IndexedRun]:
        return [run for run, _ in self.points]

    def values(self, figure: str) -> list[float]:
        """The values of one of `SPEED_FIGURES`; NaN where a run does not have it."""
        found = [getattr(speed, figure) for _, speed in self.points]
        return [math.nan if value is None else value for value in found]


def software_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[SoftwareChange, ...]:
    """The facts that differ, in the order of `after`."""
    if before is after or before == after:
        return ()
    names = dict.fromkeys([*after, *before])
    pairs = ((name, before.get(name, "none"), after.get(name, "none")) for name in names)
    return tuple(SoftwareChange(name=name, before=was, after=now) for name, was, now in pairs if was != now)
