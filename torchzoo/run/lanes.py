"""Lanes: a device with its own cores. Windows of lanes that share cores exclude each other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo.environment import Accelerator

CPU = "cpu"


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One device that cases are measured on, one at a time. `cores` None: all that this process may use."""

    device: str  # cpu, cuda:0, ...
    cores: tuple[int, ...] | None = None
    memory_bytes: int | None = None  # of the device, where known
    jobs: int | None = None  # workers alive at once on this lane; None: as many as the run allows

    def runs(self, device: str) -> bool:
        """Whether a case that asks for `device` can run here: `cuda` asks for any cuda lane."""
        return self.device == device or self.device.partition(":")[0] == device

    def shares_cores(self, other: Lane) -> bool:
        if self.cores is None or other.cores is None:
            return True
        return bool(set(self.cores) & set(other.cores))


def make_lanes(
    devices: Sequence[str],
    indices: Sequence[int] | None,
    accelerators: Sequence[Accelerator],
    *,
    cores: Sequence[int],
    cpu_jobs: int = 1,
) -> tuple[Lane, ...]:
    """The lanes of a run.

    Args:
        devices: as the cases ask for them: cpu, cuda, cuda:1, ...
        indices: the accelerators that a bare `cuda` is spread over; None: the first one.
        accelerators: the machine's, by index; shorter where they aren't known.
        cores: what may be used.
        cpu_jobs: how many workers may be alive at once on the CPU's lane.

    Accelerators of one NUMA node share its cores evenly, in order; where nodes are unknown, all share all cores. One
    accelerator alone, and the CPU where it is measured, have all cores.
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
    known = {
        name: accelerators[number]
        for name in names
        if name != CPU and (number := int(name.partition(":")[2] or 0)) < len(accelerators)
    }
    on_accelerators = [name for name in names if name != CPU]
    shares = _share_cores({name: known.get(name, Accelerator()) for name in on_accelerators}, cores)
    return tuple(
        Lane(device=CPU, jobs=cpu_jobs)
        if name == CPU
        else Lane(device=name, cores=shares[name], memory_bytes=known[name].memory_bytes if name in known else None)
        for name in names
    )


def _share_cores(accelerators: dict[str, Accelerator], cores: Sequence[int]) -> dict[str, tuple[int, ...] | None]:
    """Each accelerator's own cores; None for all where there is one accelerator, or fewer cores than accelerators."""
    if len(accelerators) < 2:
        return dict.fromkeys(accelerators)
    near = {
        name: tuple(core for core in cores if core in (accelerator.near_cores or cores))
        for name, accelerator in accelerators.items()
    }
    nodes = set(near.values())
    are_apart = sum(len(node) for node in nodes) == len(set().union(*nodes))
    if not are_apart or not all(nodes):  # nodes that overlap say nothing: all share all
        near = dict.fromkeys(accelerators, tuple(cores))
    shares: dict[str, tuple[int, ...] | None] = {}
    for name, node in near.items():
        neighbours = [other for other, its in near.items() if its == node]
        share = len(node) // len(neighbours)
        start = neighbours.index(name) * share
        shares[name] = node[start : start + share]
    return shares if all(shares.values()) else dict.fromkeys(accelerators)
