"""How far runs of the same cases agree: speedups, device time ratios, eager's medians, and means, for each two runs.

    python benchmarks/same_answer.py RUN[,RUN] RUN[,RUN] ...

A run that was measured in parts is named by all of its folders, with commas between; of a case that several have, the
last one counts.
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
    ]
    print(*markdown.table(["figure", "cases", *(f"within {limit:.0%}" for limit in WITHIN)], rows), sep="\n")
    for mode in Mode:
        some = [pair for pair in pairs if pair[0].case.mode is mode]
        if some:
            means = [geometric_mean(speedup(pair[side]) for pair in some) for side in (0, 1)]
            print(f"\n{mode}: geometric means over {len(some)} cases: {means[0]:.3f}x and {means[1]:.3f}x,", end=" ")
            print(f"{abs(means[1] / means[0] - 1):.1%} apart")
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
