"""A step beside itself: the speedup that the harness finds where there is none. It should be 1.

    python benchmarks/same_step.py [MODEL ...] [-d cpu|cuda] [-t MODE] [--processes N]

Eager's step stands on both sides, in turns as in a run. What one side alone pays for shows up, such as work of
the harness between the rounds. Each speedup is of a process of its own. Printed are the step's time, and the
geometric mean of the speedups with its interval over the processes. `verdicts.py` asks whether the interval of one
process holds 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from statistics import median

import torch

from torchzoo import stats
from torchzoo.analysis.means import geomean
from torchzoo.case import Mode
from torchzoo.devices import device_of
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.host import HostGate
from torchzoo.measure.latency import measure_latency, quiet_python, step_until_steady, steps_in
from torchzoo.measure.variant import Variant
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.settings import Settings
from torchzoo.zoo.catalog import find_models, load_model_class

MODELS = ("lennard_jones", "soft_actor_critic")
CHILD = "--this-process"


def beside_itself(name: str, device: str, mode: Mode) -> tuple[float, float]:
    """The speedup of a step over itself, and its time in seconds."""
    spec = find_models().spec(name)
    model = load_model_class(spec)(mode, device, spec.batch_size[mode])
    step = model.train_step if mode is Mode.TRAIN else model.eval_step
    clock, settings = DeviceClock(model.device), Settings()
    variants = [Variant(name=side, step=step, select=lambda: None) for side in (EAGER_VARIANT, CANDIDATE_VARIANT)]
    for _ in range(10):
        step()
    with quiet_python():
        steps = {
            variant.name: steps_in(settings.block_s, step_until_steady(variant, clock).step_s) for variant in variants
        }
        gate = HostGate(None, time.perf_counter_ns)
        blocks = measure_latency(variants, clock, gate, settings, steps_per_block=steps).blocks
    return stats.speedup(blocks).value, stats.latency_s(blocks, EAGER_VARIANT).value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("-t", "--mode", type=Mode, default=Mode.TRAIN)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument(CHILD, action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.this_process:
        print(json.dumps(beside_itself(arguments.models[0], arguments.device, arguments.mode)))
        return
    print(f"{device_of(torch.device(arguments.device)).name()}, torch {torch.__version__}")
    for name in arguments.models:
        found = []
        for _ in range(arguments.processes):
            command = [sys.executable, __file__, name, "-d", arguments.device, "-t", arguments.mode, CHILD]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
        mean = geomean([[speedup] for speedup, _ in found])
        step_s = median(step_s for _, step_s in found)
        print(
            f"{name} {arguments.mode}, {1e3 * step_s:.3g} ms: {mean.value:.4f} [{mean.low:.4f}, {mean.high:.4f}]",
            flush=True,
        )


if __name__ == "__main__":
    main()
