"""The candidate's time over eager's: what slows both down on a busy host hides no difference between them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from examples import INDUCTOR, measured, record, run_of, variant_result
from repeated_runs import records
from torchzoo.analysis.compare import RunComparison, compare_runs
from torchzoo.analysis.judge import Finding, Verdict
from torchzoo.analysis.run_figures import Metric
from torchzoo.record import BackToBack, Block, Record, VariantResult
from torchzoo.report import run_comparison
from torchzoo.report.noise import noise_of
from torchzoo.report.summary import what_compare_finds
from torchzoo.store import Run

BUSY = 0.15  # the standard deviation of the host's speed between processes
EAGER_S, CANDIDATE_S = 0.010, 0.008


def variants(device_share: float) -> dict[str, VariantResult]:
    """Both variants, with the share of a step in which the device works."""
    steps = {"eager": EAGER_S, "candidate": CANDIDATE_S}
    return {
        name: variant_result(
            back_to_back=(BackToBack(3, 3 * step_s, 3 * step_s, 3 * step_s),), device_active_s=device_share * step_s
        )
        for name, step_s in steps.items()
    }


def of_busy_host(
    seed: int,
    *,
    eager: float = 1.0,
    candidate: float = 1.0,
    cases: int = 5,
    device_share: float = 0.2,
    busy: float = BUSY,
    within: float = 0.003,
) -> Run:
    """Five processes of each case; in each the host has a speed of its own. Factors of the first case's times."""
    generator = random.Random(seed)
    made: list[Record] = []
    for number in range(cases):
        factors = (eager, candidate) if number == 0 else (1.0, 1.0)
        for repeat in range(5):
            host = generator.lognormvariate(0, busy)
            blocks = []
            for variant in ("eager", "candidate", "candidate", "eager") * 4:
                step_s = EAGER_S * factors[0] if variant == "eager" else CANDIDATE_S * factors[1]
                blocks.append(Block(variant, (step_s * host * generator.lognormvariate(0, within),)))
            outcome = measured(
                blocks=tuple(blocks), variants=variants(device_share), host_loop_s=(0.001 * host, 0.001 * host)
            )
            made.append(record(outcome, backend=INDUCTOR, model=f"m{number}", repeat=repeat))
    return run_of(made)


def found(comparison: RunComparison, metric: Metric) -> list[Finding]:
    return [one for one in comparison.findings if one.metric is metric]


def test_three_percent_are_found_on_a_host_whose_speed_differs_by_fifteen() -> None:
    comparison = compare_runs(of_busy_host(1), of_busy_host(2, candidate=1.03))
    assert {one.verdict for one in found(comparison, Metric.LATENCY)} == {Verdict.INCONCLUSIVE}
    slower, *others = found(comparison, Metric.OVER_EAGER)
    assert slower.verdict is Verdict.SLOWER
    assert slower.ratio.value == pytest.approx(1.03, abs=0.006)
    assert slower.base == pytest.approx(CANDIDATE_S / EAGER_S, rel=0.01)
    assert {one.verdict for one in others} == {Verdict.SAME}
    assert comparison.has_regression


def test_no_change_is_none_in_twenty_cases_again_and_again() -> None:
    alarms = 0
    for seed in range(30):
        comparison = compare_runs(of_busy_host(2 * seed, cases=20), of_busy_host(2 * seed + 1, cases=20))
        alarms += any(one.is_notable for one in comparison.findings)
    assert alarms <= 2


@pytest.mark.parametrize(("cases", "is_found"), [(9, False), (12, True)])
def test_many_cases_tell_of_their_noise_together(cases: int, *, is_found: bool) -> None:
    base, candidate = (of_busy_host(seed, cases=cases, within=0.02, candidate=f) for seed, f in ((5, 1.0), (6, 1.03)))
    comparison = compare_runs(base, candidate)
    assert (found(comparison, Metric.OVER_EAGER)[0].verdict is Verdict.SLOWER) is is_found
    assert not any(one.is_notable for one in comparison.findings[3:])
    assert ("moderated" in run_comparison.as_markdown(comparison)) == (cases == 12)


def test_where_eager_changed_the_remark_says_by_how_much() -> None:
    comparison = compare_runs(of_busy_host(1), of_busy_host(1, eager=0.9))
    finding = found(comparison, Metric.OVER_EAGER)[0]
    assert finding.verdict is Verdict.SLOWER
    assert "eager's own steps took 0.90 times as long" in finding.remark


@pytest.mark.parametrize(
    "runs", [[of_busy_host(seed, device_share=0.99, busy=0.0) for seed in (1, 2)], [run_of(records((0.1,)))] * 2]
)
def test_steps_of_the_device_and_eager_alone_are_judged_by_their_time(runs: Sequence[Run]) -> None:
    assert not found(compare_runs(*runs), Metric.OVER_EAGER)
    assert all(one.sees_over_eager is None for one in noise_of(runs[0]))


@pytest.mark.parametrize("cases", [5, 12])  # from ten on, all tell of the noise together
def test_a_run_promises_what_a_comparison_with_it_can_see_over_eager(cases: int) -> None:
    run = of_busy_host(1, cases=cases)
    seen = [one.sees for one in found(compare_runs(run, run), Metric.OVER_EAGER)]
    assert [one.sees_over_eager for one in noise_of(run)] == pytest.approx(seen)
    (of_time, over_eager) = what_compare_finds(run)
    assert "time over eager's" in over_eager
    assert "time over eager's" not in of_time


@pytest.mark.parametrize(("processes", "is_shared"), [(2, False), (3, False), (4, True), (5, True)])
def test_few_processes_tell_too_little_of_what_all_cases_share(processes: int, *, is_shared: bool) -> None:
    """The error of a case is its own then, whatever other cases there are."""

    def of_one_case(cases: int) -> object:
        runs = [of_busy_host(seed, cases=cases) for seed in (1, 2)]
        runs = [run_of([one for one in run.records if one.case.repeat < processes]) for run in runs]
        return found(compare_runs(*runs), Metric.OVER_EAGER)[1].ratio

    assert (of_one_case(12) != of_one_case(5)) is is_shared
