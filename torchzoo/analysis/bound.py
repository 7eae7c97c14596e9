"""Find out what bounds a step: the device, which works all the time, or the host, which does not keep it busy."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from statistics import median

from torchzoo import stats
from torchzoo.record import Measured

#: A step is bound by the device from the first share of time in which the device works, by the host below the second.
DEVICE_SHARE, HOST_SHARE = 0.9, 0.5

#: If the device's time is not known, a step is bound by the device if the host has issued it within this part of the
#: step's time, and else by the host.
HANDED_OVER_BY = 0.5


class Bound(enum.StrEnum):
    DEVICE = "device"
    BOTH = "both"
    HOST = "host"


def device_share(measured: Measured, variant: str) -> float | None:
    """The share of a synchronised step's time in which the device works; None if not known, as on the CPU."""
    active_s = measured.variants[variant].device_active_s
    if active_s is None:
        return None
    return min(1.0, active_s / stats.latency_s(measured.blocks, variant).value)


def bound_of(measured: Measured, variant: str) -> Bound | None:
    """The bound of a variant's step; None if it is not known."""
    share = device_share(measured, variant)
    if share is not None:
        return Bound.DEVICE if share >= DEVICE_SHARE else Bound.HOST if share < HOST_SHARE else Bound.BOTH
    host_s = [run.host_s for run in measured.variants[variant].back_to_back if run.host_s is not None]
    if not host_s:
        return None
    limit_s = HANDED_OVER_BY * stats.latency_s(measured.blocks, variant).value
    return Bound.DEVICE if median(host_s) < limit_s else Bound.HOST


def case_bound(processes: Sequence[Measured]) -> Bound | None:
    """The bound of a case: the host if it bounds any variant, the device if it bounds all; None: not known."""
    found = [bound_of(measured, variant) for measured in processes for variant in measured.variants]
    if not found or None in found:
        return None
    if Bound.HOST in found:
        return Bound.HOST
    return Bound.BOTH if Bound.BOTH in found else Bound.DEVICE
