"""Where the threads of a training step should run, so that every process gives the same figure.

    python benchmarks/placement.py -d cuda [MODEL ...] [--processes N] [--seconds S]

A training step on an accelerator has two threads: Python's own, which sleeps during the backward pass, and that of
PyTorch's autograd engine, which sleeps otherwise. On a virtual machine a core that sleeps is given away, and comes back
when the host of the machine has a place for it. There are four ways to place the two threads:

- `free`: the process may use all fast cores of the machine, and the system places its threads.
- `own`: each of the two threads keeps to a fast core of its own.
- `shared`: both keep to the same fast core, which so has something to do all the time.
- `awake`: as `own`, and a process of the lowest priority (SCHED_IDLE) keeps each of the two cores from sleeping.

Each model is measured by fresh processes. A process measures each way in turn, and the next process starts with another
way. It times eager and `torch.compile` in turns (A B B A), with a look at the host after each block. For each way the
table has the median time of both, how much processes differ in each time and in their ratio (standard deviation), and
in how many looks the host was slow.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median, stdev

import torch

from torchzoo import stats
from torchzoo.case import Mode
from torchzoo.machine.limits import pin_this_thread, usable_cores
from torchzoo.measure.case_rank import AutogradThread
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.host import SLOW, HostGate, in_this_thread, undisturbed_loop_s
from torchzoo.measure.latency import quiet_python, step_until_steady, steps_in, timed_step_s
from torchzoo.measure.variant import Variant
from torchzoo.record import Block
from torchzoo.zoo.catalog import find_models, load_model_class
from torchzoo.zoo.folders import CatalogError

WAYS = ("free", "own", "shared", "awake")
MODELS = ["resnet18", "squeezenet1_1", "phlippe_resnet"]
KEEP_AWAKE = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == int(sys.argv[2]):
    for _ in range(1_000_000):
        pass
"""


def variants_of(name: str, device: str) -> list[Variant]:
    """The training step of a model, eager and compiled, each of a model of its own."""
    spec = find_models().spec(name)
    found = []
    for variant in ("eager", "candidate"):
        model = load_model_class(spec)(Mode.TRAIN, device, spec.batch_size[Mode.TRAIN])
        if variant == "candidate":
            for network in model.networks().values():
                network.compile()
        found.append(Variant(name=variant, step=model.measured_step, select=lambda: None))
    return found


@contextlib.contextmanager
def placed(way: str, gate: HostGate) -> Iterator[None]:
    """Find fast cores, and place the threads of a step as this way has it."""
    gate.wait()
    cores = [gate.fast_cores[0]] * 2 if way == "shared" else gate.fast_cores[:2]
    if way != "free":
        for core, run in zip(cores, gate.threads, strict=True):
            run(partial(pin_this_thread, core))
    commands = [[sys.executable, "-c", KEEP_AWAKE, str(core), str(os.getpid())] for core in cores if way == "awake"]
    spinners = [subprocess.Popen(command) for command in commands]
    time.sleep(0.2)
    yield
    for spinner in spinners:
        spinner.kill()


def measure(name: str, device: str, ways: Sequence[str], seconds: float) -> dict[str, dict[str, float]]:
    """One process's figures, by way."""
    cores = usable_cores()
    undisturbed_s = undisturbed_loop_s(cores)
    os.sched_setaffinity(0, cores)
    variants = variants_of(name, device)
    clock = DeviceClock(torch.device(device))
    for variant in variants:
        for _ in range(5):
            variant.step()
    threads = (in_this_thread, AutogradThread(torch.device(device)))
    found = {}
    for way in ways:
        gate = HostGate(undisturbed_s, time.perf_counter_ns, cores, threads=threads)
        with placed(way, gate):
            blocks = timed_blocks(variants, clock, gate, seconds)
        found[way] = {
            "eager_s": stats.latency_s(blocks, "eager").value,
            "candidate_s": stats.latency_s(blocks, "candidate").value,
            "speedup": stats.speedup(blocks).value,
            "slow": sum(look_s > SLOW * undisturbed_s for look_s in gate.looks_s) / len(gate.looks_s),
        }
    return found


def timed_blocks(variants: Sequence[Variant], clock: DeviceClock, gate: HostGate, seconds: float) -> list[Block]:
    """Blocks of both variants in turns, with a look at the host after each."""
    steps = {one.name: steps_in(0.02, step_until_steady(one, clock).step_s) for one in variants}
    blocks = []
    with quiet_python():
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            for variant in (variants[i] for i in (0, 1, 1, 0)):
                samples_s = tuple(timed_step_s(variant.step, clock) for _ in range(steps[variant.name]))
                blocks.append(Block(variant.name, samples_s))
                gate.is_slow()
    return blocks


def in_a_process(name: str, device: str, ways: Sequence[str], seconds: float) -> dict[str, dict[str, float]]:
    command = [sys.executable, __file__, name, "-d", device, "--seconds", str(seconds), "--ways", *ways]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def cells(name: str, way: str, results: list[dict[str, float]]) -> list[str]:
    """A row of the table."""

    def values(key: str) -> list[float]:
        return [one[key] for one in results]

    def spread(key: str) -> str:
        return f"{100 * stdev(values(key)) / median(values(key)):.1f}%" if len(results) > 1 else "-"

    times = [f"{1e3 * median(values(key)):.2f} ms" for key in ("eager_s", "candidate_s")]
    spreads = [spread(key) for key in ("eager_s", "candidate_s", "speedup")]
    return [name, way, *times, f"{median(values('speedup')):.3f}x", *spreads, f"{100 * median(values('slow')):.0f}%"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help=f"(default: {' '.join(MODELS)})")
    parser.add_argument("-d", "--device", default="cuda")
    parser.add_argument("--processes", type=int, default=5, metavar="N", help="of each way (default: 5)")
    parser.add_argument(
        "--seconds", type=float, default=2.0, metavar="S", help="of timing for each way and process (default: 2)"
    )
    parser.add_argument("--ways", choices=WAYS, nargs="+", help=argparse.SUPPRESS)  # one process, in this order
    arguments = parser.parse_args()
    if arguments.ways is not None:
        print(json.dumps(measure(arguments.models[0], arguments.device, arguments.ways, arguments.seconds)))
        return
    try:
        names = find_models().select(arguments.models, [])
    except CatalogError as error:
        parser.error(str(error))
    print("| model | way | eager | compiled | speedup | processes differ: eager | compiled | speedup | slow looks |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in names:
        found = []
        for number in range(arguments.processes):
            first = number % len(WAYS)
            ways = WAYS[first:] + WAYS[:first]
            found.append(in_a_process(name, arguments.device, ways, arguments.seconds))
        for way in WAYS:
            print("|", " | ".join(cells(name, way, [one[way] for one in found])), "|", flush=True)


if __name__ == "__main__":
    main()
