"""NVML's reasons for the clocks that a device runs at, in words."""

from __future__ import annotations

from collections.abc import Iterable

from torchzoo.record import DeviceState

#: nvmlClocksEventReasons: bit, name, and whether the device runs slower than it was asked to.
_REASONS = (
    (0x001, "idle", False),
    (0x002, "applications clocks", False),
    (0x004, "software power cap", True),
    (0x008, "hardware slowdown", True),
    (0x010, "sync boost", False),
    (0x020, "software thermal slowdown", True),
    (0x040, "hardware thermal slowdown", True),
    (0x080, "hardware power brake", True),
    (0x100, "display clocks", False),
)


def reasons(mask: int) -> list[str]:
    """Each set bit's name; of one that is not known here its value, `0x200`."""
    known = sum(bit for bit, _, _ in _REASONS)
    named = [name for bit, name, _ in _REASONS if mask & bit]
    rest = mask & ~known
    return [*named, *(hex(1 << place) for place in range(rest.bit_length()) if rest >> place & 1)]


def throttled_shares(before: DeviceState, after: DeviceState, elapsed_s: float) -> dict[str, float]:
    """For each reason that NVML counts, the share of the time between two readings for which the device throttled."""
    return {
        reason: min(1.0, (after.throttled_s[reason] - began_s) / elapsed_s)
        for reason, began_s in before.throttled_s.items()
        if reason in after.throttled_s and elapsed_s > 0
    }


def slowdowns(masks: Iterable[int | None]) -> list[str]:
    """Those of the reasons in any of the masks for which the device throttled: power, heat, brake, slowdown."""
    seen = 0
    for mask in masks:
        seen |= mask or 0
    return [name for bit, name, is_slowdown in _REASONS if is_slowdown and seen & bit]
