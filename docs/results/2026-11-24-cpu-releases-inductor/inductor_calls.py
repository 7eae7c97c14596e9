"""Where lennard_jones's evaluation with inductor lost its microseconds between torch 2.14.1 and 2.15.0.

    PYTHONPATH=.:models PYTHON_OF_A_RELEASE inductor_calls.py

Prints a line: the release; the step's median in us, as it is, and where the two functions that the compiled bytecode
calls for the profiler do nothing; a call of `_reinterpret_tensor` and the pair of profiler functions, in us.
"""
# ruff: noqa: INP001

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from lennard_jones.network import Config, EnergyAndForce
from torch._C._dynamo.guards import _reinterpret_tensor
from torch._dynamo import utils

torch.set_num_threads(1)
network = EnergyAndForce(Config()).eval()
positions = torch.randn(4, 3)
compiled = torch.compile(network)


@torch.no_grad()
def step() -> object:
    """One evaluation."""
    return compiled(positions)


def median_us(call: Callable[[], object], calls: int = 5000) -> float:
    """The median of calls that are timed one by one."""
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1000


def mean_us(call: Callable[[], object], calls: int = 50000) -> float:
    """The least of seven loops: a call that is too short for a clock of its own."""
    loops = []
    for _ in range(7):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        loops.append((time.perf_counter_ns() - start) / calls)
    return min(loops) / 1000


def profiler_pair() -> None:
    """What the compiled bytecode of 2.14 and before calls in each step."""
    utils.record_pregraph_bytecode_exit(utils.record_pregraph_bytecode_enter())


for _ in range(100):
    step()
enter, leave = utils.record_pregraph_bytecode_enter, utils.record_pregraph_bytecode_exit
as_is, without = [], []
for _ in range(5):
    as_is.append(median_us(step))
    utils.record_pregraph_bytecode_enter, utils.record_pregraph_bytecode_exit = lambda: None, lambda _: None
    without.append(median_us(step))
    utils.record_pregraph_bytecode_enter, utils.record_pregraph_bytecode_exit = enter, leave
data = torch.randn(4, 3, 16)
reinterpreted = mean_us(lambda: _reinterpret_tensor(data, (12, 16), (16, 1), 0))
print(
    f"{torch.__version__}  step {statistics.median(as_is):.1f}  without {statistics.median(without):.1f}  "
    f"reinterpret {reinterpreted:.3f}  pair {mean_us(profiler_pair, 20000):.2f}"
)
