"""How far runs of the same cases agree: speedups, D, H, counts, T on one host, and means, for each two runs.

    python benchmarks/same_answer.py RUN[,RUN] RUN[,RUN] ...

A run that was measured in parts is named by all of its folders, with commas between; of a case that several have, the
last one counts.
D is the device's work, H the host's work in seconds of the reference host, *T there* the time of a step on the
reference host by the model, and *T from the other run* what the model gives for the second run's host from the first
run's figures, beside the measured T.
Compared are cases with the same model, mode, precision, backend and batch that passed in both runs and stayed steady.
A case is *device-bound* where both runs say so of it. Runs may be of different code and libraries: `torchzoo compare`
lists what differs.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import geometric_mean

import msgspec

from torchzoo.analysis.bound import Bound
from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.frame import figure
from torchzoo.case import Case, Mode
from torchzoo.report import markdown
from torchzoo.store import read_run

WITHIN = (0.02, 0.05, 0.10)
SHOWN = 12  # the cases that differ most


def passed_cases(folders: str) -> dict[Case, CaseResult]:
    """The cases of a run that passed, without the device's number, so that runs can be matched."""
    found = {}
    results = [result for folder in folders.split(",") for result in case_results(read_run(Path(folder)))]
    for result in results:
        if result.passed and result.figures is not None and result.figures.speedup is not None:
            found[msgspec.structs.replace(result.case, device=result.case.device_type)] = result
    return found


def speedup(result: CaseResult) -> float:
    assert result.figures is not None
    assert result.figures.speedup is not None
    return result.figures.speedup.value


def device_time_ratio(result: CaseResult) -> float:
    ratio = None if result.figures is None else result.figures.device_time_ratio
    return math.nan if ratio is None else ratio


def host_time_ratio(result: CaseResult) -> float:
    ratio = None if result.figures is None else result.figures.host_time_ratio
    return math.nan if ratio is None else ratio


def variant_figure(name: str) -> tuple[Callable[[CaseResult], float], Callable[[CaseResult], float]]:
    """A figure of eager, and the same of the candidate; NaN where a case does not have it."""

    def of(column: str) -> Callable[[CaseResult], float]:
        def value(result: CaseResult) -> float:
            found = figure(column).number(result.figures)
            return math.nan if found is None else float(found)

        return value

    return of(f"eager_{name}"), of(name)


def by_model(pair: tuple[CaseResult, CaseResult]) -> list[float]:
    """By how much T of the second run differs from what the model gives from the first run's figures, by variant."""
    found = []
    assert pair[0].figures is not None
    assert pair[1].figures is not None
    for ours, theirs in zip(pair[0].figures.variants, pair[1].figures.variants, strict=True):
        there = None if theirs.host_speed is None else ours.latency_on(theirs.host_speed)
        if there is not None:
            found.append(abs(there.value / theirs.latency_s.value - 1))
    return found


def unequal_counts(pairs: Iterable[tuple[CaseResult, CaseResult]]) -> tuple[int, list[str]]:
    """How many variants have counts in both runs, and the counts that differ, as lines."""
    compared, lines = 0, []
    for pair in pairs:
        for name in ("eager", "candidate"):
            counts = [None if one.figures is None else one.figures.measured.variants[name].counts for one in pair]
            if counts[0] is None or counts[1] is None:
                continue
            compared += 1
            values = [msgspec.structs.asdict(one) for one in counts if one is not None]
            differing = [key for key in values[0] if values[0][key] != values[1][key]]
            if differing:
                what = ", ".join(f"{key} {values[0][key]} and {values[1][key]}" for key in differing)
                lines.append(f"{pair[0].case.model} {pair[0].case.mode} {name}: {what}")
    return compared, lines


def eager_median(result: CaseResult) -> float:
    assert result.figures is not None
    return result.figures.eager.latency_s.value


def differences(pairs: Iterable[tuple[CaseResult, CaseResult]], of: Callable[[CaseResult], float]) -> list[float]:
    """By how much the second run's figure differs from the first's, as a share; without cases that lack the figure."""
    found = [abs(of(second) / of(first) - 1) for first, second in pairs]
    return [one for one in found if not math.isnan(one)]


def counted(name: str, found: Sequence[float]) -> list[str]:
    return [name, str(len(found)), *(str(sum(one <= limit for one in found)) for limit in WITHIN)]


def show(first: dict[Case, CaseResult], second: dict[Case, CaseResult]) -> None:
    """Print a pair of runs as Markdown."""
    cases = [case for case in first if case in second]
    pairs = [(first[case], second[case]) for case in cases]
    bound = [pair for pair in pairs if all(one.bound is Bound.DEVICE for one in pair)]
    quiet = [pair for pair in pairs if not any(one.host_was_slow for one in pair)]
    rows = [
        counted("speedup", differences(pairs, speedup)),
        counted("speedup, device-bound", differences(bound, speedup)),
        counted("speedup, host slow in neither run", differences(quiet, speedup)),
        counted("device time ratio (D)", differences(pairs, device_time_ratio)),
        counted("eager's median, device-bound", differences(bound, eager_median)),
        counted("host time ratio (H)", differences(pairs, host_time_ratio)),
    ]
    for label, name in (("D", "device_s"), ("H", "host_s"), ("T", "latency_s"), ("T there", "reference_latency_s")):
        of_both = [one for of in variant_figure(name) for one in differences(pairs, of)]
        rows.append(counted(f"{label} of both variants", of_both))
    rows.append(counted("T from the other run", [one for pair in pairs for one in by_model(pair)]))
    print(*markdown.table(["figure", "cases", *(f"within {limit:.0%}" for limit in WITHIN)], rows), sep="\n")
    for mode in Mode:
        some = [pair for pair in pairs if pair[0].case.mode is mode]
        if some:
            means = [geometric_mean(speedup(pair[side]) for pair in some) for side in (0, 1)]
            print(f"\n{mode}: geometric means over {len(some)} cases: {means[0]:.3f}x and {means[1]:.3f}x,", end=" ")
            print(f"{abs(means[1] / means[0] - 1):.1%} apart")
            for label, of in (("D", device_time_ratio), ("H", host_time_ratio)):
                known = [pair for pair in some if not any(math.isnan(of(one)) for one in pair)]
                if known:
                    ratios = [geometric_mean(of(pair[side]) for pair in known) for side in (0, 1)]
                    print(f"  {label} over {len(known)}: {ratios[0]:.4f} and {ratios[1]:.4f}", end=", ")
                    print(f"{abs(ratios[1] / ratios[0] - 1):.2%} apart")
    compared, lines = unequal_counts(pairs)
    print(f"\nCounts differ in {len(lines)} of {compared} steps{':' if lines else ''}")
    print(*(f"- {line}" for line in lines), sep="\n")
    print("\nSpeedups that differ most:")
    for case in sorted(cases, key=lambda one: -abs(math.log(speedup(second[one]) / speedup(first[one]))))[:SHOWN]:
        one, other = first[case], second[case]
        slow = [side for side, result in (("first", one), ("second", other)) if result.host_was_slow]
        host = f"; the host stayed slow in the {' and the '.join(slow)}" if slow else ""
        speedups = f"{speedup(one):.3f}x and {speedup(other):.3f}x"
        print(f"- {case.model} {case.mode}: {speedups}, bound by {other.bound}{host}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN[,RUN]")
    folders = parser.parse_args().runs
    if len(folders) < 2:
        parser.error("name two runs or more")
    found = {folder: passed_cases(folder) for folder in folders}
    for folder, cases in found.items():
        slow = sum(result.host_was_slow for result in cases.values())
        print(f"{folder}: {len(cases)} cases passed; the host stayed slow in {slow} of them")
    for first, second in combinations(folders, 2):
        print(f"\n## {first} and {second}\n")
        show(found[first], found[second])


if __name__ == "__main__":
    main()
