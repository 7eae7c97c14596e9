"""Lanes: each is a device with its own cores. Two lanes that share cores never have open windows at the same time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo.case import Case
from torchzoo.machine.facts import Accelerator

CPU = "cpu"

#: With fewer physical cores, none is kept for the runner.
LEAST_CORES_TO_KEEP_ONE = 4

#: The logical cores (hyperthreads) of one physical core.
PhysicalCore = tuple[int, ...]


class Lane(msgspec.Struct, frozen=True, kw_only=True):
    """One device that measures one case at a time. Cores are None for all that this process may use."""

    device: str  # cpu, cuda:0, ...
    cores: tuple[int, ...] | None = None  # what is measured has them to itself; they are whole physical cores
    near_cores: tuple[int, ...] | None = None  # what prepares may use them: those of the device's NUMA node
    memory_bytes: int | None = None  # of the device, where known
    jobs: int | None = None  # how many workers may be alive on this lane; None: as many as the run allows
    devices: tuple[str, ...] = ()  # of a lane for cases with several ranks: one for each rank, the first is `device`
    rank_cores: tuple[tuple[int, ...], ...] = ()  # of such a lane: what each rank has of the cores
    host: str = ""  # where the device is, in a run that is spread over several hosts

    @property
    def name(self) -> str:
        return f"{self.host}/{self.device}" if self.host else self.device

    def runs(self, case: Case) -> bool:
        """Whether a case can run here. One on `cuda` can run on any cuda lane for so many ranks."""
        is_device = self.device == case.device or self.device.partition(":")[0] == case.device
        return is_device and max(1, len(self.devices)) == case.world

    def cores_of(self, rank: int) -> tuple[int, ...] | None:
        """The cores of one rank; None: all may use all."""
        if not self.devices:
            return self.cores
        return self.rank_cores[rank] if self.rank_cores else None

    def shares_devices(self, other: Lane) -> bool:
        return bool({self.device, *self.devices} & {other.device, *other.devices})

    def shares_cores(self, other: Lane) -> bool:
        if self.cores is None or other.cores is None:
            return True
        return bool(set(self.cores) & set(other.cores))


def split_cores(physical: Sequence[PhysicalCore]) -> tuple[PhysicalCore | None, tuple[PhysicalCore, ...]]:
    """The core that the runner keeps to itself, and those for the lanes. With few cores the runner has none."""
    if len(physical) < LEAST_CORES_TO_KEEP_ONE:
        return None, tuple(physical)
    return physical[0], tuple(physical[1:])


def make_lanes(
    devices: Sequence[str],
    indices: Sequence[int] | None,
    accelerators: Sequence[Accelerator],
    *,
    physical: Sequence[PhysicalCore],
    cpu_jobs: int = 1,
) -> tuple[Lane, ...]:
    """The lanes of a run.

    Args:
        devices: the devices of the cases: cpu, cuda, cuda:1, ...
        indices: the accelerators that cases on `cuda` (without a number) are spread over; None: the first one.
        accelerators: the machine's accelerators by index; fewer if some are not known.
        physical: the physical cores that may be used.
        cpu_jobs: how many workers may be alive at once on the CPU's lane.

    The runner keeps one core. Accelerators of one NUMA node divide its other cores evenly, in order, and never share a
    physical core. If the nodes are not known, all accelerators divide all cores. The CPU as a device has all cores.
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
    _, for_lanes = split_cores(physical)
    on_accelerators = {name: known.get(name, Accelerator()) for name in names if name != CPU}
    near = _near(on_accelerators, for_lanes)
    shares = _share(near)
    return tuple(
        Lane(device=CPU, jobs=cpu_jobs)
        if name == CPU
        else Lane(
            device=name,
            cores=shares[name],
            near_cores=_logical(near[name]) if set(near[name]) != set(for_lanes) else None,
            memory_bytes=known[name].memory_bytes if name in known else None,
        )
        for name in names
    )


def make_rank_lanes(
    worlds: Sequence[int],
    devices: Sequence[str],
    indices: Sequence[int] | None,
    accelerators: Sequence[Accelerator],
    *,
    physical: Sequence[PhysicalCore],
) -> tuple[Lane, ...]:
    """The lanes of cases with several ranks: for each number of ranks, neighbours among the accelerators.

    Accelerators that are left over have no lane. Without `indices` there is one lane for each number: the first ones.
    On the CPU, each rank has an equal part of all cores.
    """
    rank_lanes = []
    for world in worlds:
        for kind in dict.fromkeys(device.partition(":")[0] for device in devices):
            if kind == CPU:
                rank_lanes.append(
                    Lane(device=CPU, devices=(CPU,) * world, rank_cores=_divided(physical, world), jobs=1)
                )
                continue
            chosen = indices or tuple(range(world))
            alone = make_lanes([kind], chosen, accelerators, physical=physical)
            starts = range(0, len(alone) - world + 1, world)
            rank_lanes += [_together(alone[start : start + world]) for start in starts]
    return tuple(rank_lanes)


def _divided(physical: Sequence[PhysicalCore], world: int) -> tuple[tuple[int, ...], ...]:
    """The logical cores of each rank on the CPU. Ranks share a physical core only where there are too few."""
    share = max(1, len(physical) // world)
    starts = [rank * share % len(physical) for rank in range(world)]
    return tuple(_logical(physical[start : start + share]) for start in starts)


def _together(lanes: Sequence[Lane]) -> Lane:
    """One lane for a case with as many ranks as there are lanes."""
    rank_cores = tuple(lane.cores for lane in lanes if lane.cores is not None)
    all_have_some = len(rank_cores) == len(lanes)
    return Lane(
        device=lanes[0].device,
        cores=tuple(core for some in rank_cores for core in some) if all_have_some else None,
        devices=tuple(lane.device for lane in lanes),
        rank_cores=rank_cores if all_have_some else (),
        memory_bytes=lanes[0].memory_bytes,
    )


def _near(
    accelerators: dict[str, Accelerator], physical: tuple[PhysicalCore, ...]
) -> dict[str, tuple[PhysicalCore, ...]]:
    """The physical cores of each accelerator's NUMA node; all cores for each if the nodes are not known."""
    everywhere = {number for core in physical for number in core}
    near = {
        name: tuple(core for core in physical if set(core) <= set(accelerator.near_cores or everywhere))
        for name, accelerator in accelerators.items()
    }
    nodes = set(near.values())
    are_apart = sum(len(node) for node in nodes) == len(set().union(*nodes))
    if not are_apart or not all(nodes):  # nodes that overlap can't be right
        return dict.fromkeys(accelerators, physical)
    return near


def _share(near: dict[str, tuple[PhysicalCore, ...]]) -> dict[str, tuple[int, ...] | None]:
    """The logical cores of each accelerator. All are None if there are fewer physical cores than accelerators."""
    shares: dict[str, tuple[int, ...] | None] = {}
    for name, node in near.items():
        neighbours = [other for other, its in near.items() if its == node]
        share = len(node) // len(neighbours)
        start = neighbours.index(name) * share
        shares[name] = _logical(node[start : start + share])
    return shares if all(shares.values()) else dict.fromkeys(near)


def _logical(physical: Sequence[PhysicalCore]) -> tuple[int, ...]:
    return tuple(sorted(core for cores in physical for core in cores))
