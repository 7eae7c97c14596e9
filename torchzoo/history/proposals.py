"""Find what a night's run may have made worse, from the nights before, by pure functions.

A proposal may be wrong: an A/B decides, and a wrong proposal costs only time. So the rules are wide, and without a
correction for the number of tests.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

import msgspec

from torchzoo.analysis.cases import CaseResult, Status
from torchzoo.analysis.change_points import change_points
from torchzoo.analysis.compare import BAD
from torchzoo.analysis.judge import (
    CHANGE_POINT_WINDOW,
    FEW_NIGHTS_THRESHOLD,
    LEAST_NIGHTS,
    LEAST_THRESHOLD,
    LEVEL_SIGMAS,
    LEVEL_THRESHOLD,
    RECENT_NIGHTS,
    USUAL_NIGHTS,
)
from torchzoo.analysis.leaks import LeakVerdict, check
from torchzoo.analysis.run_figures import Metric, shown_variant
from torchzoo.analysis.series import Series
from torchzoo.case import Case

MAD_TO_SIGMA = 1.4826  # for values with a normal distribution
LEAST_STEPS = 8  # of a leak check: with fewer, it has no verdict


class Kind(enum.StrEnum):
    """The kind of a change for the worse: a metric, or the outcome of the case."""

    LATENCY = Metric.LATENCY.value
    OVER_EAGER = Metric.OVER_EAGER.value
    DEVICE_MEMORY = Metric.DEVICE_MEMORY.value
    HOST_MEMORY = Metric.HOST_MEMORY.value
    COMPILE_TIME = Metric.COMPILE_TIME.value
    FAILING = "failing"
    INCORRECT = "incorrect"
    UNSTEADY = "unsteady"
    LEAKING = "leaking"
    GRAPH_BREAKS = "graph_breaks"

    @property
    def words(self) -> str:
        """The kind in words: `device memory`."""
        return self.value.replace("_", " ")

    @property
    def metric(self) -> Metric | None:
        """The metric; None for outcomes of the case."""
        return next((metric for metric in Metric if metric.value == self.value), None)


_OF_STATUS = {
    Status.FAILED: Kind.FAILING,
    Status.INCORRECT: Kind.INCORRECT,
    Status.REFUSED: Kind.FAILING,
    Status.UNSTEADY: Kind.UNSTEADY,
}


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A case that may have become worse."""

    case: Case
    kind: Kind
    base: str  # the last night before the change
    value: float | None = None  # of tonight, in seconds or bytes; None if the status changed
    usual: float | None = None  # of the nights before
    why: str  # for people


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A change that an earlier night confirmed. Values after the night `base` are compared with each other."""

    case: Case
    kind: Kind
    base: str


#: The counts of the cases of a run (`counts_of`), by case and kind.
Counts = Mapping[tuple[Case, Kind], int]


def propose(
    series: Iterable[Series], tonight: str, known: Iterable[Known] = (), counts: Mapping[str, Counts] | None = None
) -> tuple[Proposal, ...]:
    """Return the changes for the worse that tonight's run hints at, at most one for each case and kind.

    Args:
        series: of all cases and metrics. Only series with a point of tonight count: they are of tonight's machine.
        tonight: the name of the night.
        known: the changes that earlier nights confirmed.
        counts: the counts of each of the last nights and tonight.
    """
    after: dict[tuple[Case, Kind], str] = {}
    for change in known:
        after[change.case, change.kind] = max(change.base, after.get((change.case, change.kind), ""))
    found: dict[tuple[Case, Kind], Proposal] = {}
    for one in series:
        nights = {point.run.name: point for point in one.points}
        if tonight not in nights:
            continue
        kind = Kind(one.metric.value)
        first = after.get((one.case, kind), "")
        values = dict(zip((point.run.name for point in one.points), one.values, strict=True))
        proposal = _of_values(
            one.case, kind, {night: values[night] for night in sorted(values) if first < night <= tonight}
        )
        if proposal is not None:
            found.setdefault((one.case, kind), proposal)
        statuses = {night: nights[night].status for night in sorted(nights) if night <= tonight}
        proposal = _of_statuses(one.case, statuses, nights[tonight].reason, after)
        if proposal is not None:
            found.setdefault((one.case, proposal.kind), proposal)
    for proposal in _of_counts(tonight, counts or {}, after):
        found[proposal.case, proposal.kind] = proposal
    return tuple(found.values())


# --- values ---


def _of_values(case: Case, kind: Kind, values: Mapping[str, float]) -> Proposal | None:
    """Judge values by night, in the order of time, tonight's last. NaN stands for no value."""
    *earlier, tonight = values
    now = values[tonight]
    before = {night: values[night] for night in earlier if not math.isnan(values[night])}
    if math.isnan(now) or not before:
        return None
    step = _step(values)
    if step is not None:
        night, ratio = step
        base = max(one for one in before if one < night)
        why = f"{ratio:.3f}x since the night {night} (a change point)"
        return Proposal(case=case, kind=kind, base=base, value=now, usual=now / ratio, why=why)
    last = dict(list(before.items())[-USUAL_NIGHTS:])
    usual, limit = median(last.values()), level_limit(list(last.values()))
    if now <= limit:
        return None
    half_way = math.sqrt(usual * now)  # a night above it is nearer to tonight, and may have the change
    base = max(night for night, value in last.items() if value <= half_way)
    why = f"{now / usual:.3f}x of the usual value ({len(last)} nights, up to {limit / usual:.3f}x is noise)"
    return Proposal(case=case, kind=kind, base=base, value=now, usual=usual, why=why)


def level_limit(earlier: Sequence[float]) -> float:
    """Return the greatest value that is not proposed after these values, in their unit."""
    usual = median(earlier)
    if len(earlier) < LEAST_NIGHTS:
        return usual * (1 + FEW_NIGHTS_THRESHOLD)
    sigma = MAD_TO_SIGMA * median(abs(math.log(value / usual)) for value in earlier)
    return usual * math.exp(max(math.log1p(LEVEL_THRESHOLD), LEVEL_SIGMAS * sigma))


def _step(values: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the first night after a recent change point for the worse, and the ratio of the levels after and before.

    The least change is what `compare` may call a change.
    """
    nights = list(values)[-CHANGE_POINT_WINDOW:]
    points = change_points([values[night] for night in nights], least_magnitude=LEAST_THRESHOLD)
    recent = [point for point in points if point.index >= len(nights) - RECENT_NIGHTS and point.ratio.value > 1]
    return (nights[recent[-1].index], recent[-1].ratio.value) if recent else None


# --- the outcome of the case ---


def _of_statuses(
    case: Case, statuses: Mapping[str, Status], reason: str, after: Mapping[tuple[Case, Kind], str]
) -> Proposal | None:
    """Judge statuses by night, in the order of time, tonight's last."""
    *earlier, tonight = statuses
    kind = _OF_STATUS.get(statuses[tonight])
    if kind is None:
        return None
    fine = {Status.PASSED} if kind is Kind.UNSTEADY else set(Status) - {*BAD, Status.SKIPPED}
    first = after.get((case, kind), "")
    recent = [night for night in earlier if statuses[night] is not Status.SKIPPED][-RECENT_NIGHTS:]
    base = max((night for night in recent if statuses[night] in fine and night > first), default=None)
    if base is None:
        return None
    return Proposal(case=case, kind=kind, base=base, why=f"{kind.words} since the night {base}: {reason}")


# --- counts ---


def _of_counts(
    tonight: str, counts: Mapping[str, Counts], after: Mapping[tuple[Case, Kind], str]
) -> Iterable[Proposal]:
    for (case, kind), now in counts.get(tonight, {}).items():
        first = after.get((case, kind), "")
        before = {night: counts[night].get((case, kind)) for night in sorted(counts) if first < night < tonight}
        recent = [(night, count) for night, count in before.items() if count is not None][-RECENT_NIGHTS:]
        fewer = [(night, count) for night, count in recent if count < now]
        if fewer:
            base, count = fewer[-1]
            why = f"{count_text(kind, count)} in the night {base}, {count_text(kind, now)} now"
            yield Proposal(case=case, kind=kind, base=base, why=why)


def count_text(kind: Kind, count: int) -> str:
    """Return `2 graph breaks`; for leaks, `leaks memory` or `level`."""
    if kind is Kind.LEAKING:
        return "leaks memory" if count else "level"
    return f"{count} graph break{'' if count == 1 else 's'}"


def counts_of(
    results: Iterable[CaseResult], *, of_processes: Callable[[list[int]], int] = max
) -> dict[tuple[Case, Kind], int]:
    """Return the counts of each case: its graph breaks, and after a leak check 1 if most processes leaked, else 0.

    Args:
        results: of a run.
        of_processes: chooses the number of graph breaks, if the processes of a case differ.
    """
    found: dict[tuple[Case, Kind], int] = {}
    for result in results:
        variants = [measured.variants[shown_variant(measured)] for measured in result.measured]
        breaks = [one.compilation.break_count for one in variants if one.compilation is not None]
        if breaks:
            found[result.case, Kind.GRAPH_BREAKS] = of_processes(breaks)
        growths = [one.growth for one in variants if one.growth is not None]
        verdicts = [check(growth).verdict for growth in growths if len(growth.host_bytes) >= LEAST_STEPS]
        if verdicts:
            found[result.case, Kind.LEAKING] = int(2 * verdicts.count(LeakVerdict.LEAK) > len(verdicts))
    return found
