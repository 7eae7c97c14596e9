"""What a report's cases come to: pass rates, geometric means, ratios, outliers, one device against another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import msgspec

from torchzoo import stats
from torchzoo.record import Failed, Measured, Skipped
from torchzoo.report.entries import Entry, is_candidate
from torchzoo.report.frame import values
from torchzoo.report.rows import measured_of
from torchzoo.report.summary import alike, resampled_speedup
from torchzoo.spec import Domain
from torchzoo.stats import Estimate, Resampled

ALL = "all"
OUTLIER_SCORE = 3.5
OUTLIER_CASES = 8  # below, "the others" are too few to be far from
OUTLIER_RULE = (
    f"modified z-score of the logarithm of the speedup above {OUTLIER_SCORE} (0.6745 |x - median| / MAD; Iglewicz & "
    f"Hoaglin, 1993), among the passing cases of the same backend, device, precision and mode where these are "
    f"{OUTLIER_CASES} or more"
)

AXES: dict[str, Callable[[Entry], str]] = {
    "mode": lambda entry: str(entry.case.mode),
    "domain": lambda entry: str(entry.domain) if entry.domain is not None else "unknown",
    "backend": lambda entry: str(entry.case.backend),
    "precision": lambda entry: str(entry.case.precision),
    "device": lambda entry: entry.case.device,
}


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """A group of cases. The geometric means are over its cases with a candidate beside eager."""

    axis: str  # what the group has in common: all, mode, domain, backend, precision, device
    name: str
    measured: int
    incorrect: int  # among the measured: their results are not eager's
    failed: int
    skipped: int
    compared: int  # cases with a candidate that passed
    comparable: int  # cases with a candidate that could run
    passing: Estimate | None  # speedup over those compared
    over_all: Estimate | None  # over all comparable ones: one that failed or is incorrect counts as 1
    time_ratio: Estimate | None  # T, candidate over eager, over those compared
    host_memory_ratio: Estimate | None  # CM
    device_memory_ratio: Estimate | None  # GM

    @property
    def passed(self) -> int:
        return self.measured - self.incorrect

    @property
    def could_run(self) -> int:
        return self.measured + self.failed

    @property
    def pass_rate(self) -> float | None:
        """Of the cases that could run (not skipped), the share that was measured and not found incorrect."""
        return self.passed / self.could_run if self.could_run else None


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Cases whose speedups are of one kind, `inductor on cuda`; or all cases, whatever their kind."""

    title: str
    totals: tuple[Total, ...]


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    entry: Entry
    speedup: float
    usual: float  # the median of the others
    score: float  # modified z-score; positive: faster than usual


class DeviceRatio(msgspec.Struct, frozen=True, kw_only=True):
    """How many times faster a case ran on `device` than on `base`; latencies of separate processes, not paired."""

    entry: Entry  # on `device`
    base: str
    device: str
    ratio: float
    low: float  # the ends of both latencies' intervals put against each other: wider than 95%
    high: float


def sections(entries: Sequence[Entry]) -> tuple[Section, ...]:
    """All cases by each axis that they differ in; then, where there are several kinds of speedups, each kind alone."""
    drawn = _Drawn(entries)
    found = [Section(title="all cases", totals=_by_axes(entries, drawn))]
    kinds: dict[str, list[Entry]] = {}
    for entry in entries:
        if is_candidate(entry):
            kinds.setdefault(alike(entry.case), []).append(entry)
    if len(kinds) > 1:
        found += [
            Section(title=f"{kind} over eager", totals=_by_axes(some, drawn, axes=("mode", "domain")))
            for kind, some in kinds.items()
        ]
    return tuple(found)


def _by_axes(entries: Sequence[Entry], drawn: _Drawn, axes: Iterable[str] = tuple(AXES)) -> tuple[Total, ...]:
    totals = [_total(ALL, ALL, entries, drawn)]
    for axis in axes:
        groups: dict[str, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(AXES[axis](entry), []).append(entry)
        order = {name: place for place, name in enumerate(Domain)} if axis == "domain" else {}
        names = sorted(groups, key=lambda name: order.get(name, len(order)))  # type: ignore[call-overload]
        if len(names) > 1:
            totals += [_total(axis, name, groups[name], drawn) for name in names]
    return tuple(totals)


def _total(axis: str, name: str, entries: Sequence[Entry], drawn: _Drawn) -> Total:
    candidates = [entry for entry in entries if is_candidate(entry) and not isinstance(entry.outcome, Skipped)]
    compared = [entry for entry in candidates if entry.passes]
    return Total(
        axis=axis,
        name=name,
        measured=sum(isinstance(entry.outcome, Measured) for entry in entries),
        incorrect=sum(entry.row is not None and entry.is_incorrect for entry in entries),
        failed=sum(isinstance(entry.outcome, Failed) for entry in entries),
        skipped=sum(isinstance(entry.outcome, Skipped) for entry in entries),
        compared=len(compared),
        comparable=len(candidates),
        passing=drawn.geomean("speedup", compared),
        over_all=drawn.geomean("speedup_or_1", candidates),
        time_ratio=drawn.geomean("time_ratio", compared),
        host_memory_ratio=drawn.geomean("host_memory_ratio", compared),
        device_memory_ratio=drawn.geomean("device_memory_ratio", compared),
    )


class _Drawn:
    """The bootstrap samples of every case's ratios, drawn once and used in every group the case is in."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        def one(value: float, entry: Entry) -> Resampled:
            return resampled_speedup(entry.case, [[value]])

        self._of: dict[str, dict[int, Resampled]] = {
            name: {} for name in ("speedup", "speedup_or_1", "time_ratio", "host_memory_ratio", "device_memory_ratio")
        }
        for entry in entries:
            if not is_candidate(entry):
                continue
            if not entry.passes:
                self._of["speedup_or_1"][id(entry)] = one(1.0, entry)
                continue
            speedup = resampled_speedup(entry.case, ratios_of(entry))
            self._of["speedup"][id(entry)] = self._of["speedup_or_1"][id(entry)] = speedup
            self._of["time_ratio"][id(entry)] = _inverse(speedup)
            row = values(entry)
            for name in ("host_memory_ratio", "device_memory_ratio"):
                if row[name] is not None:
                    self._of[name][id(entry)] = one(row[name], entry)

    def geomean(self, name: str, entries: Iterable[Entry]) -> Estimate | None:
        cases = [self._of[name][id(entry)] for entry in entries if id(entry) in self._of[name]]
        return stats.geomean_of(cases) if cases else None


def _inverse(one: Resampled) -> Resampled:
    own = one.own
    if own is not None:
        own = msgspec.structs.replace(own, value=1 / own.value, low=1 / own.high, high=1 / own.low)
    return msgspec.structs.replace(one, log_value=-one.log_value, log_medians=-one.log_medians, own=own)


def ratios_of(entry: Entry) -> list[list[float]]:
    """The paired ratios of each process that measured the candidate."""
    return [stats.quad_ratios(measured.blocks) for measured in measured_of(entry.records)]


def outliers(entries: Sequence[Entry]) -> tuple[Outlier, ...]:
    """Cases whose speedup is far from that of their like, by `OUTLIER_RULE`; the slow ones first."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if is_candidate(entry) and entry.passes:
            groups.setdefault((alike(entry.case), entry.case.mode), []).append(entry)
    found = []
    for group in groups.values():
        logs = [math.log(_speedup(entry)) for entry in group]
        center = median(logs)
        mad = median(abs(value - center) for value in logs)
        if len(group) < OUTLIER_CASES or mad == 0:
            continue
        for entry, value in zip(group, logs, strict=True):
            score = 0.6745 * (value - center) / mad
            if abs(score) > OUTLIER_SCORE:
                found.append(Outlier(entry=entry, speedup=_speedup(entry), usual=math.exp(center), score=score))
    return tuple(sorted(found, key=lambda one: one.speedup))


def _speedup(entry: Entry) -> float:
    assert entry.row is not None
    assert entry.row.speedup is not None
    return entry.row.speedup.value


def device_ratios(entries: Sequence[Entry]) -> tuple[DeviceRatio, ...]:
    """Cases that passed on several devices, each against the run's first one, at the same batch size."""
    devices = list(dict.fromkeys(entry.case.device for entry in entries))
    found: dict[Any, dict[str, Entry]] = {}
    for entry in entries:
        if entry.passes:
            found.setdefault(msgspec.structs.replace(entry.case, device=""), {})[entry.case.device] = entry
    ratios = []
    for by_device in found.values():
        present = [device for device in devices if device in by_device]
        for device in present[1:]:
            times = stats.quotient(_latency(by_device[present[0]]), _latency(by_device[device]))
            ratios.append(
                DeviceRatio(
                    entry=by_device[device],
                    base=present[0],
                    device=device,
                    ratio=times.value,
                    low=times.low,
                    high=times.high,
                )
            )
    return tuple(ratios)


def _latency(entry: Entry) -> Estimate:
    assert entry.row is not None
    return (entry.row.candidate or entry.row.eager).latency_s
