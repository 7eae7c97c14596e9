"""Numbers as a row of small bars: samples in time, and their histogram."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from statistics import median

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-:=+*#"  # for a terminal that has no such characters
WIDTH = 48


def known_bars(encoding: str | None = None) -> str:
    """The bars that standard output, or a stream of that encoding, can show."""
    try:
        BARS.encode(encoding or getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return ASCII_BARS
    return BARS


def in_time(values: Sequence[float], width: int = WIDTH, bars: str = BARS) -> str:
    """The values in their order, each bar the median of neighbours. The least has the lowest bar, NaN a space."""
    parts = min(width, len(values))
    medians = [
        _median(values[part * len(values) // parts : (part + 1) * len(values) // parts]) for part in range(parts)
    ]
    known = [one for one in medians if not math.isnan(one)]
    low, span = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    return "".join(
        " " if math.isnan(one) else bars[min(len(bars) - 1, int((one - low) / (span or 1.0) * len(bars)))]
        for one in medians
    )


def _median(values: Sequence[float]) -> float:
    known = [one for one in values if not math.isnan(one)]
    return median(known) if known else math.nan


def histogram(values: Sequence[float], width: int = WIDTH, bars: str = BARS) -> str:
    """How many values there are from the least to the most, in `width` parts. A part without any is a space."""
    low, high = min(values), max(values)
    if low == high:
        return bars[-1]
    counts = [0] * width
    for value in values:
        counts[min(width - 1, int((value - low) / (high - low) * width))] += 1
    most = max(counts)
    return "".join(" " if count == 0 else bars[(count * len(bars) - 1) // most] for count in counts)
