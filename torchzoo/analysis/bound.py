"""Explain the time T of a step by the device's work D and the host's work H.

D is the time in which the device works in one step. H is the CPU time until the step returns, without waits for the
device, in seconds of a reference host. Its unit is a fixed work that is timed beside the step
(`torchzoo.measure.host_reference`), so D and H agree between machines whose hosts differ in speed, and T does not.
"""

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


#: The reference host takes the reference work in this time.
REFERENCE_HOST_S = 1e-3


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


def host_times_s(measured: Measured, variant: str) -> list[float]:
    """Return H by block of the variant; empty if it is not known, as on the CPU."""
    share = measured.variants[variant].issuing_share
    return [
        block.cpu_s * (1.0 if share is None else share) / block.reference_s * REFERENCE_HOST_S
        for block in measured.blocks
        if block.variant == variant and block.cpu_s and block.reference_s and share != 0
    ]


def step_time_on_s(host: float, *, latency_s: float, device_s: float, host_s: float, now: float) -> float:
    """Return the time of a step on another host, by a model.

    The device's work stays. The time in which the device waits grows with the host's speed. The step can't take less
    than the host's work.

    Args:
        host: how many times as long as the reference host the other one takes.
        latency_s: T on this host.
        device_s: D.
        host_s: H, in seconds of the reference host.
        now: how many times as long as the reference host this one takes.
    """
    waiting_s = max(0.0, latency_s - device_s)
    return max(latency_s - waiting_s + waiting_s * host / now, host_s * host)


def case_bound(processes: Sequence[Measured]) -> Bound | None:
    """The bound of a case: the host if it bounds any variant, the device if it bounds all; None: not known."""
    found = [bound_of(measured, variant) for measured in processes for variant in measured.variants]
    if not found or None in found:
        return None
    if Bound.HOST in found:
        return Bound.HOST
    return Bound.BOTH if Bound.BOTH in found else Bound.DEVICE
