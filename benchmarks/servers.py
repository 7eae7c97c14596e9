"""Are processes that are forked from one server independent of each other?

    python benchmarks/servers.py lennard_jones
    python benchmarks/servers.py lennard_jones drq --servers 10 --forks 12

A fork has the addresses of the process that it was forked from. Several servers import torch and a model. In turns,
each forks a process that times the model's eager step in evaluation on one core. If the processes were independent, the
means of the servers would differ by no more than the processes of one server lead one to expect: F, the variance
between servers over that within them, would be near 1. The last figures of a line are each server's mean.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from functools import partial

#: How many medians the median of a process is taken of, and how long it steps before, in seconds.
BLOCKS, WARM_UP_S = 8, 0.3


def serve(name: str) -> None:
    """Be a server: for each line of standard input, print what a step took in a process forked from this one."""
    import torch

    from torchzoo.zoo.catalog import find_models, load_model_class

    torch.set_num_threads(1)
    spec = find_models().spec(name)
    build = partial(load_model_class(spec), "eval", "cpu", spec.smoke_batch_size)
    build().measured_step()
    gc.collect()
    gc.freeze()
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            print(median_step_s(build().measured_step), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


def median_step_s(step: Callable[[], object]) -> float:
    """The median of the blocks' medians, in seconds."""
    steps, until_s = 0, time.perf_counter() + WARM_UP_S
    while time.perf_counter() < until_s:
        step()
        steps += 1
    per_block = max(5, steps // BLOCKS)
    return statistics.median(statistics.median(timeit.repeat(step, number=1, repeat=per_block)) for _ in range(BLOCKS))


def log_latencies(model: str, servers: int, forks: int) -> list[list[float]]:
    """For each server the logarithms of its processes' medians, in seconds."""
    running = [
        subprocess.Popen(
            [sys.executable, __file__, "--serve", model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(servers)
    ]
    found: list[list[float]] = [[] for _ in running]
    for turn in range(forks):
        for number in range(servers) if turn % 2 == 0 else reversed(range(servers)):
            asked, answers = running[number].stdin, running[number].stdout
            assert asked is not None
            assert answers is not None
            asked.write("\n")
            asked.flush()
            found[number].append(math.log(float(answers.readline())))
    for server in running:
        server.kill()
        server.wait()
    return found


def line(model: str, found: list[list[float]]) -> str:
    """What speed the whole turn had is taken out first: the machine's drift is no difference between servers."""
    servers, forks = len(found), len(found[0])
    turns = [statistics.mean(turn) for turn in zip(*found, strict=True)]
    left = [[value - turn for value, turn in zip(values, turns, strict=True)] for values in found]
    within = statistics.mean(map(statistics.variance, left)) * servers / (servers - 1)
    between = forks * statistics.variance(map(statistics.mean, left))
    means = ", ".join(f"{1e6 * math.exp(statistics.mean(values)):.0f}" for values in found)
    return f"{model}: F {between / within:.2f}, within a server {100 * math.sqrt(within):.1f}%; {means} µs"


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="small models of the zoo, whose steps are bound by Python")
    parser.add_argument("--servers", type=int, default=8)
    parser.add_argument("--forks", type=int, default=10, help="processes of each server")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.models)
        return
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for model in arguments.models:
        print(line(model, log_latencies(model, arguments.servers, arguments.forks)), flush=True)


if __name__ == "__main__":
    main()
