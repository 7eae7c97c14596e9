"""Lanes: a device with its own cores. Windows of lanes that share cores exclude each other."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

CPU = "cpu"


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One device that cases are measured on, one at a time. `cores` None: all that this process may use."""

    device: str  # cpu, cuda:0, ...
    cores: tuple[int, ...] | None = None
    memory_bytes: int | None = None  # of the device, where known

    def runs(self, device: str) -> bool:
        """Whether a case that asks for `device` can run here: `cuda` asks for any cuda lane."""
        return self.device == device or self.device.partition(":")[0] == device

    def shares_cores(self, other: Lane) -> bool:
        if self.cores is None or other.cores is None:
            return True
        return bool(set(self.cores) & set(other.cores))


def make_lanes(devices: Sequence[str], indices: Sequence[int] | None, memory_bytes: Sequence[int]) -> tuple[Lane, ...]:
    """The lanes of a run.

    Args:
        devices: as the cases ask for them: cpu, cuda, cuda:1, ...
        indices: the accelerators that a bare `cuda` is spread over; None: the first one.
        memory_bytes: of each accelerator, by index; shorter where it isn't known.

    Several accelerators share the usable cores evenly, in order; the CPU, where it is measured too, has them all.
    """
    names: dict[str, None] = {}
    for device in devices:
        kind, _, index = device.partition(":")
        if kind == CPU:
            names[CPU] = None
        elif index:
            names[f"{kind}:{int(index)}"] = None
        else:
            names.update(dict.fromkeys(f"{kind}:{number}" for number in (indices or (0,))))
    accelerators = [name for name in names if name != CPU]
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = len(usable) // len(accelerators) if accelerators else 0
    lanes = []
    for name in names:
        cores = None
        if len(accelerators) > 1 and name != CPU and share:
            start = accelerators.index(name) * share
            cores = tuple(usable[start : start + share])
        number = int(name.partition(":")[2] or 0)
        known = name != CPU and number < len(memory_bytes)
        lanes.append(Lane(device=name, cores=cores, memory_bytes=memory_bytes[number] if known else None))
    return tuple(lanes)
