"""All ranks of a case look at the host: the slowest one decides."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from threading import Thread

import pytest
from fake_clock import FakeClock

from torchzoo.measure.case_rank import CaseRank
from torchzoo.measure.case_ranks import CaseRanks, Line, follow
from torchzoo.measure.host import HostGate

LOOP_S = 0.001


def rank_on(cores: Sequence[int], slow: Sequence[int]) -> CaseRank:
    """A rank of which only the gate is there: for these cores, some of which are slow."""
    clock, here = FakeClock(), [cores[0]]

    def look_s() -> float:
        took_s = LOOP_S * (2.0 if here[0] in slow else 1.0)
        clock.time_ns += round(took_s * 1e9)
        return took_s

    made = object.__new__(CaseRank)
    made.gate = HostGate(
        LOOP_S,
        clock.now_ns,
        cores,
        look_s=look_s,
        pin_thread=lambda core: here.__setitem__(0, core),
        pin_all=lambda kept: here.__setitem__(0, min(kept)),
    )
    return made


@contextlib.contextmanager
def ranks_of(first: CaseRank, other: CaseRank) -> Iterator[CaseRanks]:
    ours, theirs = Pipe()
    rank = Thread(target=follow, args=(other, Line(theirs)))
    rank.start()
    try:
        yield CaseRanks(first, [Line(ours)])
    finally:
        ours.close()
        rank.join()


@pytest.mark.parametrize("slow", [(), (0, 1, 2, 3), (4, 5, 6, 7)], ids=["none", "first", "other"])
def test_a_host_that_is_slow_for_one_rank_is_slow_for_all(slow: Sequence[int]) -> None:
    with ranks_of(rank_on(range(4), slow), rank_on(range(4, 8), slow)) as ranks:
        gate = ranks.gate
        assert gate.is_slow() is bool(slow)
        assert gate.looks_s == [LOOP_S * (2.0 if slow else 1.0)]
        gate.matters = False
        assert not gate.is_slow()


def test_each_rank_keeps_to_its_own_fast_cores() -> None:
    with ranks_of(rank_on(range(4), [0]), rank_on(range(4, 8), [7])) as ranks:
        gate = ranks.gate
        assert gate.wait()
        assert gate.fast_cores == (1, 2, 3, 4, 5, 6)
        assert not gate.is_slow()


def test_all_wait_until_the_host_is_fast_for_each_rank_or_does_not_matter() -> None:
    with ranks_of(rank_on(range(4), []), rank_on(range(4, 8), [4, 5])) as ranks:
        gate = ranks.gate
        assert not gate.wait(limit_s=0.1)
        gate.matters = False
        assert gate.wait()
        assert gate.fast_cores == tuple(range(8))
