"""Decide whether the memory in use after each of many steps stays level or leaks."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from statistics import median

import msgspec

from torchzoo.record import Growth


class LeakVerdict(enum.StrEnum):
    LEVEL = "level"
    LEAK = "leak"
    INCONCLUSIVE = "inconclusive"


class Measure(enum.StrEnum):
    """A measure of memory that may grow."""

    DEVICE = "device bytes"
    HEAP = "heap bytes"
    HOST = "host bytes"
    PYTHON = "Python objects"


#: The growth per step that counts as a leak. The device's allocator and Python's collector count exactly. The heap of
#: models without leaks (13 of them, on the CPU) changed by up to 260 bytes a step. The host's pages come and go by
#: megabytes with the allocators' caches, so they are used only if the heap can't be read.
THRESHOLDS = {Measure.DEVICE: 1.0, Measure.HEAP: 1024.0, Measure.HOST: 256 * 1024.0, Measure.PYTHON: 0.5}

ONE_SIDED_95 = 1.645


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """Growth per step, with a lower and an upper bound, each at 95%."""

    value: float
    low: float
    high: float


class LeakCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The growth of each measure over the second half of the steps, and the verdict."""

    slopes: dict[Measure, Slope]

    @property
    def verdicts(self) -> dict[Measure, LeakVerdict]:
        """The verdict on each measure: a leak grows by the threshold or more per step (at 95%), a level one by less."""
        found = {}
        for measure, slope in self.slopes.items():
            threshold = THRESHOLDS[measure]
            level = LeakVerdict.LEVEL if slope.high < threshold else LeakVerdict.INCONCLUSIVE
            found[measure] = LeakVerdict.LEAK if slope.low >= threshold else level
        return found

    @property
    def verdict(self) -> LeakVerdict:
        """A leak if any measure leaks; level if all measures are level."""
        verdicts = self.verdicts.values()
        if LeakVerdict.LEAK in verdicts:
            return LeakVerdict.LEAK
        return LeakVerdict.INCONCLUSIVE if LeakVerdict.INCONCLUSIVE in verdicts else LeakVerdict.LEVEL


def check(growth: Growth) -> LeakCheck:
    """Judge the growth over the second half of the steps. The first half may fill caches and buffers."""
    series = {
        Measure.DEVICE: growth.device_bytes,
        Measure.HEAP: growth.heap_bytes,
        Measure.HOST: growth.host_bytes if growth.heap_bytes is None else None,
        Measure.PYTHON: growth.python_objects,
    }
    return LeakCheck(slopes={what: slope(values[len(values) // 2 :]) for what, values in series.items() if values})


def slope(values: Sequence[float]) -> Slope:
    """The Theil-Sen slope of equally spaced values: the median of the slopes of all pairs. Outliers do not change it.

    The bounds are those of Sen (1968): ranks among the pairs' slopes, by the normal approximation of Kendall's S.
    """
    n = len(values)
    if n < 4:
        raise ValueError(f"a slope needs at least four values, found {n}")
    slopes = sorted((values[j] - values[i]) / (j - i) for i in range(n) for j in range(i + 1, n))
    spread = ONE_SIDED_95 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    rank = max(0, math.floor((len(slopes) - spread) / 2))
    return Slope(value=median(slopes), low=slopes[rank], high=slopes[-1 - rank])
