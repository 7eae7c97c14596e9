"""Whether the speedup's interval can be trusted: eager against itself, and against itself with 3% planted.

    python benchmarks/verdicts.py [-d cpu|cuda] [--trials N] [--limit S]

Each trial builds a small model with its own seed and measures it as `torchzoo run` does. In an A/A trial the candidate
is the same eager step, and the 95% interval should hold 1.0; in a planted trial the candidate also waits for 3% of the
step's time, and the interval should exclude 1.0. Prints both counts, by the reason for stopping.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchzoo import stats
from torchzoo.devices import device_of
from torchzoo.machine.facts import host_loop_s
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.host import HostGate
from torchzoo.measure.latency import measure_latency, quiet_python, steps_in, timed_step_s
from torchzoo.measure.variant import Variant
from torchzoo.model.tasks import Batch, SupervisedModel
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.settings import Settings

PLANTED = 0.03


class SmallModel(SupervisedModel):
    """An MLP whose eval step takes some milliseconds on a CPU core at a batch of 256, one on an H200 at 16384."""

    def build_network(self) -> nn.Module:
        return nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(8)))

    def build_batch(self) -> Batch:
        return Batch((self.data.normal(self.batch_size, 512),))

    def compute_loss(self, outputs: Any, targets: Any) -> torch.Tensor:
        raise NotImplementedError


def slowed(step: Callable[[], Any], clock: DeviceClock, wait_s: float) -> Callable[[], Any]:
    """The step, then a wait of `wait_s` once the device is done."""

    def slow_step() -> None:
        step()
        clock.synchronize()
        end_ns = time.perf_counter_ns() + wait_s * 1e9
        while time.perf_counter_ns() < end_ns:
            pass

    return slow_step


def trial(
    device: str, seed: int, settings: Settings, undisturbed_s: float, *, planted: bool
) -> tuple[stats.Estimate, str, float]:
    model = SmallModel("eval", device, 256 if device == "cpu" else 16384, seed=seed)
    step = model.eval_step
    clock = DeviceClock(model.device)
    began = time.perf_counter()
    times_s = sorted(timed_step_s(step, clock) for _ in range(15))
    step_s = times_s[len(times_s) // 2]
    other = slowed(step, clock, PLANTED * step_s) if planted else step
    variants = [
        Variant(name=EAGER_VARIANT, step=step, select=lambda: None),
        Variant(name=CANDIDATE_VARIANT, step=other, select=lambda: None),
    ]
    gate = HostGate(undisturbed_s, time.perf_counter_ns)
    gate.wait()
    with quiet_python():
        latency = measure_latency(
            variants,
            clock,
            gate,
            settings,
            steps_per_block=dict.fromkeys((v.name for v in variants), steps_in(settings.block_s, step_s)),
        )
    return stats.speedup(latency.blocks), latency.stop_reason, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--limit", type=float, default=4.5, help="seconds of measuring a trial may take")
    arguments = parser.parse_args()
    settings = Settings(time_limit_s=arguments.limit)
    undisturbed_s = host_loop_s(loops=300)
    print(
        f"{device_of(torch.device(arguments.device)).name()}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads"
    )
    for planted in (False, True):
        right: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        longest_s, widths = 0.0, []
        for seed in range(arguments.trials):
            speedup, reason, took_s = trial(arguments.device, seed, settings, undisturbed_s, planted=planted)
            reasons[reason] += 1
            right[reason] += speedup.excludes(1.0) == planted
            longest_s = max(longest_s, took_s)
            widths.append(speedup.relative_half_width)
        what = "3% planted: the interval excludes 1.0 in" if planted else "A/A: the interval holds 1.0 in"
        by_reason = ", ".join(f"{right[reason]} of {count} {reason}" for reason, count in reasons.items())
        print(
            f"{what} {right.total()} of {arguments.trials} trials ({by_reason}); "
            f"median half-width {100 * stats.median_estimate(widths).value:.2f}%, longest trial {longest_s:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
