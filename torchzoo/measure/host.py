"""Wait for a fast host: steps are timed while the host is as fast as it can be.

Steps that wait for the host take longer while its cores are slow, since another process on this machine, or on another
virtual machine of the same hardware, shares hyperthreads, caches or the clock. A loop of plain Python measures how fast
a core is, and the start of the run how fast it can be. On a virtual machine some cores are often slow while others are
fast. So the gate also chooses the cores.

Two threads drive a training step on an accelerator, one after the other: Python's own, and PyTorch's for the backward
pass. Each sleeps while the other works, and the loop runs in both. A virtual core that sleeps is given to other
machines, and comes back late and slow. So both threads are pinned to one core, which is never idle. Times of processes
then differ by half as much (docs/results/2026-11-25-h100-x2-placement.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torchzoo.machine.facts import host_loop_s
from torchzoo.machine.limits import pin, pin_this_thread

#: A core is slow if its loop takes more than this times as long as undisturbed. On cores that nobody shares, the loop
#: takes 1.0 to 1.15 times as long, on others 1.5 to 2 times.
SLOW = 1.3
#: The host matters to a step if it drives the step for more than this share of its time. Otherwise the device is still
#: at work when the host is done, even if the host is twice as slow.
MATTERS = 0.5
#: A window waits no longer than this for the host.
WAIT_S = 2.0
#: A step needs at least so many fast cores: for Python, for autograd, and for all other threads.
LEAST_CORES = 3
#: Where cores can't be chosen, the host is fast when so many looks in a row find no slow core.
LOOKS = 10

#: Run a function in a certain thread, and return its result.
RunIn = Callable[[Callable[[], Any]], Any]


def two_loops_s() -> float:
    """Return the time of the faster of two loops, so that a single interrupt is no slow host."""
    return host_loop_s(loops=2)


def undisturbed_loop_s(cores: Sequence[int]) -> float:
    """Return the seconds of the host's loop on an undisturbed one of these cores. This thread is moved to each core.

    The figure is the tenth percentile of loops on all cores: some of the cores may be disturbed, and a few loops are
    very fast.
    """
    looks_s = []
    for _ in range(5):
        for core in cores:
            pin_this_thread(core)
            looks_s += [host_loop_s(loops=1) for _ in range(3)]
    return sorted(looks_s)[len(looks_s) // 10]


def in_this_thread(do: Callable[[], Any]) -> Any:
    """Run a function in the thread of the caller."""
    return do()


@dataclass
class HostGate:
    """Measure the host's speed before, between and after timed blocks, and pin this process to fast cores.

    Args:
        undisturbed_s: the loop's time on an undisturbed core; with None the host is never slow.
        now_ns: the clock.
        cores: the cores to choose from; with None the process stays on all its cores.
        look_s: runs the loop in the thread of the caller, and returns how long it took.
        threads: the threads that drive a step. The host is as slow as in the slowest of them.
        pin_thread: pins the thread of the caller to one core.
        pin_all: pins all threads of this process to some cores.
        matters: whether the steps wait for the host at all. If not, the host is never slow.
        least_cores: how many cores the process keeps at least, fast or slow.
        one_core: whether the threads that drive a step are pinned to one of these cores, until `release`.
    """

    undisturbed_s: float | None
    now_ns: Callable[[], int]
    cores: Sequence[int] | None = None
    look_s: Callable[[], float] = two_loops_s
    threads: Sequence[RunIn] = (in_this_thread,)
    pin_thread: Callable[[int], None] = pin_this_thread
    pin_all: Callable[[Iterable[int]], None] = pin
    matters: bool = True
    least_cores: int = LEAST_CORES
    one_core: bool = False
    waited_s: float = 0.0
    looks_s: list[float] = field(default_factory=list)  # times of the loop around timed blocks and runs, in order
    fast_cores: tuple[int, ...] = ()  # to which the process was pinned last; empty: all its cores

    def slowest_look_s(self) -> float:
        """Return how long the loop takes now in the slowest of the threads."""
        return float(max(run(self.look_s) for run in self.threads))

    def is_slow(self) -> bool:
        """Run the loop in each of the threads, and return whether it was slow in one of them."""
        took_s = self.slowest_look_s()
        self.looks_s.append(took_s)
        return self._is_slow(took_s)

    def wait(self, limit_s: float = WAIT_S) -> bool:
        """Find fast cores and pin the process to them, or wait for them up to `limit_s`. Return whether they are fast.

        If there are too few fast cores in the end, the process is pinned to the fastest ones.
        """
        began = self.now_ns()
        look = self._all_looks_are_fast if self.cores is None or self.undisturbed_s is None else self._finds_fast_cores
        while not (is_fast := look()) and (self.now_ns() - began) / 1e9 < limit_s:
            pass
        self.waited_s += (self.now_ns() - began) / 1e9
        return is_fast

    def release(self) -> None:
        """Let the threads that drive a step, or a process that one of them forked, use all of `fast_cores`."""
        if self.one_core and self.fast_cores:
            self.pin_all(self.fast_cores)

    def _is_slow(self, took_s: float) -> bool:
        return self.matters and self.undisturbed_s is not None and took_s > SLOW * self.undisturbed_s

    def _all_looks_are_fast(self) -> bool:
        return not any(self._is_slow(self.slowest_look_s()) for _ in range(LOOKS))

    def _finds_fast_cores(self) -> bool:
        assert self.cores is not None
        took_s = {}
        for core in self.cores:
            self.pin_thread(core)
            took_s[core] = self.look_s()
        fast = [core for core in self.cores if not self._is_slow(took_s[core])]
        least = min(self.least_cores, len(self.cores))
        is_enough = len(fast) >= least
        self.fast_cores = tuple(fast if is_enough else sorted(self.cores, key=took_s.__getitem__)[:least])
        self.pin_all(self.fast_cores)
        if self.one_core:
            fastest = min(self.fast_cores, key=took_s.__getitem__)
            for run in self.threads:
                run(partial(self.pin_thread, fastest))
        return is_enough
