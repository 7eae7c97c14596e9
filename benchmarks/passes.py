"""Whether the passes beside the timing disturb it: the same cases with all of them on and with none, in turns.

    python benchmarks/passes.py resnet18 hf_Bert -d cuda --rounds 5 -o /tmp/passes

Each round runs the cases once without and once with all passes (on and off swap places from round to round), each case
in a process of its own. Printed, per case and variant: the median over rounds of on / off with its interval, beside the
same of one run without passes over the next one, which is what processes differ by anyway; and how many of
the ratios' intervals hold 1, which is what passes that disturb nothing give in 95 of 100.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from torchzoo import stats
from torchzoo.case import Case
from torchzoo.record import Measured
from torchzoo.settings import Pass
from torchzoo.store import read_run

ROOT = Path(__file__).resolve().parent.parent
Latencies = dict[tuple[Case, str], float]


def latencies(options: list[str], folder: Path) -> Latencies:
    """Median step times of a fresh run, in seconds, by case and variant."""
    command = [sys.executable, str(ROOT / "run.py"), *options, "-q", "-o", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return {
        (record.case, variant): stats.latency_s(record.outcome.blocks, variant).value
        for record in read_run(folder).records
        if isinstance(record.outcome, Measured)
        for variant in record.outcome.variants
    }


def describe(ratios: list[float]) -> str:
    estimate = stats.median_estimate(ratios)
    return f"{estimate.value:.4f} [{estimate.low:.4f}, {estimate.high:.4f}] (at {100 * estimate.confidence:.0f}%)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("-t", "--mode", default="train,eval")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--bs", default="default")
    parser.add_argument("--time-limit", default="2")
    parser.add_argument("-j", "--jobs", default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path, required=True)
    asked = parser.parse_args()
    if asked.rounds < 2:
        parser.error("--rounds must be 2 at least: neighbouring rounds are compared")
    options = [*asked.models, "-d", asked.device, "-t", asked.mode, "--backend", asked.backend, "--bs", asked.bs]
    options += ["--time-limit", asked.time_limit, *(["-j", asked.jobs] if asked.jobs else [])]
    switches = [f"--{one.replace('_', '-')}" for one in Pass if one is not Pass.CHECK_ONLY]
    off: list[Latencies] = []
    on: list[Latencies] = []
    for number in range(asked.rounds):
        for with_passes in (False, True) if number % 2 == 0 else (True, False):
            folder = asked.output / f"{number}-{'on' if with_passes else 'off'}"
            (on if with_passes else off).append(latencies(options + (switches if with_passes else []), folder))
        print(f"round {number + 1} of {asked.rounds} is done", file=sys.stderr, flush=True)
    holds = 0
    for case, variant in off[0]:
        key = (case, variant)
        ratios = [with_passes[key] / without[key] for with_passes, without in zip(on, off, strict=True)]
        neighbours = [after[key] / before[key] for before, after in pairwise(off)]
        holds += not stats.median_estimate(ratios).excludes(1.0)
        print(f"{case.label()}, {variant}: on/off {describe(ratios)}; off/off {describe(neighbours)}")
    print(f"the interval of on/off holds 1 in {holds} of {len(off[0])}")


if __name__ == "__main__":
    main()
