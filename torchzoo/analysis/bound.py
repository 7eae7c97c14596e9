"""Explain the time T of a step by the device's work D and the host's work H.

D is the time in which the device works in one step. H is the CPU time until the step returns, without waits for the
device, in seconds of a reference host. Its unit is a fixed work that is timed beside the step
(`torchzoo.measure.host_reference`), so D and H agree between machines whose hosts differ in speed, and T does not.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from statistics import fmean, median

import msgspec

from torchzoo import stats
from torchzoo.record import Measured

#: A step is bound by the device from the first share of time in which the device works, by the host below the second.
DEVICE_SHARE, HOST_SHARE = 0.9, 0.5

#: If the device's time is not known, a step is bound by the device if the host has issued it within this part of the
#: step's time, and else by the host.
HANDED_OVER_BY = 0.5


#: A step is driven by the host if it returns after more than this share of its time.
DRIVEN = 0.95

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
    """Return H by block of the variant; empty if it is not known."""
    share = measured.variants[variant].issuing_share
    return [
        block.cpu_s * (1.0 if share is None else share) / block.reference_s * REFERENCE_HOST_S
        for block in measured.blocks
        if block.variant == variant and block.cpu_s and block.reference_s and share != 0
    ]


class StepModel(msgspec.Struct, frozen=True, kw_only=True):
    """What T of a step is made of, to tell T on a host of another speed."""

    device_s: float  # D
    host_s: float  # H, in seconds of the reference host
    idle_s: float  # in which the device does not work, in seconds of the reference host
    rest_s: float  # after the step has returned, and in waits for the device before that
    is_driven: bool  # whether the host is at work for nearly the whole step

    def step_s(self, host: float) -> float:
        """Return T on a host that takes `host` times as long as the reference host.

        A step that the host drives takes the host's work and the rest, but never less than the device's work. In others
        the device's work stays, and the time in which the device waits grows with the host.
        """
        if self.is_driven:
            return max(self.host_s * host + self.rest_s, self.device_s)
        return max(self.device_s + self.idle_s * host, self.host_s * host)


def step_model(measured: Measured, variant: str) -> StepModel | None:
    """Return the model of a variant's step; None if D or H is not known."""
    device_s, hosts_s = measured.variants[variant].device_active_s, host_times_s(measured, variant)
    blocks = [one for one in measured.blocks if one.variant == variant and one.reference_s and one.issued_s is not None]
    if device_s is None or not hosts_s or not blocks:
        return None
    latency_s, issued_s = stats.latency_s(blocks, variant).value, median(one.issued_s or 0.0 for one in blocks)
    share = measured.variants[variant].issuing_share
    waits_s = [(fmean(one.samples_s) - device_s) / (one.reference_s or math.inf) * REFERENCE_HOST_S for one in blocks]
    return StepModel(
        device_s=min(device_s, latency_s),
        host_s=median(hosts_s),
        idle_s=max(0.0, median(waits_s)),
        rest_s=latency_s - issued_s * (1.0 if share is None else share),
        is_driven=issued_s > DRIVEN * latency_s,
    )


def case_bound(processes: Sequence[Measured]) -> Bound | None:
    """The bound of a case: the host if it bounds any variant, the device if it bounds all; None: not known."""
    found = [bound_of(measured, variant) for measured in processes for variant in measured.variants]
    if not found or None in found:
        return None
    if Bound.HOST in found:
        return Bound.HOST
    return Bound.BOTH if Bound.BOTH in found else Bound.DEVICE
