"""Find what a night's run may have made worse, from the nights before, by pure functions.

A proposal may be wrong: an A/B decides, and a wrong proposal costs only time. So the rules are wide, and without a
correction for the number of tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from torchzoo.analysis.cases import Status
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
from torchzoo.analysis.series import Series, SeriesPoint
from torchzoo.case import Case
from torchzoo.history.changes import KIND_OF_STATUS, CaseKind, Kind, Proposal, Worse, count_text

MAD_TO_SIGMA = 1.4826  # for values with a normal distribution

#: The counts of the cases of a run (`changes.counts_of`).
Counts = Mapping[CaseKind, int]


def propose(
    series: Iterable[Series], tonight: str, known: Iterable[Worse] = (), counts: Mapping[str, Counts] | None = None
) -> tuple[Proposal, ...]:
    """Return the changes for the worse that tonight's run hints at, at most one for each case and kind.

    Only series with a point of tonight count: they are of tonight's machine. Of the nights before, only those after a
    change that is `known` are compared. `counts` are those of each of the last nights and tonight.
    """
    known_since: dict[CaseKind, str] = {}
    for change in known:
        known_since[change.key] = max(change.base, known_since.get(change.key, ""))
    found: dict[CaseKind, Proposal] = {}
    for one in series:
        points = {point.run.name: point for point in one.points if point.run.name <= tonight}
        if tonight in points:
            nights = {night: points[night] for night in sorted(points)}
            for proposal in (_of_values(one, nights, known_since), _of_statuses(one.case, nights, known_since)):
                if proposal is not None:
                    found.setdefault(proposal.key, proposal)
    found |= {proposal.key: proposal for proposal in _of_counts(tonight, counts or {}, known_since)}
    return tuple(found.values())


# --- values ---


def _of_values(one: Series, nights: Mapping[str, SeriesPoint], known_since: Mapping[CaseKind, str]) -> Proposal | None:
    kind = Kind(one.metric.value)
    first = known_since.get((one.case, kind), "")
    values = {night: point.figure.value for night, point in nights.items() if night > first and point.figure}
    if not values or list(values)[-1] != list(nights)[-1]:  # no value of tonight
        return None
    *earlier, tonight = values
    if not earlier:
        return None
    now = values[tonight]
    if step := _step(values):
        since, ratio = step
        base = max(night for night in earlier if night < since)
        why = f"{ratio:.3f}x since the night {since} (a change point)"
        return Proposal(case=one.case, kind=kind, base=base, value=now, usual=now / ratio, why=why)
    last = {night: values[night] for night in earlier[-USUAL_NIGHTS:]}
    usual, limit = median(last.values()), level_limit(list(last.values()))
    if now <= limit:
        return None
    half_way = math.sqrt(usual * now)  # a night above it is nearer to tonight, and may have the change
    base = max(night for night, value in last.items() if value <= half_way)
    why = f"{now / usual:.3f}x of the usual value ({len(last)} nights, up to {limit / usual:.3f}x is noise)"
    return Proposal(case=one.case, kind=kind, base=base, value=now, usual=usual, why=why)


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


# --- outcomes of the case ---


def _of_statuses(case: Case, nights: Mapping[str, SeriesPoint], known_since: Mapping[CaseKind, str]) -> Proposal | None:
    *earlier, tonight = nights
    kind = KIND_OF_STATUS.get(nights[tonight].status)
    if kind is None:
        return None
    fine = {Status.PASSED} if kind is Kind.UNSTEADY else set(Status) - {*BAD, Status.SKIPPED}
    recent = [night for night in earlier if nights[night].status is not Status.SKIPPED][-RECENT_NIGHTS:]
    bases = [n for n in recent if nights[n].status in fine and n > known_since.get((case, kind), "")]
    if not bases:
        return None
    why = f"{kind.words} since the night {bases[-1]}: {nights[tonight].reason}"
    return Proposal(case=case, kind=kind, base=bases[-1], why=why)


def _of_counts(tonight: str, counts: Mapping[str, Counts], known_since: Mapping[CaseKind, str]) -> Iterator[Proposal]:
    for key, now in counts.get(tonight, {}).items():
        case, kind = key
        earlier = [night for night in sorted(counts) if known_since.get(key, "") < night < tonight]
        recent = [night for night in earlier if key in counts[night]][-RECENT_NIGHTS:]
        fewer = [night for night in recent if counts[night][key] < now]
        if fewer:
            was = count_text(kind, counts[fewer[-1]][key])
            why = f"{was} in the night {fewer[-1]}, {count_text(kind, now)} now"
            yield Proposal(case=case, kind=kind, base=fewer[-1], why=why)
