"""What a suite-wide run costs beside one fresh process for each case, and whether the two measure the same.

    python benchmarks/suite_throughput.py resnet18 hf_Bert ... -d cuda -o /tmp/throughput
    python benchmarks/suite_throughput.py all -d cuda --devices 0,1 --skip-apart -o /tmp/two

(a) all cases in one `run.py MODEL ... -t train,eval --backend inductor`; (b) the same cases one after the other,
each a fresh `run.py MODEL -t MODE --backend BACKEND --exclusive`; compile caches are cold in both. Printed: wall time a
case of each and their ratio; for steps bound by the device (the host has given it a step's work before half of its time
is over) and for the others, how far the medians of (a) are from those of (b), beside how far the host's own speed was;
in how many cases the intervals of the speedups meet; and what bounds (a). Both runs are kept in the folder; what is
there already is not run again. `--repeats` runs (b) several times: how far exclusive runs are from each other.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from torchzoo import stats
from torchzoo.analysis.bound import Bound, bound_of
from torchzoo.case import Case
from torchzoo.record import CANDIDATE_VARIANT, Measured, Outcome, Record, Skipped
from torchzoo.report import units
from torchzoo.report.summary import counts, where_time_went
from torchzoo.store import read_run

ROOT = Path(__file__).resolve().parent.parent


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


@dataclass
class Agreement:
    """How far the figures of two runs over the same cases are apart: ratios, and what is said of single cases."""

    names: tuple[str, str]
    device_bound: list[float] = field(default_factory=list)
    other_steps: list[float] = field(default_factory=list)
    host_loop: list[float] = field(default_factory=list)
    meets: list[bool] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, case: Case, one: Outcome, other: Outcome) -> None:
        if type(one) is not type(other):
            self.remarks.append(f"DIFFERENT OUTCOMES of {case.label()}: {one} / {other}")
        if not isinstance(one, Measured) or not isinstance(other, Measured):
            return
        self.host_loop.append(sum(one.host_loop_s) / sum(other.host_loop_s))
        for variant in one.variants:
            a, b = (stats.latency_s(measured.blocks, variant) for measured in (one, other))
            ratio = a.value / b.value
            is_bound = bound_of(one, variant) is bound_of(other, variant) is Bound.DEVICE
            (self.device_bound if is_bound else self.other_steps).append(ratio)
            if is_bound and abs(ratio - 1) > 0.02:
                self.remark(f"{case.label()}, {variant}", units.latency(a), units.latency(b), ratio)
        if CANDIDATE_VARIANT in one.variants:
            a, b = stats.speedup(one.blocks), stats.speedup(other.blocks)
            self.meets.append(a.low <= b.high and b.low <= a.high)
            if not self.meets[-1]:
                self.remark(f"{case.label()}, speedup", units.speedup(a), units.speedup(b), a.value / b.value)

    def remark(self, what: str, one: str, other: str, ratio: float) -> None:
        self.remarks.append(f"  {what}: {one} {self.names[0]}, {other} {self.names[1]}: {ratio:.3f}")

    def lines(self) -> Iterator[str]:
        yield from self.remarks
        between = " / ".join(self.names)
        for what, ratios in (
            ("medians of device-bound steps", self.device_bound),
            ("medians of other steps", self.other_steps),
            ("the host's own loop", self.host_loop),
        ):
            if ratios:
                within = sum(abs(ratio - 1) <= 0.02 for ratio in ratios)
                yield (
                    f"{what}, {between}: {within} of {len(ratios)} within 2%, median {median(ratios):.4f}, "
                    f"from {min(ratios):.4f} to {max(ratios):.4f}"
                )
        yield f"speedups, {between}: the intervals meet in {sum(self.meets)} of {len(self.meets)} cases"


def compare(some: dict[Case, Record], others: dict[Case, Record], names: tuple[str, str]) -> None:
    agreement = Agreement(names)
    for case, record in some.items():
        agreement.add(case, record.outcome, others[case].outcome)
    for line in agreement.lines():
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("--devices", help="of (a): accelerators to spread the cases over, such as 0,1")
    parser.add_argument("-j", "--jobs", help="of (a)")
    parser.add_argument("--bs", help="of both: batch size, or smoke")
    parser.add_argument("--time-limit", default="3", help="of both: seconds of timing a case at most (default: 3)")
    parser.add_argument("--repeats", type=int, default=1, help="of (b) (default: 1)")
    parser.add_argument("--skip-apart", action="store_true", help="(a) alone, to see what bounds it")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    options = ["--time-limit", arguments.time_limit] + (["--bs", arguments.bs] if arguments.bs else [])
    spread = ["--devices", arguments.devices] if arguments.devices else []
    spread += ["--jobs", arguments.jobs] if arguments.jobs else []

    axes = ["-d", arguments.device, "-t", "train,eval", "--backend", "inductor"]
    folder = arguments.output / "together"
    together_s = timed_run([*arguments.models, *axes, *options, *spread], folder)
    run = read_run(folder)
    records = {record.case: record for record in run.records if not isinstance(record.outcome, Skipped)}
    gpus = ", ".join(gpu.name for gpu in run.manifest.environment.gpus)
    print(f"{gpus or run.manifest.environment.cpu}, torch {run.manifest.environment.torch}")
    print(f"together: {counts(run)}")
    print(f"together: {together_s:.0f} s, {together_s / len(records):.2f} s a case that ran")
    for line in where_time_went(run):
        print(f"  {line}")
    if arguments.skip_apart:
        return
    apart: list[dict[Case, Record]] = []
    for number in range(1, arguments.repeats + 1):
        folder = arguments.output / f"apart-{number}"
        folder.mkdir(exist_ok=True)
        once, apart_s = run_apart(list(records), options, folder)
        print(f"apart: {apart_s:.0f} s, {apart_s / len(once):.2f} s a case; {apart_s / together_s:.2f} times as long")
        compare(records, once, ("together", f"apart {number}"))
        for earlier, before in enumerate(apart, 1):
            compare(before, once, (f"apart {earlier}", f"apart {number}"))
        apart.append(once)


if __name__ == "__main__":
    main()
