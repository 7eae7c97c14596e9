"""VariantFigures with units, rounded for people."""

from __future__ import annotations

from torchzoo.stats import Estimate


def seconds(value_s: float) -> str:
    """`1.23 s`, `45.6 ms`, `789 µs`."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if value_s >= factor:
            return f"{_three_digits(value_s / factor)} {unit}"
    return f"{_three_digits(value_s / 1e-6)} µs"


def size(value_bytes: int | None) -> str:
    """`1.50 GiB`, `12.0 MiB`; `-` for None."""
    if value_bytes is None:
        return "-"
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if value_bytes >= factor:
            return f"{_three_digits(value_bytes / factor)} {unit}"
    return f"{_three_digits(value_bytes / 2**10)} KiB"


def rate(value_per_s: float, unit: str) -> str:
    """`1,234 images/s`."""
    return f"{_three_digits(value_per_s)} {unit}/s"


def number(value: float) -> str:
    """`1,234`, `12.3`, `1.23`: a number whose unit stands elsewhere."""
    return _three_digits(value)


def operations(value: float) -> str:
    """`3.63 GFLOP`: a number of floating-point operations, or, with `/s` behind it, a rate."""
    for unit, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= factor:
            return f"{_three_digits(value / factor)} {unit}FLOP"
    return f"{_three_digits(value / 1e3)} kFLOP"


def energy(value_j: float) -> str:
    """`1.23 kJ`, `45.6 J`, `789 mJ`."""
    for unit, factor in (("kJ", 1e3), ("J", 1.0)):
        if value_j >= factor:
            return f"{_three_digits(value_j / factor)} {unit}"
    return f"{_three_digits(value_j / 1e-3)} mJ"


def share(estimate: Estimate) -> str:
    """`63.2% [62.8, 63.9]` of a fraction, with the confidence where it is not 95%."""
    value, low, high = (100 * part for part in (estimate.value, estimate.low, estimate.high))
    if estimate.count < 2:
        return f"{value:.1f}% (one sample)"
    text = f"{value:.1f}% [{low:.1f}, {high:.1f}]"
    return text if estimate.confidence >= 0.95 else f"{text} (at {100 * estimate.confidence:.0f}%)"


def latency(estimate: Estimate) -> str:
    """`45.6 ms ±0.4%`: half of the 95% interval's width; another confidence is named, one sample has no interval."""
    return f"{seconds(estimate.value)} {spread(estimate)}"


def spread(estimate: Estimate) -> str:
    """`±0.4%`, with the confidence where it is not 95%."""
    if estimate.count < 2:
        return "(one sample)"
    text = f"±{100 * estimate.relative_half_width:.1f}%"
    return text if estimate.confidence >= 0.95 else f"{text} (at {100 * estimate.confidence:.0f}%)"


def speedup(estimate: Estimate) -> str:
    """`1.32x [1.30, 1.34]`, with the confidence where it is not 95%."""
    if estimate.count < 2:
        return f"{estimate.value:.2f}x (one sample)"
    digits = 3 if estimate.relative_half_width < 0.01 else 2
    text = f"{estimate.value:.{digits}f}x [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
    return text if estimate.confidence >= 0.95 else f"{text} (at {100 * estimate.confidence:.0f}%)"


def factor(value: float, low: float, high: float) -> str:
    """`1.32x [1.30, 1.34]`: always two digits, always with the interval."""
    return f"{value:.2f}x [{low:.2f}, {high:.2f}]"


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
