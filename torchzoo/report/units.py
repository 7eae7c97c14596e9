"""Values with units, rounded for people: three digits, and an interval in the unit of its value."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.stats import Estimate

#: Units from the largest to the smallest: the name, and how much of the base unit it is.
Scale = tuple[tuple[str, float], ...]
_SECONDS: Scale = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
_BYTES: Scale = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
_OPERATIONS: Scale = (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3))
_DECIMAL_BYTES: Scale = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_JOULES: Scale = (("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3))

#: An interval is clear if its half-width is at least so many units of the last digit that is shown.
CLEAR = 2
#: How near and how far an interval reaches before it is only called nearer or further.
LEAST_REACH, MOST_REACH = 0.001, 9.99


def seconds(value_s: float) -> str:
    """`1.23 s`, `45.6 ms`, `789 µs`."""
    return _scaled(value_s, _SECONDS)


def duration(value_s: float) -> str:
    """`45 s`, `2m 23s`, `1h 5m`."""
    whole = round(value_s)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60}m {whole % 60}s" if whole < 3600 else f"{whole // 3600}h {whole % 3600 // 60}m"


def size(value_bytes: int | None) -> str:
    """`1.50 GiB`, `12.0 MiB`; `-` for None."""
    return "-" if value_bytes is None else _scaled(value_bytes, _BYTES)


def rate(value_per_s: float, unit: str) -> str:
    """`1,234 images/s`."""
    return f"{number(value_per_s)} {unit}/s"


def operations(value: float) -> str:
    """`3.63 GFLOP`: a number of floating-point operations. With `/s` behind it, a rate."""
    return _scaled(value, _OPERATIONS)


def energy(value_j: float) -> str:
    """`1.23 kJ`, `45.6 J`, `789 mJ`."""
    return _scaled(value_j, _JOULES)


def number(value: float) -> str:
    """`1,234`, `12.3`, `1.23`: a number without its unit."""
    return f"{value:,.{_decimals(value)}f}"


def _decimals(value: float) -> int:
    return 0 if value >= 100 else 1 if value >= 10 else 2


# --- estimates with their intervals ---


def latency(estimate_s: Estimate, *, has_confidence: bool = True) -> str:
    """`22.0 ms [15.1, 265]`: the value, and both ends of its interval in the same unit.

    A narrow interval has more digits: `157.2 ms [157.1, 157.3]`. A confidence below 95% is named, unless something
    else tells it (`has_confidence`). Too few samples have no interval, and words in its place.
    """
    return _with_interval(estimate_s, _SECONDS, has_confidence=has_confidence)


def energy_estimate(estimate_j: Estimate) -> str:
    """`45.6 J [45.1, 46.0]`."""
    return _with_interval(estimate_j, _JOULES)


def operations_per_s(estimate: Estimate) -> str:
    """`3.63 TFLOP/s [3.60, 3.64]`."""
    return _with_interval(estimate, _OPERATIONS, per="/s")


def bandwidth(estimate: Estimate) -> str:
    """`312 GB/s [300, 320]`."""
    return _with_interval(estimate, _DECIMAL_BYTES, per="/s")


def share(estimate: Estimate) -> str:
    """`63.2% [62.8, 63.9]` of a fraction."""
    value, low, high = (100 * part for part in (estimate.value, estimate.low, estimate.high))
    return f"{value:.1f}% {_interval(estimate, f'{low:.1f}', f'{high:.1f}')}"


def speedup(estimate: Estimate, *, has_confidence: bool = True) -> str:
    """`1.32x [1.30, 1.34]`; with three decimals where the interval is narrow."""
    return factor(estimate, decimals=3 if estimate.relative_half_width < 0.01 else 2, has_confidence=has_confidence)


def reach(estimate: Estimate) -> str:
    """`0.4%`: how far the interval reaches from its value, on the side where it reaches further; `-` without one."""
    if not estimate.has_interval or not estimate.value:
        return "-"
    share = max(estimate.high - estimate.value, estimate.value - estimate.low) / abs(estimate.value)
    if not share < MOST_REACH:  # infinite, too
        return f">{MOST_REACH:.0%}"
    if share < LEAST_REACH:
        return f"<{LEAST_REACH:.1%}"
    return f"{share:.1%}" if share < 0.0995 else f"{share:.0%}"


def factor(estimate: Estimate, *, decimals: int = 2, has_confidence: bool = True) -> str:
    """`1.32x [1.30, 1.34]`: always so many decimals."""
    low, high = f"{estimate.low:.{decimals}f}", f"{estimate.high:.{decimals}f}"
    return f"{estimate.value:.{decimals}f}x {_interval(estimate, low, high, has_confidence=has_confidence)}"


def _scaled(value: float, scale: Scale) -> str:
    name, unit = _unit(value, scale)
    return f"{number(value / unit)} {name}"


def _with_interval(estimate: Estimate, scale: Scale, *, per: str = "", has_confidence: bool = True) -> str:
    name, unit = _unit(estimate.value, scale)
    value, low, high = (part / unit for part in (estimate.value, estimate.low, estimate.high))
    if not estimate.has_interval or (high - low) / 2 * 10 ** _decimals(value) >= CLEAR:
        texts = [number(one) for one in (value, low, high)]
    else:  # three digits would hide the interval
        decimals = _decimals(value) + (1 if (high - low) / 2 * 10 ** (_decimals(value) + 1) >= CLEAR else 2)
        texts = [f"{one:,.{decimals}f}" for one in (value, low, high)]
    return f"{texts[0]} {name}{per} {_interval(estimate, *texts[1:], has_confidence=has_confidence)}"


def _unit(value: float, scale: Scale) -> tuple[str, float]:
    """The largest unit that the value reaches, else the smallest of all."""
    return next(((name, unit) for name, unit in scale if value >= unit), scale[-1])


def _interval(estimate: Estimate, low: str, high: str, *, has_confidence: bool = True) -> str:
    """`[15.1, 265]`, with the confidence where it is below 95%; `(2 models: too few for an interval)`.

    Without `has_confidence` there is less to read: no confidence, and `(2 models)`.
    """
    if not estimate.has_interval and estimate.of != "range":
        return f"({estimate.why_no_interval if has_confidence else estimate.counted})"
    confidence = "" if estimate.confidence >= 0.95 or not has_confidence else f" (at {100 * estimate.confidence:.0f}%)"
    return f"[{low}, {high}]{confidence}"


def metric_value(value: float, unit: str) -> str:
    """`7.03 ms`, `1.50 GiB`, `0.675x` for a ratio, `1,236` for a count."""
    if unit == "ratio":
        return f"{value:.3g}x"
    if unit == "count":
        return f"{value:,.0f}"
    return seconds(value) if unit == "s" else _scaled(value, {"bytes": _BYTES, "J": _JOULES}[unit])


def difference(share: float) -> str:
    """`1.2%`. A share above 1 is shown as `over 100%`."""
    return f"{100 * share:.1f}%" if share <= 1 else "over 100%"


def least_differences(shares: Sequence[float]) -> str:
    """`1.2% and more in half of the cases (from 1.0% to 4.0%)`, for the differences that can be found, by case.

    `2.9% and more` where they are all the same, as those of a single case.
    """
    ordered = sorted(shares)
    middle, least, most = (difference(share) for share in (ordered[len(ordered) // 2], ordered[0], ordered[-1]))
    over = difference(2)
    if least == over:
        return "more than 100% only"
    if middle == over:
        return f"{over} in half of the cases (from {least})"
    return f"{middle} and more" + (f" in half of the cases (from {least} to {most})" if least != most else "")


def first_few(texts: Sequence[str], most: int = 8, what: str = "") -> str:
    """`a, b, c and 4 more`, with `what` they are behind it."""
    more = f" and {len(texts) - most} more{what}" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def counted(count: int, what: str) -> str:
    """`1 case` or `2 cases`."""
    return f"{count} {what}{'s' * (count != 1)}"
