"""Lanes: the devices asked for, and the cores that each has to itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples import ENVIRONMENT
from torchzoo.machine.facts import Accelerator, MachineInfo
from torchzoo.machine.limits import physical_cores
from torchzoo.run.lanes import Lane, make_lanes, make_rank_lanes, split_cores
from torchzoo.run.resources import lanes_for
from torchzoo.settings import Settings


def singles(count: int) -> list[tuple[int, ...]]:
    """So many physical cores of one logical core each."""
    return [(core,) for core in range(count)]


def test_a_bare_accelerator_is_spread_over_the_devices_asked_for() -> None:
    both = [Accelerator(memory_bytes=80), Accelerator(memory_bytes=90)]
    lanes = make_lanes(["cuda"], (0, 1), both, physical=singles(6))
    assert [(lane.device, lane.memory_bytes, lane.cores) for lane in lanes] == [
        ("cuda:0", 80, (1, 2)),
        ("cuda:1", 90, (3, 4)),
    ]
    (one,) = make_lanes(["cuda"], None, both, physical=singles(4))
    assert (one.device, one.cores) == ("cuda:0", (1, 2, 3))  # core 0 is the runner's
    cpu, gpu = make_lanes(["cpu", "cuda:1"], None, both, physical=singles(4), cpu_jobs=2)
    assert cpu.shares_cores(gpu)
    assert (cpu.jobs, gpu.memory_bytes) == (2, 90)


def test_what_is_left_of_a_run_on_cpu_and_gpu_has_the_cpu_lane_of_the_whole_run() -> None:
    gpu = Accelerator(memory_bytes=80)
    machine = MachineInfo(
        devices={"cpu": 1, "cuda": 1}, dynamo_backends=(), environment=ENVIRONMENT, accelerators=(gpu,)
    )
    settings = Settings(jobs=64)  # of cases on the GPU: they compile with a thread each, and the CPU's use all cores
    whole = lanes_for(["cpu", "cuda"], None, settings, machine)
    (left,) = lanes_for(["cpu"], None, settings, machine, of_run=["cpu", "cuda"])
    (alone,) = lanes_for(["cpu"], None, settings, machine)
    assert left == whole[0]
    assert (left.jobs, alone.jobs) == (1, 64)


def test_no_two_lanes_and_not_the_runner_share_a_physical_core() -> None:
    physical = [(core, core + 8) for core in range(8)]
    runners, for_lanes = split_cores(physical)
    assert runners == (0, 8)
    lanes = make_lanes(["cuda"], (0, 1, 2), [], physical=physical)
    assert [lane.cores for lane in lanes] == [(1, 2, 9, 10), (3, 4, 11, 12), (5, 6, 13, 14)]
    assert {core for lane in lanes for core in lane.cores or ()} <= {core for pair in for_lanes for core in pair}
    assert split_cores(singles(3)) == (None, tuple(singles(3)))


def test_each_rank_has_the_cores_of_its_own_device() -> None:
    """Eight GPUs on two nodes of 32 physical cores. The runner's core is one of the first node."""
    physical = [(core, core + 64) for core in range(64)]
    nodes = [tuple(core for pair in half for core in pair) for half in (physical[:32], physical[32:])]
    gpus = [Accelerator(memory_bytes=80, near_cores=nodes[number // 4]) for number in range(8)]
    alone = make_lanes(["cuda"], tuple(range(8)), gpus, physical=physical)
    (lane_of_ranks,) = make_rank_lanes([8], ["cuda"], None, gpus, physical=physical)
    shares = [lane_of_ranks.cores_of(rank) for rank in range(8)]
    assert shares == [lane.cores_of(0) for lane in alone]
    for rank, share in enumerate(shares):
        assert share is not None
        assert set(share) <= set(nodes[rank // 4])
        assert {core % 64 for core in share if core < 64} == {core % 64 for core in share if core >= 64}  # whole cores


@pytest.mark.parametrize(
    ("physical", "world", "shares"),
    [
        ([(0, 4), (1, 5), (2, 6), (3, 7)], 2, [(0, 1, 4, 5), (2, 3, 6, 7)]),
        (singles(5), 2, [(0, 1), (2, 3)]),  # as many for each: the slowest rank decides
        (singles(2), 3, [(0,), (1,), (0,)]),  # too few
    ],
)
def test_ranks_on_the_cpu_divide_its_physical_cores(
    physical: list[tuple[int, ...]], world: int, shares: list[tuple[int, ...]]
) -> None:
    (lane,) = make_rank_lanes([world], ["cpu"], None, [], physical=physical)
    assert [lane.cores_of(rank) for rank in range(world)] == shares
    assert lane.shares_cores(Lane(device="cuda:0", cores=(99,)))  # no other window is open beside it


def test_the_system_tells_which_hyperthreads_share_a_core(tmp_path: Path) -> None:
    for core in range(4):
        folder = tmp_path / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 2},{core % 2 + 2}\n")
    assert physical_cores(range(4), tmp_path) == ((0, 2), (1, 3))
    assert physical_cores((1, 2), tmp_path) == ((1,), (2,))
    assert physical_cores((7, 8), tmp_path) == ((7,), (8,))  # not told


@pytest.mark.parametrize(
    ("near", "cores"),
    [
        ([(5, 6, 7, 8), (1, 2, 3, 4)], [(5, 6, 7, 8), (1, 2, 3, 4)]),  # a node each
        ([(1, 2, 3, 4), (1, 2, 3, 4)], [(1, 2), (3, 4)]),  # one node for both
        ([None, None], [(1, 2, 3, 4), (5, 6, 7, 8)]),  # not known
        ([(1, 2, 3, 4, 5), (5, 6, 7, 8)], [(1, 2, 3, 4), (5, 6, 7, 8)]),  # nodes that overlap say nothing
        ([(9, 10), (0, 1)], [(1, 2, 3, 4), (5, 6, 7, 8)]),  # a node this process may not use
    ],
)
def test_devices_get_the_cores_of_their_numa_node(near: list[Any], cores: list[tuple[int, ...]]) -> None:
    lanes = make_lanes(["cuda"], (0, 1), [Accelerator(near_cores=one) for one in near], physical=singles(9))
    assert [lane.cores for lane in lanes] == cores
    are_known = near in ([(5, 6, 7, 8), (1, 2, 3, 4)], [(1, 2, 3, 4)] * 2)
    assert [lane.near_cores for lane in lanes] == (near if are_known else [None, None])


def test_fewer_cores_than_devices_are_shared() -> None:
    lanes = make_lanes(["cuda"], (0, 1), [], physical=singles(1))
    assert [lane.cores for lane in lanes] == [None, None]
    assert lanes[0].shares_cores(lanes[1])
