"""Lanes: each is a device with its own cores. Two lanes that share cores never have open windows at the same time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo.environment import Accelerator

CPU = "cpu"


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One device that measures one case at a time. `cores` is None for all cores that this process may use."""

    device: str  # cpu, cuda:0, ...
    cores: tuple[int, ...] | None = None
    memory_bytes: int | None = None  # of the device, where known
    jobs: int | None = None  # how many workers may be alive on this lane; None: as many as the run allows

    def runs(self, device: str) -> bool:
        """Whether a case on `device` can run here. A case on `cuda` can run on any cuda lane."""
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
        devices: the devices of the cases: cpu, cuda, cuda:1, ...
        indices: the accelerators that cases on `cuda` (without a number) are spread over; None: the first one.
        accelerators: the machine's accelerators by index; fewer if some are not known.
        cores: the cores that may be used.
        cpu_jobs: how many workers may be alive at once on the CPU's lane.

    Accelerators of one NUMA node divide its cores evenly, in order. If the nodes are not known, all accelerators divide
    all cores. A single accelerator has all cores, and so has the CPU as a device.
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
    """The cores of each accelerator. All are None if there is one accelerator, or fewer cores than accelerators."""
    if len(accelerators) < 2:
        return dict.fromkeys(accelerators)
    near = {
        name: tuple(core for core in cores if core in (accelerator.near_cores or cores))
        for name, accelerator in accelerators.items()
    }
    nodes = set(near.values())
    are_apart = sum(len(node) for node in nodes) == len(set().union(*nodes))
    if not are_apart or not all(nodes):  # nodes that overlap can't be right: divide all cores
        near = dict.fromkeys(accelerators, tuple(cores))
    shares: dict[str, tuple[int, ...] | None] = {}
    for name, node in near.items():
        neighbours = [other for other, its in near.items() if its == node]
        share = len(node) // len(neighbours)
        start = neighbours.index(name) * share
        shares[name] = node[start : start + share]
    return shares if all(shares.values()) else dict.fromkeys(accelerators)
