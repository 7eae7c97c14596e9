"""Whether memory in use after each of many steps is level, or leaks."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from statistics import median

import msgspec

from torchzoo.record import Growth


class Verdict(enum.StrEnum):
    LEVEL = "level"
    LEAK = "leak"
    INCONCLUSIVE = "inconclusive"


class Measure(enum.StrEnum):
    """What may grow."""

    DEVICE = "device bytes"
    HEAP = "heap bytes"
    HOST = "host bytes"
    PYTHON = "Python objects"


#: The growth per step that counts as a leak. The device's allocator and Python's collector count exactly. The heap of
#: honest models (13, on the CPU) moved by up to 260 bytes a step. The host's pages come and go by megabytes with the
#: allocators' caches, so they are asked only where the heap can't be.
THRESHOLDS = {Measure.DEVICE: 1.0, Measure.HEAP: 1024.0, Measure.HOST: 256 * 1024.0, Measure.PYTHON: 0.5}

ONE_SIDED_95 = 1.645


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """Growth per step, and what it is above (`low`) and below (`high`), each at 95%."""

    value: float
    low: float
    high: float


class LeakCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The growth of each measure over the second half of the steps, and what it says."""

    slopes: dict[Measure, Slope]

    @property
    def verdicts(self) -> dict[Measure, Verdict]:
        """A leak rises by more than the threshold a step at 95%; what is level rises by less, or falls, at 95%."""
        found = {}
        for measure, slope in self.slopes.items():
            threshold = THRESHOLDS[measure]
            level = Verdict.LEVEL if slope.high < threshold else Verdict.INCONCLUSIVE
            found[measure] = Verdict.LEAK if slope.low >= threshold else level
        return found

    @property
    def verdict(self) -> Verdict:
        """A leak where anything leaks; level where everything is."""
        verdicts = self.verdicts.values()
        if Verdict.LEAK in verdicts:
            return Verdict.LEAK
        return Verdict.INCONCLUSIVE if Verdict.INCONCLUSIVE in verdicts else Verdict.LEVEL


def check(growth: Growth) -> LeakCheck:
    """The verdict on what was measured. The first half of the steps may fill caches and buffers: it is not looked at.

    Raises:
        ValueError: fewer than eight steps.
    """
    series = {
        Measure.DEVICE: growth.device_bytes,
        Measure.HEAP: growth.heap_bytes,
        Measure.HOST: growth.host_bytes if growth.heap_bytes is None else None,
        Measure.PYTHON: growth.python_objects,
    }
    return LeakCheck(slopes={what: slope(values[len(values) // 2 :]) for what, values in series.items() if values})


def slope(values: Sequence[float]) -> Slope:
    """The Theil-Sen slope of equally spaced values: the median of the slopes of all pairs, which outliers do not move.

    Its bounds are those of Sen (1968): ranks among the pairs' slopes, by the normal approximation of Kendall's S.

    Raises:
        ValueError: fewer than four values, which no bounds can be given for.
    """
    n = len(values)
    if n < 4:
        raise ValueError(f"a slope needs at least four values, found {n}")
    slopes = sorted((values[j] - values[i]) / (j - i) for i in range(n) for j in range(i + 1, n))
    spread = ONE_SIDED_95 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    rank = max(0, math.floor((len(slopes) - spread) / 2))
    return Slope(value=median(slopes), low=slopes[rank], high=slopes[-1 - rank])
