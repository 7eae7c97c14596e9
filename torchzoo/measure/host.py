"""A gate for the host, as `idle` is one for the device: steps are timed while the host is as fast as it can be.

Steps that wait for the host take longer while its cores are slow: when hyperthreads, caches or the clock are shared
with another process, of this machine or of a neighbour on the same hardware. How fast the host is, a loop of plain
Python tells; how fast it can be is known from the start of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torchzoo.environment import host_loop_s

#: The host is slow if its loop takes more than this times as long as undisturbed.
SLOW = 1.1
#: A window waits no longer than this for the host.
WAIT_S = 5.0
#: While it waits, it looks so many times in a row, and goes on when the host was fast each time.
LOOKS = 10


def two_loops_s() -> float:
    """The faster of two loops: a single interrupt is not a slow host."""
    return host_loop_s(loops=2)


@dataclass
class HostGate:
    """Looks at the host's speed before, between and after timed blocks.

    Args:
        undisturbed_s: the loop's time on the undisturbed host; None if it is not known: then the host is never slow.
        now_ns: the clock.
        look_s: runs the loop, and returns how long it took.
    """

    undisturbed_s: float | None
    now_ns: Callable[[], int]
    look_s: Callable[[], float] = two_loops_s
    waited_s: float = 0.0
    looks_s: list[float] = field(default_factory=list)  # all that were made beside the timing, in their order

    def is_slow(self) -> bool:
        """Look once."""
        took_s = self.look_s()
        self.looks_s.append(took_s)
        if self.undisturbed_s is None:
            return False
        self.undisturbed_s = min(self.undisturbed_s, took_s)  # the run may have begun on a slow host
        return took_s > SLOW * self.undisturbed_s

    def wait(self, limit_s: float = WAIT_S) -> bool:
        """Wait until the host is fast, `LOOKS` times in a row, or for `limit_s`. Returns whether it is fast."""
        began = self.now_ns()
        in_a_row = 0
        while in_a_row < LOOKS:
            in_a_row = 0 if self.is_slow() else in_a_row + 1
            if in_a_row == 0 and (self.now_ns() - began) / 1e9 >= limit_s:
                break
        self.waited_s += (self.now_ns() - began) / 1e9
        return in_a_row == LOOKS
