"""Find out whether a device of a case throttled, from NVML's readings before and after the latency pass."""

from __future__ import annotations

from collections.abc import Iterable

from torchzoo.record import DeviceState, Measured

#: The reason that holds if the device draws all the power that it may, which depends on the values in a step.
POWER_CAP = "software power cap"

#: The bits of nvmlClocksEventReasons for which the device throttles: it runs slower than it was set to.
_SLOWDOWNS = {
    0x004: POWER_CAP,
    0x008: "hardware slowdown",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
}

#: A reason is left out if it lowered the clocks for a smaller share of the latency pass.
LEAST_SHARE = 0.01


def throttled(measured: Measured) -> dict[str, float | None]:
    """The reasons for which the device throttled, with their share of the timed steps, or None if it is not known.

    With several ranks, the share is the greatest of any device.

    NVML has masks of the reasons at one moment, and counters of how long each reason held. Not all drivers have the
    counters.
    """
    found: dict[str, float | None] = dict.fromkeys(slowdowns(state.throttle_reasons for state in _states(measured)))
    timed_s = sum(sum(block.samples_s) for block in measured.blocks)
    for before, after in _around(measured):
        shares = throttled_shares(before, after, timed_s) if before is not None and after is not None else {}
        for reason, share in shares.items():
            if share >= LEAST_SHARE:
                found[reason] = max(share, found.get(reason) or 0.0)
    return found


def foreign_processes(measured: Measured) -> int:
    """The greatest number of other processes that had a device open before or after the latency pass."""
    return max((state.foreign_processes or 0 for state in _states(measured)), default=0)


def was_shared(measured: Measured) -> bool:
    """Whether other processes used the device, or had it open, during the measurement of the case."""
    return bool(measured.device_was_busy) or foreign_processes(measured) > 0


def throttled_shares(before: DeviceState, after: DeviceState, elapsed_s: float) -> dict[str, float]:
    """The share of the time between two readings in which the device throttled, for each reason that NVML counts."""
    return {
        reason: min(1.0, (after.throttled_s[reason] - began_s) / elapsed_s)
        for reason, began_s in before.throttled_s.items()
        if reason in after.throttled_s and elapsed_s > 0
    }


def slowdowns(masks: Iterable[int | None]) -> list[str]:
    """The reasons in any of the masks for which a device throttles: power, heat, brake, slowdown."""
    known = [mask for mask in masks if mask is not None]
    return [name for bit, name in _SLOWDOWNS.items() if any(mask & bit for mask in known)]


def _states(measured: Measured) -> list[DeviceState]:
    return [state for pair in _around(measured) for state in pair if state is not None]


def _around(measured: Measured) -> list[tuple[DeviceState | None, DeviceState | None]]:
    """The readings before and after the latency pass, of each rank."""
    of_ranks = [(rank.device_state_before, rank.device_state_after) for rank in measured.ranks]
    return [(measured.device_state_before, measured.device_state_after), *of_ranks]
