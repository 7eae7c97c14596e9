"""Totals over the cases of a report: pass rates, geometric means, ratios, outliers, one device against another."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import msgspec

from torchzoo import stats
from torchzoo.analysis.bound import Bound
from torchzoo.analysis.cases import NO_SPEEDUP, CaseResult, Status
from torchzoo.analysis.frame import figure
from torchzoo.analysis.means import CaseRatio, at_least_1, case_ratio, geomean_of, inverse
from torchzoo.case import Case, Domain, Mode
from torchzoo.stats import Estimate

ALL = "all"
DEVICE_BOUND = "device-bound"
OUTLIER_SCORE = 3.5
OUTLIER_CASES = 8  # the fewest cases that have outliers
OUTLIER_RULE = (
    f"modified z-score of the logarithm of the speedup above {OUTLIER_SCORE} (0.6745 |x - median| / MAD; Iglewicz & "
    f"Hoaglin, 1993), among the passing cases of the same backend, device, precision and mode where these are "
    f"{OUTLIER_CASES} or more"
)

GROUPINGS: dict[str, Callable[[CaseResult], str]] = {
    "mode": lambda result: str(result.case.mode),
    "domain": lambda result: str(result.domain) if result.domain is not None else "unknown",
    "backend": lambda result: str(result.case.backend),
    "precision": lambda result: str(result.case.precision),
    "device": lambda result: result.case.device,
    "bound": lambda result: f"bound by {result.bound}" if result.bound is not None else UNKNOWN_BOUND,
}
#: Ratios of a case beside its speedup, by the names of their figures.
OWN_RATIOS = ("host_memory_ratio", "device_memory_ratio", "device_time_ratio", "host_time_ratio", "reference_speedup")
UNKNOWN_BOUND = "bound not known"


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a group of cases. Geometric means are over its cases with a candidate, if of one backend.

    A group of several backends has no means: each backend has a section of its own.
    """

    axis: str  # what the group has in common: all, mode, domain, backend, precision, device, bound
    name: str
    measured: int
    checked: int  # checked and not timed
    incorrect: int  # among the measured and the checked: results differ from eager's
    refused: int  # among the measured: their figures are not of their label
    failed: int
    skipped: int
    compared: int  # cases with a candidate that passed
    comparable: int  # cases with a candidate that could run
    passing: Estimate | None  # speedup over the compared cases
    over_all: Estimate | None  # over all comparable, steady cases; a failed or incorrect case counts as 1
    time_ratio: Estimate | None  # T, candidate over eager, over the compared cases
    host_memory_ratio: Estimate | None  # CM
    device_memory_ratio: Estimate | None  # GM
    device_time_ratio: Estimate | None  # D, time in which the device works in one step
    host_time_ratio: Estimate | None  # H, the host's work for one step
    reference_speedup: Estimate | None  # speedup on the reference host

    @property
    def passed(self) -> int:
        return self.measured + self.checked - self.incorrect - self.refused

    @property
    def could_run(self) -> int:
        return self.measured + self.checked + self.failed

    @property
    def pass_rate(self) -> float | None:
        """The share of passed cases among those that could run (were not skipped)."""
        return self.passed / self.could_run if self.could_run else None


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of cases whose speedups are of one kind, `inductor on cuda`, or of all cases."""

    title: str
    totals: tuple[Total, ...]


class Outlier(msgspec.Struct, frozen=True, kw_only=True):
    result: CaseResult
    speedup: float
    usual: float  # the median of the others
    score: float  # modified z-score; positive: faster than usual


class DeviceRatio(msgspec.Struct, frozen=True, kw_only=True):
    """The speedup of a case on `device` over `base`, from latencies of separate processes, not paired."""

    result: CaseResult  # on `device`
    base: str
    device: str
    ratio: Estimate  # the interval combines opposite ends of the latencies' intervals: wider than 95%


def sections(results: Sequence[CaseResult]) -> tuple[Section, ...]:
    """A section of all cases, grouped by each axis in which they differ, then one for each of several backends."""
    ratios = CaseRatios(results)
    found = [Section(title="all cases", totals=_by_axes(results, ratios))]
    groups: dict[str, list[CaseResult]] = {}
    for result in results:
        if result.has_candidate:
            groups.setdefault(result.case.comparison_group(), []).append(result)
    if len(groups) > 1:
        found += [
            Section(title=f"{group} over eager", totals=_by_axes(some, ratios, axes=("mode", "domain")))
            for group, some in groups.items()
        ]
    return tuple(found)


def speedups_by_group(results: Sequence[CaseResult]) -> dict[str, dict[str, dict[Mode, Total]]]:
    """Totals of the cases with a candidate that passed: by comparison group, then domain, then mode.

    The domains are followed by `all`, and by `device-bound`: the cases that the device bounds.
    """
    ratios = CaseRatios(results)
    groups: dict[str, dict[str, dict[Mode, list[CaseResult]]]] = {}
    for result in results:
        if result.has_candidate and result.passed:
            by_domain = groups.setdefault(result.case.comparison_group(), {})
            of_device = DEVICE_BOUND if result.bound is Bound.DEVICE else None
            for domain in filter(None, (result.domain, ALL, of_device)):
                by_domain.setdefault(domain, {}).setdefault(result.case.mode, []).append(result)
    return {
        group: {
            domain: {mode: total("domain", domain, some, ratios) for mode, some in by_domain[domain].items()}
            for domain in [*Domain, ALL, DEVICE_BOUND]
            if domain in by_domain
        }
        for group, by_domain in groups.items()
    }


def _by_axes(
    results: Sequence[CaseResult], ratios: CaseRatios, axes: Iterable[str] = tuple(GROUPINGS)
) -> tuple[Total, ...]:
    totals = [total(ALL, ALL, results, ratios)]
    for axis in axes:
        groups: dict[str, list[CaseResult]] = {}
        for result in results:
            groups.setdefault(GROUPINGS[axis](result), []).append(result)
        order = {name: place for place, name in enumerate(Domain)} if axis == "domain" else {}
        names = sorted(groups, key=lambda name: order.get(name, len(order)))  # type: ignore[call-overload]
        if len(names) > 1:
            totals += [total(axis, name, groups[name], ratios) for name in names]
    return tuple(totals)


def total(axis: str, name: str, results: Sequence[CaseResult], ratios: CaseRatios) -> Total:
    """The totals of a group of cases; `ratios` must hold all of them."""
    candidates = [result for result in results if result.has_candidate and result.is_timed and result.could_run]
    compared = [result for result in candidates if result.passed]
    one_kind = candidates if len({result.case.compiled_by() for result in candidates}) == 1 else []
    passing = [result for result in one_kind if result.passed]
    steady = [result for result in one_kind if result.status not in NO_SPEEDUP]
    statuses = [result.status for result in results]
    return Total(
        axis=axis,
        name=name,
        measured=sum(bool(result.measured) and not result.failures for result in results),
        checked=sum(bool(result.checked) and not result.failures for result in results),
        incorrect=statuses.count(Status.INCORRECT),
        refused=statuses.count(Status.REFUSED),
        failed=statuses.count(Status.FAILED),
        skipped=statuses.count(Status.SKIPPED),
        compared=len(compared),
        comparable=len(candidates),
        passing=ratios.geomean("speedup", passing),
        over_all=ratios.geomean("speedup_or_1", steady),
        time_ratio=ratios.geomean("time_ratio", passing),
        host_memory_ratio=ratios.geomean("host_memory_ratio", passing),
        device_memory_ratio=ratios.geomean("device_memory_ratio", passing),
        device_time_ratio=ratios.geomean("device_time_ratio", passing),
        host_time_ratio=ratios.geomean("host_time_ratio", passing),
        reference_speedup=ratios.geomean("reference_speedup", passing),
    )


class CaseRatios:
    """The ratios of all cases, by their names."""

    def __init__(self, results: Sequence[CaseResult]) -> None:
        self._of: defaultdict[str, dict[int, CaseRatio]] = defaultdict(dict)
        for result in results:
            if result.has_candidate and result.is_timed and result.status not in NO_SPEEDUP:
                for name, ratio in _ratios(result).items():
                    self._of[name][id(result)] = ratio

    def geomean(self, name: str, results: Iterable[CaseResult]) -> Estimate | None:
        """The geometric mean of a ratio over the cases that have it; None if no case has.

        `speedup_or_1` counts a failed or incorrect case as 1, `speedup_at_least_1` a case that became slower.
        """
        cases = [self._of[name][id(result)] for result in results if id(result) in self._of[name]]
        return geomean_of(cases) if cases else None


def _ratios(result: CaseResult) -> dict[str, CaseRatio]:
    if not result.passed:
        return {"speedup_or_1": ratio_of(result.case, [[1.0]])}
    speedup, figures = ratio_of(result.case, paired_ratios(result)), result.figures
    own = {name: figure(name).number(figures) for name in OWN_RATIOS}
    return {
        "speedup": speedup,
        "speedup_or_1": speedup,
        "speedup_at_least_1": at_least_1(speedup),
        "time_ratio": inverse(speedup),
        **{name: ratio_of(result.case, [[value]]) for name, value in own.items() if value is not None},
    }


def ratio_of(case: Case, processes: Sequence[Sequence[float]]) -> CaseRatio:
    """A case's ratio that counts in means, from its values by process. Cases of one model are not independent."""
    return case_ratio(processes, cluster=case.model)


def paired_ratios(result: CaseResult) -> list[list[float]]:
    """The paired ratios, eager over candidate, of each process that measured the case."""
    return [stats.quad_ratios(measured.blocks) for measured in result.measured]


def outliers(results: Sequence[CaseResult]) -> tuple[Outlier, ...]:
    """The cases whose speedup is far from that of their group, by `OUTLIER_RULE`, slowest first."""
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for result in results:
        if result.has_candidate and result.passed:
            groups.setdefault((result.case.comparison_group(), result.case.mode), []).append(result)
    found = []
    for group in groups.values():
        logs = [math.log(_speedup(result)) for result in group]
        center = median(logs)
        mad = median(abs(value - center) for value in logs)
        if len(group) < OUTLIER_CASES or mad == 0:
            continue
        for result, value in zip(group, logs, strict=True):
            score = 0.6745 * (value - center) / mad
            if abs(score) > OUTLIER_SCORE:
                found.append(Outlier(result=result, speedup=_speedup(result), usual=math.exp(center), score=score))
    return tuple(sorted(found, key=lambda one: one.speedup))


def _speedup(result: CaseResult) -> float:
    assert result.figures is not None
    assert result.figures.speedup is not None
    return result.figures.speedup.value


def device_ratios(results: Sequence[CaseResult]) -> tuple[DeviceRatio, ...]:
    """The ratios of cases that passed on several devices, each to the run's first device at the same batch size."""
    devices = list(dict.fromkeys(result.case.device for result in results))
    found: dict[Any, dict[str, CaseResult]] = {}
    for result in results:
        if result.passed:
            found.setdefault(msgspec.structs.replace(result.case, device=""), {})[result.case.device] = result
    ratios = []
    for by_device in found.values():
        present = [device for device in devices if device in by_device]
        for device in present[1:]:
            ratio = stats.quotient(_latency(by_device[present[0]]), _latency(by_device[device]))
            ratios.append(DeviceRatio(result=by_device[device], base=present[0], device=device, ratio=ratio))
    return tuple(ratios)


def _latency(result: CaseResult) -> Estimate:
    assert result.figures is not None
    return result.figures.shown.latency_s


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Totals, outliers, one device against another, and the cases by their status."""

    sections: tuple[Section, ...]
    outliers: tuple[Outlier, ...]
    device_ratios: tuple[DeviceRatio, ...]
    by_status: dict[Status, list[CaseResult]]


def overview(results: Sequence[CaseResult]) -> Overview:
    """Group the results of all cases of a report."""
    return Overview(
        sections=sections(results),
        outliers=outliers(results),
        device_ratios=device_ratios(results),
        by_status={status: [result for result in results if result.status is status] for status in Status},
    )
