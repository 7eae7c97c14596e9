"""Change points of a series: E-divisive with means, tested by Student's t, in a weak and then a strict pass.

The series is one figure of one case, a value for each run, in the order of time. Only a suggestion comes out: the test
assumes that the values of different nights are independent, and drift breaks that (`benchmarks/change_points.py`
measures how often). An A/B of the two versions must confirm it.

Sources:

- Matteson and James, "A nonparametric approach for multiple change point analysis of multivariate data", Journal of the
  American Statistical Association 109, 2013 (arXiv:1306.4933): the divergence of two pieces of a series, and splitting
  where it is greatest, again and again.
- Fleming, Kolaczkowski, Kumar et al., "Hunter: using change point detection to hunt for performance regressions", 2023
  (arXiv:2301.03034): a t test in place of permutations, so that the result is the same each time; windows, so that old
  values do not change what is found in new ones; and a weak pass whose points a strict pass then tests.

All is done on the logarithms of the values: a step is a ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import msgspec
import numpy as np
import numpy.typing as npt

from torchzoo.analysis.judge import CHANGE_POINT_P_VALUE, CHANGE_POINT_WINDOW, LEAST_LENGTH, WEAKER
from torchzoo.stats import STATED_CONFIDENCE, Estimate, t_coverage, t_quantile

#: Logarithms that differ by less are equal: sums of equal numbers differ by rounding.
_ROUNDING = 1e-12

_Floats = npt.NDArray[np.float64]


class ChangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A place where the level of a series changes. Values have the series' unit."""

    index: int  # of the first value after the change, counted from 0 in the series as given
    mean_before: float  # geometric means and medians between this change point and its neighbours
    mean_after: float
    median_before: float
    median_after: float
    ratio: Estimate  # mean after over mean before, with its 95% interval (Student's t on the logarithms)
    p_value: float  # of the t test between the two whole pieces; not corrected for the search


def change_points(
    values: Sequence[float],
    *,
    window: int = CHANGE_POINT_WINDOW,
    p_value: float = CHANGE_POINT_P_VALUE,
    least_magnitude: float = 0.0,
    least_length: int = LEAST_LENGTH,
) -> tuple[ChangePoint, ...]:
    """The change points of a series, in its order. Equal series give equal points.

    Args:
        values: in the order of time, in any unit, positive. NaN stands for a value that is missing.
        window: the most values that are searched at once. Windows overlap by half.
        p_value: the greatest p-value of a change point.
        least_magnitude: the least change that counts, as a share: 0.05 for 5% either way; 0: any.
        least_length: the fewest values on each side of a change point.
    """
    given = np.asarray(values, dtype=np.float64)
    places = np.flatnonzero(~np.isnan(given))
    kept = given[places]
    logs = np.log(kept)
    weak = weak_points(logs, window=window, p_value=min(1.0, WEAKER * p_value), least_length=least_length)
    strict = strict_points(logs, weak, p_value=p_value, least_log=math.log1p(least_magnitude))
    return tuple(
        _described(kept, logs, start, place, end, int(places[place])) for start, place, end in pieces(strict, len(kept))
    )


def pieces(points: Sequence[int], length: int) -> list[tuple[int, int, int]]:
    """The start of the piece before each point, the point, and the end of the piece after it."""
    ends = [0, *points, length]
    return list(zip(ends, ends[1:], ends[2:], strict=False))


# --- the weak pass ---


def weak_points(logs: _Floats, *, window: int, p_value: float, least_length: int = LEAST_LENGTH) -> list[int]:
    """Places where windows of the series of logarithms (T,) can be split, in order, at least `least_length` apart.

    Windows overlap by half of their length. Each is searched alone.
    """
    found: set[int] = set()
    start = 0
    while True:
        part = logs[start : start + window]
        found.update(start + place for place in split_window(part, p_value=p_value, least_length=least_length))
        if start + window >= len(logs):
            break
        start += max(1, window // 2)
    return _apart(logs, sorted(found), least_length)


def split_window(logs: _Floats, *, p_value: float, least_length: int) -> list[int]:
    """The places where a window is split: at its greatest divergence, then in each part, while the t test allows it."""
    sums = distance_sums(logs)
    found, open_parts = [], [(0, len(logs))]
    while open_parts:
        start, end = open_parts.pop()
        best = best_split(sums, start, end, least_length)
        if best is None:
            continue
        place, right_end = best
        if t_test(logs[start:place], logs[place:right_end]) <= p_value:
            found.append(place)
            open_parts += [(start, place), (place, end)]
    return sorted(found)


def distance_sums(logs: _Floats) -> _Floats:
    """(T + 1, T + 1) sums of the distances |x_i - x_j| over i < row and j < column."""
    sums = np.zeros((len(logs) + 1, len(logs) + 1))
    np.abs(logs[:, None] - logs[None, :]).cumsum(axis=0).cumsum(axis=1, out=sums[1:, 1:])
    return sums


def best_split(sums: _Floats, start: int, end: int, least_length: int) -> tuple[int, int] | None:
    """The split of values[start:end] with the greatest divergence, and where its right piece ends.

    The left piece has n values, the right one m. Their divergence is

        Q = n m / (n + m) (2 mean |x - y| - mean |x - x'| - mean |y - y'|)

    (Matteson and James 2013, 2.2, with exponent 1; x and x' are different values of one piece). The right piece may end
    before `end`, so that a change back does not hide a change.

    Returns:
        None: there is no split, as in a part that is too short or constant.
    """
    splits = np.arange(start + least_length, end - least_length + 1)
    if len(splits) == 0:
        return None
    t, k = splits[:, None], np.arange(start + 2 * least_length, end + 1)[None, :]
    n, m = t - start, k - t
    is_split = m >= least_length
    m = np.maximum(m, 1)
    left = sums[t, t] - 2 * sums[start, t] + sums[start, start]
    right = sums[k, k] - 2 * sums[t, k] + sums[t, t]
    across = sums[t, k] - sums[t, t] - sums[start, k] + sums[start, t]
    between = 2 * across / (n * m) - left / np.maximum(n * (n - 1), 1) - right / np.maximum(m * (m - 1), 1)
    divergences = np.where(is_split, n * m / (n + m) * between, -np.inf)
    row, column = np.unravel_index(np.argmax(divergences), divergences.shape)
    if divergences[row, column] <= _ROUNDING:
        return None
    return int(splits[row]), int(k[0, column])


def _apart(logs: _Floats, points: list[int], least_length: int) -> list[int]:
    """The points, without those that are nearer to another than `least_length`. The clearer one of two stays."""
    kept = list(points)
    while True:
        close = next((n for n in range(1, len(kept)) if kept[n] - kept[n - 1] < least_length), None)
        if close is None:
            return kept
        start = kept[close - 2] if close > 1 else 0
        end = kept[close + 1] if close + 1 < len(kept) else len(logs)
        p_values = [t_test(logs[start:place], logs[place:end]) for place in (kept[close - 1], kept[close])]
        del kept[close if p_values[1] >= p_values[0] else close - 1]


# --- the strict pass ---


def strict_points(logs: _Floats, points: Sequence[int], *, p_value: float, least_log: float = 0.0) -> list[int]:
    """The points of a series of logarithms (T,) that stay when each is tested between its neighbours.

    The weakest point that fails is taken away, and its neighbours are tested again with their longer pieces, until all
    pass. A point fails if its p-value is too large, or the means differ by less than `least_log`.
    """
    kept = list(points)
    while kept:
        worst: tuple[float, float, int] | None = None  # p-value, minus the change, place in `kept`
        for number, (start, place, end) in enumerate(pieces(kept, len(logs))):
            before, after = logs[start:place], logs[place:end]
            p, change = t_test(before, after), abs(float(after.mean() - before.mean()))
            fails = p > p_value or change < least_log - _ROUNDING
            if fails and (worst is None or (p, -change) > worst[:2]):
                worst = (p, -change, number)
        if worst is None:
            break
        del kept[worst[2]]
    return kept


# --- the test of two pieces ---


def t_test(before: _Floats, after: _Floats) -> float:
    """The two-sided p-value of Student's t test with a common variance, for two pieces of logarithms.

    The common variance is what lets a piece of two values, or one, be tested: its own spread would tell nothing. Pieces
    that are equal, and one value on each side, give 1.
    """
    difference, error, degrees = _difference(before, after)
    if degrees < 1 or abs(difference) <= _ROUNDING:
        return 1.0
    return 0.0 if error <= _ROUNDING else max(0.0, 1 - t_coverage(abs(difference) / error, degrees))


def _difference(before: _Floats, after: _Floats) -> tuple[float, float, int]:
    """The difference of the means, its standard error from the common variance, and the degrees of freedom."""
    degrees = len(before) + len(after) - 2
    difference = float(after.mean() - before.mean())
    squares = float(((before - before.mean()) ** 2).sum() + ((after - after.mean()) ** 2).sum())
    error = math.sqrt(squares / max(1, degrees) * (1 / len(before) + 1 / len(after)))
    return difference, error, degrees


def _described(values: _Floats, logs: _Floats, start: int, place: int, end: int, index: int) -> ChangePoint:
    before, after = logs[start:place], logs[place:end]
    difference, error, degrees = _difference(before, after)
    half_width = t_quantile(STATED_CONFIDENCE, degrees) * error
    return ChangePoint(
        index=index,
        mean_before=math.exp(float(before.mean())),
        mean_after=math.exp(float(after.mean())),
        median_before=float(median(values[start:place])),
        median_after=float(median(values[place:end])),
        ratio=Estimate(
            value=math.exp(difference),
            low=math.exp(difference - half_width),
            high=math.exp(difference + half_width) if difference + half_width < 700 else math.inf,
            confidence=STATED_CONFIDENCE,
            count=min(len(before), len(after)),
        ),
        p_value=t_test(before, after),
    )
