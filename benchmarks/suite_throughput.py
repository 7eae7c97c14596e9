"""What a suite-wide run costs beside one fresh process for each case, and whether the two measure the same.

    python benchmarks/suite_throughput.py resnet18 hf_Bert ... -d cuda -o /tmp/throughput
    python benchmarks/suite_throughput.py all -d cuda --devices 0,1 --skip-apart -o /tmp/two

(a) all cases in one `run.py MODEL ... -t train,eval --backend eager,inductor`; (b) the same cases one after the other,
each a fresh `run.py MODEL -t MODE --backend BACKEND --exclusive`; compile caches are cold in both. Printed: wall time a
case of each and their ratio; for steps bound by the device (the host has given it a step's work before 80% of its time
is over), how far the medians of (a) are from those of (b); in how many cases the intervals of the speedups meet;
and what bounds (a). Both runs are kept in the folder; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from torchzoo import stats
from torchzoo.record import Case, Measured, Record, Skipped
from torchzoo.report.summary import counts, where_time_went
from torchzoo.stats import CANDIDATE_VARIANT, EAGER_VARIANT, Estimate
from torchzoo.store import read_run

ROOT = Path(__file__).resolve().parent.parent
DEVICE_BOUND = 0.8


def timed_run(arguments: list[str], folder: Path) -> float:
    """Run `run.py` with its records in `folder`; returns its wall time, in seconds. What was run before is read."""
    note = folder.with_suffix(".seconds")
    if not note.exists():
        command = [sys.executable, str(ROOT / "run.py"), *arguments, "-o", str(folder)]
        began = time.perf_counter()
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        took_s = time.perf_counter() - began
        if done.returncode > 1:
            sys.exit(done.stderr)
        note.write_text(str(took_s))
    return float(note.read_text())


def run_apart(cases: list[Case], options: list[str], folder: Path) -> tuple[dict[Case, Record], float]:
    """Each case as one fresh command, one after the other: the records, and the sum of the wall times."""
    records, total_s = {}, 0.0
    for number, case in enumerate(cases):
        place = folder / f"{number:03d}"
        arguments = [case.model, "-d", case.device, "-t", case.mode, "--backend", str(case.backend), "--exclusive"]
        took_s = timed_run([*arguments, *options], place)
        total_s += took_s
        records.update({record.case: record for record in read_run(place).records})
        print(f"  apart {number + 1}/{len(cases)}: {case.label()} {took_s:.1f} s", file=sys.stderr, flush=True)
    return records, total_s


def medians(one: Measured, other: Measured) -> Iterator[tuple[str, Estimate, Estimate]]:
    """Latencies of both, of the variants that the device bounds in both."""
    for variant in (EAGER_VARIANT, CANDIDATE_VARIANT):
        if variant in one.variants and variant in other.variants:
            latencies = [stats.latency_s(measured.blocks, variant) for measured in (one, other)]
            if all(
                is_device_bound(measured, variant, latency)
                for measured, latency in zip((one, other), latencies, strict=True)
            ):
                yield variant, *latencies


def is_device_bound(measured: Measured, variant: str, latency: Estimate) -> bool:
    host_s = [run.host_s for run in measured.variants[variant].back_to_back if run.host_s is not None]
    return bool(host_s) and median(host_s) < DEVICE_BOUND * latency.value


def in_ms(latency: Estimate) -> str:
    return f"{1e3 * latency.value:.3f} ms [{1e3 * latency.low:.3f}, {1e3 * latency.high:.3f}]"


def agreement(together: dict[Case, Record], apart: dict[Case, Record]) -> Iterator[str]:
    ratios, meets = [], []
    for case, record in together.items():
        one, other = record.outcome, apart[case].outcome
        if type(one) is not type(other):
            yield f"DIFFERENT OUTCOMES of {case.label()}: {one} / {other}"
        if not isinstance(one, Measured) or not isinstance(other, Measured):
            continue
        for variant, a, b in medians(one, other):
            ratios.append(a.value / b.value)
            if abs(ratios[-1] - 1) > 0.02:
                yield f"  {case.label()}, {variant}: {in_ms(a)} together, {in_ms(b)} apart: {ratios[-1]:.3f}"
        if CANDIDATE_VARIANT in one.variants:
            a, b = stats.speedup(one.blocks), stats.speedup(other.blocks)
            meets.append(a.low <= b.high and b.low <= a.high)
            if not meets[-1]:
                yield (
                    f"  {case.label()}: speedup {a.value:.3f} [{a.low:.3f}, {a.high:.3f}] together, "
                    f"{b.value:.3f} [{b.low:.3f}, {b.high:.3f}] apart"
                )
    if ratios:
        within = sum(abs(ratio - 1) <= 0.02 for ratio in ratios)
        yield (
            f"medians of device-bound steps, together / apart: {within} of {len(ratios)} within 2%, "
            f"from {min(ratios):.4f} to {max(ratios):.4f}"
        )
    yield f"speedups: the intervals meet in {sum(meets)} of {len(meets)} cases"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("--devices", help="of (a): accelerators to spread the cases over, such as 0,1")
    parser.add_argument("-j", "--jobs", help="of (a)")
    parser.add_argument("--bs", help="of both: batch size, or smoke")
    parser.add_argument("--time-limit", default="3", help="of both: seconds of timing a case at most (default: 3)")
    parser.add_argument("--skip-apart", action="store_true", help="(a) alone, to see what bounds it")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    options = ["--time-limit", arguments.time_limit] + (["--bs", arguments.bs] if arguments.bs else [])
    spread = ["--devices", arguments.devices] if arguments.devices else []
    spread += ["--jobs", arguments.jobs] if arguments.jobs else []

    axes = ["-d", arguments.device, "-t", "train,eval", "--backend", "eager,inductor"]
    folder = arguments.output / "together"
    together_s = timed_run([*arguments.models, *axes, *options, *spread], folder)
    run = read_run(folder)
    records = {record.case: record for record in run.records if not isinstance(record.outcome, Skipped)}
    gpus = ", ".join(gpu["name"] for gpu in run.manifest.environment["gpus"])
    print(f"{gpus or run.manifest.environment['cpu']}, torch {run.manifest.environment['torch']}")
    print(f"together: {counts(run.manifest, run.records)}")
    print(f"together: {together_s:.0f} s, {together_s / len(records):.2f} s a case that ran")
    for line in where_time_went(run.manifest, run.records):
        print(f"  {line}")
    if arguments.skip_apart:
        return
    (arguments.output / "apart").mkdir(exist_ok=True)
    apart, apart_s = run_apart(list(records), options, arguments.output / "apart")
    print(f"apart: {apart_s:.0f} s, {apart_s / len(apart):.2f} s a case; {apart_s / together_s:.2f} times as long")
    for line in agreement(records, apart):
        print(line)


if __name__ == "__main__":
    main()
