"""What the harness costs: per step, against a hand-written loop; per process, against what measuring needs anyway.

    python benchmarks/overhead.py [-d cpu|cuda] [--rounds N] [--processes N]

Per step: ResNet-18's train and eval steps written out by hand on the same network, batch and optimizer, in a bare loop
that synchronises around each step, against the harness's own blocks; in turns A B B A, as ratios. `reported` is what
the harness says a step takes, `wall` is what a step costs it with all its bookkeeping.
Per process (`--processes` pairs, in turns): `python run.py resnet18 -t eval` against a bare script that imports torch
and torchvision, builds the model and runs as many steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from torchzoo import stats
from torchzoo.case import Mode
from torchzoo.devices import device_of
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.host import HostGate
from torchzoo.measure.latency import measure_latency, quiet_python, steps_in, timed_step_s
from torchzoo.measure.variant import Variant
from torchzoo.settings import Settings
from torchzoo.zoo.catalog import find_models, load_model_class

ROOT = Path(__file__).resolve().parent.parent


def by_hand(model: Any, mode: str) -> Callable[[], Any]:
    """The step as anyone would write it, without torchzoo."""
    network, (images,), labels = model.network, model.batch.inputs, model.batch.targets

    def train() -> Any:
        model.optimizer.zero_grad()
        loss = F.cross_entropy(network(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        model.optimizer.step()
        return loss.detach()

    def evaluate() -> Any:
        with torch.no_grad():
            return network(images)

    return train if mode == "train" else evaluate


def per_step(device: str, mode: str, rounds: int) -> dict[str, stats.Estimate]:
    spec = find_models().spec("resnet18")
    model = load_model_class(spec)(mode, device, spec.batch_size[Mode(mode)])
    bare_step = by_hand(model, mode)
    step = model.train_step if mode == "train" else model.eval_step
    clock = DeviceClock(model.device)
    for _ in range(5):
        step()
    step_s = min(timed_step_s(step, clock) for _ in range(5))
    steps = max(2, steps_in(0.1, step_s))
    once = Settings(time_limit_s=1e-9)
    variant = Variant(name="eager", step=step, select=lambda: None)
    gate = HostGate(None, time.perf_counter_ns)

    def bare() -> tuple[float, float]:
        began = time.perf_counter()
        for _ in range(steps):
            bare_step()
            clock.synchronize()
        per_step_s = (time.perf_counter() - began) / steps
        return per_step_s, per_step_s

    def harness() -> tuple[float, float]:
        began = time.perf_counter()
        blocks = measure_latency([variant], clock, gate, once, steps_per_block={variant.name: steps}).blocks
        wall_s = (time.perf_counter() - began) / (len(blocks) * steps)
        return stats.latency_s(blocks, "eager").value, wall_s

    ratios: dict[str, list[float]] = {"reported": [], "wall": []}
    with quiet_python():
        for _ in range(rounds):
            a1, b1, b2, a2 = bare(), harness(), harness(), bare()
            for index, name in enumerate(ratios):
                ratios[name].append((b1[index] + b2[index]) / (a1[index] + a2[index]))
    return {name: stats.median_estimate(values) for name, values in ratios.items()}


BARE_PROCESS = """
import sys, time
import torch, torchvision
device, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
with torch.device(device):
    network = torchvision.models.resnet18().eval()
    images = torch.randn(8, 3, 224, 224)
synchronize = torch.get_device_module(device).synchronize if device != "cpu" else lambda: None
with torch.no_grad():
    for _ in range(steps):
        network(images)
        synchronize()
"""


def steps_of(record: dict[str, Any]) -> int:
    """All eval steps a run took: first, warm-up, memory, inspection, timed, back-to-back."""
    variant = record["outcome"]["variants"]["eager"]
    timed = sum(len(samples) for _, samples, *_ in record["outcome"]["blocks"])
    runs = variant["back_to_back"]
    extra = sum(run[0] for run in runs if run[2] is not None)  # on the CPU those are the timed ones
    return 1 + len(variant["warmup_s"]) + 3 + 1 + timed + extra


def per_process(device: str, pairs: int) -> stats.Estimate:
    ratios = []
    for index in range(pairs):
        command = [sys.executable, str(ROOT / "run.py"), "resnet18", "-d", device, "-t", "eval", "--json"]
        began = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        harness_s = time.perf_counter() - began
        steps = steps_of(json.loads(done.stdout))
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", BARE_PROCESS, device, str(steps)], check=True)
        bare_s = time.perf_counter() - began
        ratios.append(harness_s / bare_s)
        print(f"  pair {index + 1}: run.py {harness_s:.2f} s, bare {bare_s:.2f} s ({steps} steps)", flush=True)
    return stats.median_estimate(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--processes", type=int, default=7)
    arguments = parser.parse_args()
    print(f"{device_of(torch.device(arguments.device)).name()}, torch {torch.__version__}")
    for mode in ("train", "eval"):
        for name, e in per_step(arguments.device, mode, arguments.rounds).items():
            print(f"resnet18 {mode}, harness / by hand, {name}: {e.value:.4f} [{e.low:.4f}, {e.high:.4f}]", flush=True)
    if arguments.processes:
        e = per_process(arguments.device, arguments.processes)
        print(f"resnet18 eval, run.py / bare process: {e.value:.3f} [{e.low:.3f}, {e.high:.3f}] ({e.confidence:.0%})")


if __name__ == "__main__":
    main()
