"""How often rules that watch a series of nights raise a false alarm, and how often they find a step, by simulation.

    python benchmarks/change_points.py [--trials 200]

A series has 60 nights, and a value of about 1 for each. It is quiet, or it becomes 3% or 7% slower at night 40 (counted
from 0). The noise is of five kinds. The rules are torchzoo's change points (`torchzoo.analysis.change_points`) with
several options, and two simple rules as they are used elsewhere:

- `7% of one night`: tonight and last night differ by more than 7% (TorchBench: Hao et al., 2023, arXiv:2304.14226).
- `5% of a median of 6`: tonight and last night both differ by more than 5% from the median of the 6 nights before
  (after the rule of PyTorch's performance dashboard: pytorch/test-infra, benchmark_regression_summary_report).

All rules look for changes in both directions.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from torchzoo.analysis.change_points import change_points
from torchzoo.analysis.judge import CHANGE_POINT_P_VALUE as P_VALUE

NIGHTS, STEP_AT = 60, 40
FIRST_LOOK = 10  # nights that are there before a rule is asked for the first time
NEAR = 2  # a step is found if an alarm is for a night so near to it
SEED = 20261122

Floats = npt.NDArray[np.float64]
#: From a series to the nights at which the rule sees a change.
Rule = Callable[[Floats], list[int]]


# --- noise: (NIGHTS,) factors around 1 ---


def gauss(random: np.random.Generator, cv: float) -> Floats:
    return 1 + cv * random.standard_normal(NIGHTS)


def spikes(random: np.random.Generator) -> Floats:
    """5% of the nights are slower, by an amount that is exponential with a mean of 5%."""
    is_spike = random.random(NIGHTS) < 0.05
    return gauss(random, 0.005) * (1 + is_spike * random.exponential(0.05, NIGHTS))


def autocorrelated(random: np.random.Generator) -> Floats:
    """A first-order autoregression with coefficient 0.5. The cv of single nights is 0.5%."""
    found = [random.standard_normal()]
    for shock in random.standard_normal(NIGHTS - 1):
        found.append(0.5 * found[-1] + np.sqrt(1 - 0.5**2) * shock)
    return 1 + 0.005 * np.array(found)


def bimodal(random: np.random.Generator) -> Floats:
    """20% of the nights are 5% slower. Within a mode the cv is 0.5%; over all nights it is 2%."""
    return gauss(random, 0.005) * (1 + 0.05 * (random.random(NIGHTS) < 0.2))


NOISES: dict[str, Callable[[np.random.Generator], Floats]] = {
    "Gauss, cv 0.5%": partial(gauss, cv=0.005),
    "Gauss, cv 2%": partial(gauss, cv=0.02),
    "5% spikes, cv 0.5%": spikes,
    "autocorrelated 0.5, cv 0.5%": autocorrelated,
    "bimodal, cv 2%": bimodal,
}


# --- rules ---


def by_change_points(series: Floats, p_value: float, least_length: int = 2, least_magnitude: float = 0.0) -> list[int]:
    found = change_points(series.tolist(), p_value=p_value, least_length=least_length, least_magnitude=least_magnitude)
    return [point.index for point in found]


def by_one_night(series: Floats) -> list[int]:
    ratios = series[1:] / series[:-1]
    return [int(night) + 1 for night in np.flatnonzero((ratios > 1.07) | (ratios < 0.93))]


def by_median_of_six(series: Floats) -> list[int]:
    found = []
    for night in range(7, len(series)):
        ratios = series[night - 1 : night + 1] / np.median(series[night - 7 : night - 1])
        if np.all(ratios > 1.05) or np.all(ratios < 0.95):
            found.append(night - 1)
    return found


RULES: dict[str, Rule] = {
    "7% of one night": by_one_night,
    "5% of a median of 6": by_median_of_six,
    "change points, p 0.001": partial(by_change_points, p_value=0.001),
    f"change points, p {P_VALUE:g} (default)": partial(by_change_points, p_value=P_VALUE),
    f"change points, p {P_VALUE:g}, at least 2%": partial(by_change_points, p_value=P_VALUE, least_magnitude=0.02),
    f"change points, p {P_VALUE:g}, sides of 1": partial(by_change_points, p_value=P_VALUE, least_length=1),
}


# --- trials ---


def alarm_once(rule: Rule, series: Floats) -> bool:
    return bool(rule(series))


def alarm_some_night(rule: Rule, series: Floats) -> bool:
    """Whether the rule, asked each night about the nights so far, ever sees a change."""
    return any(rule(series[:night]) for night in range(FIRST_LOOK, NIGHTS + 1))


def finds(rule: Rule, series: Floats, nights: int) -> bool:
    """Whether the rule places a change near the step, `nights` nights after it."""
    return any(abs(place - STEP_AT) <= NEAR for place in rule(series[: STEP_AT + nights]))


def row(rule: Rule, make: Callable[[np.random.Generator], Floats], trials: int) -> list[float]:
    """Shares of trials: quiet series with an alarm (asked once, asked each night), then steps that are found."""
    random = np.random.default_rng(SEED)  # every rule sees the same series
    counts = np.zeros(6)
    for _ in range(trials):
        quiet, other = make(random), make(random)
        counts[:2] += alarm_once(rule, quiet), alarm_some_night(rule, quiet)
        for number, step in enumerate((0.03, 0.07)):
            stepped = other.copy()
            stepped[STEP_AT:] *= 1 + step
            counts[2 + number] += finds(rule, stepped, 2)
            counts[4 + number] += finds(rule, stepped, NIGHTS - STEP_AT)
    return list(counts / trials)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=200)
    arguments = parser.parse_args()
    start = time.perf_counter()
    print("| noise | rule | quiet: once | quiet: nightly | 3% in 2 nights | 7% in 2 nights | 3% in 20 | 7% in 20 |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for noise, make in NOISES.items():
        for name, rule in RULES.items():
            shares = row(rule, make, arguments.trials)
            print(f"| {noise} | {name} | {' | '.join(f'{share:.1%}' for share in shares)} |", flush=True)
    print(
        f"\n{arguments.trials} trials a row, seed {SEED}, {time.perf_counter() - start:.0f} s; "
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
