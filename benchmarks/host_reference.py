"""Which fixed work of the host tells how fast it is for PyTorch: a step's host time over that work's, on unlike hosts.

    python benchmarks/host_reference.py measure -d cuda -o quiet.jsonl
    python benchmarks/host_reference.py measure -d cuda --noise -o noisy.jsonl
    python benchmarks/host_reference.py compare quiet.jsonl noisy.jsonl

`measure` takes steps of launch-bound models, and beside each step every reference work once. Times are from the call
to its return, with the device synchronised before. `--core` and `--noise` make other hosts of one machine: another
core, and busy processes on all other cores. `compare` prints, for the step's time, for the host's time and for both
over each reference work, how far the files differ by case: the mean of the absolute logarithms, and the cases within
5% and 10%.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from torch import nn

from torchzoo.case import Mode
from torchzoo.devices import device_of
from torchzoo.machine.limits import pin, usable_cores
from torchzoo.report import markdown
from torchzoo.zoo.catalog import find_models, load_model_class

CASES = (
    *("resnet18 eval", "mobilenet_v2 eval", "mnasnet1_0 train", "shufflenet_v2_x1_0 train", "phlippe_resnet train"),
    *("hf_Bert eval", "hf_T5 eval", "hf_DistilBert eval", "hf_Albert eval", "BERT_pytorch train", "nanogpt eval"),
    *("dcgan train", "LearningToPaint train", "timm_efficientnet eval", "squeezenet1_1 eval", "lennard_jones train"),
    *("soft_actor_critic train", "functorch_dp_cifar10 train"),
)
STEPS, LEAST_STEPS, LIMIT_S = 25, 5, 2.0
#: A step belongs to the comparison if the host drives it for more than this share of its time.
LAUNCH_BOUND = 0.6
BUSY = "x = bytearray(1 << 22)\nwhile True:\n    for i in range(0, 1 << 22, 64):\n        x[i] = 1"


class _Object:
    """Calls of methods, and attributes."""

    def __init__(self) -> None:
        self.kept: dict[int, int] = {}

    def outer(self, key: int, *values: int, **named: int) -> list[int]:
        self.kept[key] = len(values)
        return self.inner(len(named))

    def inner(self, count: int) -> list[int]:
        return [count, len(self.kept)]


def reference_works(device: torch.device) -> dict[str, Callable[[], Any]]:
    """Works that take about a millisecond each, by name."""
    one, on_cpu, on_meta = torch.ones(64, device=device), torch.ones(64), torch.ones(64, device="meta")
    layers = (nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU()) for _ in range(6))
    network, batch, called = nn.Sequential(*layers).to(device), torch.ones(4, 16, device=device), _Object()

    def loop() -> None:
        total = 0
        for number in range(20_000):
            total += number * number

    def repeat(times: int, action: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(times):
                action()

        return run

    def forward() -> None:
        with torch.no_grad():
            network(batch)

    def training() -> None:
        network(batch).sum().backward()
        network.zero_grad()

    return {
        "loop of plain Python": loop,
        "Python calls": repeat(1500, lambda: called.outer(3, 1, 2, named=4)),
        "small additions": repeat(150, lambda: torch.add(one, one)),
        "small additions on the CPU": repeat(300, lambda: torch.add(on_cpu, on_cpu)),
        "additions on meta": repeat(20, lambda: torch.add(on_meta, on_meta)),
        "allocations": repeat(300, lambda: torch.empty(1024, device=device)),
        "views": repeat(300, lambda: one.view(8, 8).t()),
        "forward of a small network": repeat(4, forward),
        "forward and backward of a small network": training,
    }


def _issued_s(action: Callable[[], Any], synchronize: Callable[[], None]) -> tuple[float, float]:
    """The seconds until the action returned, and until the device was done."""
    synchronize()
    began = time.perf_counter()
    action()
    returned = time.perf_counter()
    synchronize()
    return returned - began, time.perf_counter() - began


@contextlib.contextmanager
def _busy_neighbours(core: int) -> Iterator[None]:
    others = [other for other in usable_cores() if other != core]
    words = [["taskset", "-c", str(other), sys.executable, "-c", BUSY] for other in others]
    processes = [subprocess.Popen(one) for one in words]
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def measure(device: torch.device, core: int, path: Path) -> None:
    """Write a line for each case: the medians of its step's times, and of all works beside it."""
    synchronize, catalog, works = device_of(device).synchronize, find_models(), reference_works(device)
    for work in works.values():
        for _ in range(3):
            work()
    with path.open("w") as file:
        for case in CASES:
            name, mode = case.split()
            spec = catalog.spec(name)
            model = load_model_class(spec)(Mode(mode), device.type, spec.batch_size[Mode(mode)])
            for _ in range(4):
                model.measured_step()
            pin([core])
            line = {"case": case, **_times(model.measured_step, works, synchronize)}
            pin(ALL_CORES)
            print(json.dumps(line), file=file, flush=True)


ALL_CORES = usable_cores()


def _times(
    step: Callable[[], Any], works: dict[str, Callable[[], Any]], synchronize: Callable[[], None]
) -> dict[str, Any]:
    steps: list[tuple[float, float]] = []
    beside: dict[str, list[float]] = {name: [] for name in works}
    gc.collect()
    gc.disable()
    began = time.monotonic()
    while len(steps) < LEAST_STEPS or (len(steps) < STEPS and time.monotonic() - began < LIMIT_S):
        for name, work in works.items():
            beside[name].append(_issued_s(work, synchronize)[0])
        steps.append(_issued_s(step, synchronize))
    gc.enable()
    issued_s, took_s = (median(times) for times in zip(*steps, strict=True))
    return {
        "issued_s": issued_s,
        "took_s": took_s,
        "over": {
            name: median(one[0] / work for one, work in zip(steps, some, strict=True)) for name, some in beside.items()
        },
        "works_s": {name: median(some) for name, some in beside.items()},
    }


def compare(paths: Sequence[Path]) -> list[str]:
    """The table of how far the files agree, as lines of Markdown."""
    hosts = [{one["case"]: one for one in map(json.loads, path.read_text().splitlines())} for path in paths]
    cases = [case for case in hosts[0] if all(case in host for host in hosts)]
    bound = [case for case in cases if all(one[case]["issued_s"] > LAUNCH_BOUND * one[case]["took_s"] for one in hosts)]
    figures: dict[str, Callable[[Any], float]] = {
        "the step's time": lambda one: one["took_s"],
        "the host's time": lambda one: one["issued_s"],
        **{f"the host's time over: {name}": _over(name) for name in hosts[0][cases[0]]["over"]},
    }
    rows = []
    for name, figure in figures.items():
        apart = [
            abs(math.log(figure(a[case]) / figure(b[case])))
            for a, b in itertools.combinations(hosts, 2)
            for case in bound
        ]
        rows.append(
            (name, f"{fmean(apart):.1%}", *(f"{sum(x < y for x in apart)}" for y in (0.05, 0.1)), str(len(apart)))
        )
    return [*markdown.table(("figure", "differs by", "within 5%", "within 10%", "of"), rows)]


def _over(name: str) -> Callable[[Any], float]:
    return lambda one: float(one["over"][name])


def main(words: Sequence[str]) -> None:
    """Measure on this host, or compare files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    of_measure, of_compare = commands.add_parser("measure"), commands.add_parser("compare")
    of_measure.add_argument("-d", "--device", default="cpu", type=torch.device)
    of_measure.add_argument("--core", type=int, default=sorted(ALL_CORES)[len(ALL_CORES) // 2])
    of_measure.add_argument("--noise", action="store_true")
    of_measure.add_argument("-o", "--output", type=Path, required=True)
    of_compare.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args(words)
    if options.command == "compare":
        print(*compare(options.files), sep="\n")
        return
    with _busy_neighbours(options.core) if options.noise else contextlib.nullcontext():
        measure(options.device, options.core, options.output)


if __name__ == "__main__":
    main(sys.argv[1:])
