"""Verdicts on a case's latency, memory and compile time: shifts are found, noise is left alone."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples import CASE, INDUCTOR, compared, in_turns, measured, record, run_of, variant_result
from kept_nights import night
from repeated_runs import LOOP_S, STEADY, on_host, process, records, times
from torchzoo.analysis.compare import compare_runs
from torchzoo.analysis.judge import Finding, Verdict
from torchzoo.analysis.run_figures import Metric
from torchzoo.history.summaries import read_history
from torchzoo.history.versions import compare_versions, side
from torchzoo.record import (
    BackToBack,
    Block,
    Compilation,
    DeviceState,
    HostWatch,
    Measured,
    Memory,
    Record,
    StepCounts,
)
from torchzoo.report import run_comparison as shown
from torchzoo.report.noise import noise_of
from torchzoo.settings import CacheMode
from torchzoo.store import read_run


def verdict(base: Iterable[Record], candidate: Iterable[Record], metric: Metric = Metric.LATENCY) -> Verdict:
    [found] = [one for one in compare_runs(run_of(base), run_of(candidate)).findings if one.metric is metric]
    return found.verdict


# --- latency ---


def device_bound(step_s: float) -> Measured:
    quick = variant_result(back_to_back=(BackToBack(3, 3 * step_s, 3 * step_s, 0.1 * step_s),) * 6)
    return process(step_s, variants={"eager": quick})


NOISY, RISING = (0.08, 0.12, 0.10, 0.13, 0.09), [0.1 * 1.04**position for position in range(6)]


@pytest.mark.parametrize(
    ("base", "candidate", "found"),
    [
        (STEADY, times(1.10), Verdict.SLOWER),
        (STEADY, times(1 / 1.10), Verdict.FASTER),
        (STEADY, times(1.0), Verdict.SAME),
        (STEADY, times(1.03), Verdict.SLOWER),
        (STEADY, times(1.005), Verdict.SAME),  # known, but too small to matter
        (STEADY, times(3.0), Verdict.SLOWER),  # no overlap at all
        ([0.1] * 3, [0.1] * 3, Verdict.SAME),
        ([0.1] * 3, [0.12] * 3, Verdict.SLOWER),
        (NOISY, [step_s * 1.1 for step_s in NOISY], Verdict.INCONCLUSIVE),
        (NOISY, NOISY, Verdict.INCONCLUSIVE),  # not known to be the same either
        (RISING[:5], RISING[1:], Verdict.INCONCLUSIVE),  # drift
        ((0.100, 0.103), (0.110, 0.113), Verdict.INCONCLUSIVE),  # two processes are too few
        ((0.100, 0.1001), (0.200, 0.2001), Verdict.SLOWER),
    ],
)
def test_a_known_shift_is_found_and_noise_is_none(
    base: Iterable[float], candidate: Iterable[float], found: Verdict
) -> None:
    assert verdict(records(base), records(candidate)) is found


def test_a_fixed_threshold_is_kept_however_quiet_the_runs_are() -> None:
    runs = [run_of(records(STEADY)), run_of(records(times(1.03)))]
    (finding,) = compare_runs(*runs, threshold=0.07, metrics=[Metric.LATENCY]).findings
    assert finding.verdict is Verdict.SAME
    assert finding.sees == pytest.approx(0.07)


def test_by_default_a_case_tells_what_its_noise_lets_it_see() -> None:
    def seen(spread: float) -> tuple[float, Verdict]:
        base = [0.1 * (1 + spread * step) for step in (-2, -1, 0, 1, 2)]
        runs = [run_of(records(base)), run_of(records(1.03 * one for one in base))]
        (finding,) = compare_runs(*runs, metrics=[Metric.LATENCY]).findings
        assert finding.sees is not None
        return finding.sees, finding.verdict

    assert seen(0.0001) == (pytest.approx(0.01), Verdict.SLOWER)  # never below 1%
    sees, found = seen(0.005)
    assert (0.01 < sees < 0.03, found) == (True, Verdict.SLOWER)
    sees, found = seen(0.02)
    assert (sees > 0.03, found) == (True, Verdict.INCONCLUSIVE)
    single = compare_runs(run_of(records([0.1])), run_of(records([0.103])), metrics=[Metric.LATENCY])
    assert single.findings[0].sees is None or single.findings[0].sees >= 0.07  # one process shows no noise


def test_unsteady_cases_are_named_and_not_compared() -> None:
    late = {"eager": variant_result(), "candidate": variant_result(compilation=Compilation(graphs=3, late_graphs=1))}
    other = msgspec.structs.replace(CASE, model="shapes")
    unsteady = [
        msgspec.structs.replace(one, case=other, outcome=msgspec.structs.replace(one.outcome, variants=late))
        for one in records([0.1])
    ]
    comparison = compare_runs(run_of([*records(STEADY)]), run_of([*records(times(1.2))]))
    assert comparison.unsteady == ()
    both = compare_runs(run_of([*records(STEADY), *unsteady]), run_of([*records(STEADY), *unsteady]))
    assert both.unsteady == (other,)
    assert {finding.case for finding in both.findings} == {CASE}
    assert any("shapes" in line and "not compared" in line for line in shown.summary(both))


def test_one_process_a_side_judges_only_large_differences_and_says_why() -> None:
    base = run_of([record(process(0.1))])
    for factor, found in ((1.15, Verdict.INCONCLUSIVE), (2.0, Verdict.SLOWER)):
        [finding] = [
            one
            for one in compare_runs(base, run_of([record(process(0.1 * factor))])).findings
            if one.metric is Metric.LATENCY
        ]
        assert finding.verdict is found
        assert "one process each, assumed to differ by 10%" in finding.remark
    lines = shown.summary(compare_runs(base, base))
    assert any("run both with --repeats 5" in line for line in lines)


def test_steps_bound_by_the_device_differ_less_between_processes() -> None:
    base, slower, same = (record(device_bound(step_s)) for step_s in (0.1, 0.115, 0.101))
    assert verdict([base], [slower]) is Verdict.SLOWER
    assert verdict([base], [same]) is Verdict.SAME


def test_a_single_sample_tells_nothing() -> None:
    once = measured(blocks=(Block("eager", (20.0,)),), host_loop_s=LOOP_S)
    assert verdict([record(once)], [record(process(90.0))]) is Verdict.INCONCLUSIVE


def test_what_the_hosts_own_speed_explains_is_no_regression() -> None:
    slow_host = [
        record(process(step_s * 1.25, loop_s=(0.00125, 0.00125)), repeat=repeat) for repeat, step_s in enumerate(STEADY)
    ]
    assert verdict(records(STEADY), slow_host) is Verdict.INCONCLUSIVE
    worse = [
        record(process(step_s * 1.5, loop_s=(0.00125, 0.00125)), repeat=repeat) for repeat, step_s in enumerate(STEADY)
    ]
    assert verdict(records(STEADY), worse) is Verdict.SLOWER
    quiet, found = (
        next(
            one for one in compare_runs(run_of(records(STEADY)), run_of(other)).findings if one.metric is Metric.LATENCY
        )
        for other in (records(STEADY), slow_host)
    )
    assert quiet.sees is not None
    assert found.sees is not None
    assert 1 + found.sees == pytest.approx(1.25 * (1 + quiet.sees), rel=0.01)  # so much it could not tell apart
    unknown = [record(process(step_s * 1.5, loop_s=()), repeat=repeat) for repeat, step_s in enumerate(STEADY)]
    assert verdict(records(STEADY), unknown) is Verdict.INCONCLUSIVE


def test_the_hosts_speed_is_that_beside_the_timed_blocks() -> None:
    """One look before and one after them say less: the host may have been slow just then, or just not then."""

    def beside(*looks_s: float) -> HostWatch:
        return HostWatch(undisturbed_s=0.001, looks_s=looks_s, waited_s=0.0, fast_cores=(), was_slow=False)

    def run(factor: float, *looks_s: float) -> list[Record]:
        return [record(process(step_s * factor, host=beside(*looks_s)), repeat=n) for n, step_s in enumerate(STEADY)]

    assert verdict(run(1.0, 0.001, 0.001, 0.001), run(1.25, 0.00125, 0.00125, 0.001)) is Verdict.INCONCLUSIVE
    assert verdict(run(1.0, 0.001, 0.001, 0.001), run(1.25, 0.001, 0.001, 0.00125)) is Verdict.SLOWER


def many(generator: random.Random, spread: float, *, cases: int, heavy: bool) -> list[Record]:
    """Cases of five processes whose medians differ by `spread`; where `heavy`, one process in ten by 30%."""
    found = []
    for number in range(cases):
        for repeat in range(5):
            center = 0.1 * generator.lognormvariate(0.0, spread)
            center *= 1.3 if heavy and generator.random() < 0.1 else 1.0
            found.append(record(process(center), model=f"m{number}", repeat=repeat))
    return found


@pytest.mark.parametrize("in_turns", [False, True])
@pytest.mark.parametrize(
    ("spread", "heavy"), [(0.005, False), (0.02, False), (0.05, False), (0.15, False), (0.02, True)]
)
def test_twenty_cases_of_no_change_give_a_false_alarm_in_at_most_one_comparison_of_twenty(
    *, spread: float, heavy: bool, in_turns: bool
) -> None:
    generator = random.Random(3)
    trials, alarms = 60, 0
    for _ in range(trials):
        base, candidate = (run_of(many(generator, spread, cases=20, heavy=heavy)) for _ in range(2))
        findings = compare_runs(base, candidate, metrics=[Metric.LATENCY], in_turns=in_turns).findings
        alarms += any(one.verdict in (Verdict.SLOWER, Verdict.FASTER) for one in findings)
    assert alarms / trials <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)


PLANTED = {"m3", "m7", "m11"}


def test_a_plant_of_ten_percent_in_three_of_twenty_is_found_exactly() -> None:
    generator = random.Random(4)
    for _ in range(10):
        base = run_of(many(generator, 0.01, cases=20, heavy=False))
        planted = [
            msgspec.structs.replace(one, outcome=slower(one.outcome, 1.1)) if one.case.model in PLANTED else one
            for one in many(generator, 0.01, cases=20, heavy=False)
        ]
        found = compare_runs(base, run_of(planted), metrics=[Metric.LATENCY]).findings
        assert {one.case.model for one in found if one.verdict is Verdict.SLOWER} == PLANTED


def of_drifting_machine(generator: random.Random, *, cases: int, factor: float) -> list[Record]:
    """Five processes of each case, on a machine that drifts by 10%; the first case takes `factor` times as long."""
    drift = (1.00, 1.05, 1.10, 1.04, 0.98)
    found = []
    for number in range(cases):
        steps_s = [0.1 * speed * generator.lognormvariate(0, 0.01) for speed in drift]
        found += records((one * (factor if number == 0 else 1.0) for one in steps_s), model=f"m{number}")
    return found


@pytest.mark.parametrize(
    ("cases", "in_turns", "found"),
    [(12, True, Verdict.SLOWER), (12, False, Verdict.INCONCLUSIVE), (3, True, Verdict.INCONCLUSIVE)],
)
def test_many_cases_in_turns_show_what_drift_hides(*, cases: int, in_turns: bool, found: Verdict) -> None:
    generator = random.Random(21)
    runs = [run_of(of_drifting_machine(generator, cases=cases, factor=factor)) for factor in (1.0, 1.06)]
    comparison = compare_runs(*runs, metrics=[Metric.LATENCY], in_turns=in_turns)
    assert comparison.findings[0].verdict is found
    assert all(not finding.is_notable for finding in comparison.findings[1:])
    assert ("moderated t-test" in shown.as_markdown(comparison)) == (cases == 12 and in_turns)


def slower(outcome: Any, factor: float) -> Measured:
    blocks = tuple(Block(b.variant, tuple(s * factor for s in b.samples_s)) for b in outcome.blocks)
    return msgspec.structs.replace(outcome, blocks=blocks)


# --- others on the device ---

SHARED = {
    "device_state_before": DeviceState(foreign_processes=0),
    "device_state_after": DeviceState(foreign_processes=1),
}


def with_shared(factor: float, shared: int) -> list[Record]:
    """Five processes; the first `shared` of them with others on the device."""
    return [
        record(process(step_s, **(SHARED if number < shared else {})), repeat=number)
        for number, step_s in enumerate(times(factor))
    ]


@pytest.mark.parametrize(
    ("base", "candidate", "found"),
    [
        (0, 0, Verdict.SLOWER),
        (len(STEADY), 0, Verdict.INCONCLUSIVE),
        (0, len(STEADY), Verdict.INCONCLUSIVE),
        (len(STEADY), len(STEADY), Verdict.SLOWER),  # others are always there: both sides have them
        (1, 0, Verdict.SLOWER),  # the noise between the processes has it
    ],
)
def test_a_device_shared_on_one_side_only_gives_no_verdict(base: int, candidate: int, found: Verdict) -> None:
    sides = [run_of(with_shared(1.0, base)), run_of(with_shared(1.2, candidate))]
    (finding,) = compare_runs(*sides, metrics=[Metric.LATENCY]).findings
    assert finding.verdict is found
    assert ("had it open" in finding.remark) is (found is Verdict.INCONCLUSIVE)


def test_the_time_over_eagers_has_none_either() -> None:
    """Others on the device slow down a candidate and eager by different shares."""

    def side(factor: float, **changes: object) -> list[Record]:
        outcomes = (in_turns(0.2, step_s * factor, host_loop_s=LOOP_S, **changes) for step_s in STEADY)
        return [record(outcome, backend=INDUCTOR, repeat=repeat) for repeat, outcome in enumerate(outcomes)]

    assert verdict(side(1.0), side(1.2), Metric.OVER_EAGER) is Verdict.SLOWER
    assert verdict(side(1.0), side(1.2, **SHARED), Metric.OVER_EAGER) is Verdict.INCONCLUSIVE


# --- memory and compile time ---


def with_memory(device_mib: int | None, host_mib: int = 300, **changes: Any) -> Record:
    memory = Memory(
        device_peak_allocated_bytes=None if device_mib is None else device_mib * 2**20,
        host_peak_rss_bytes=host_mib * 2**20,
    )
    return record(process(0.1, variants={"eager": variant_result(memory=memory)}), **changes)


@pytest.mark.parametrize(
    ("base", "candidate", "found"),
    [
        ([100], [110], Verdict.MORE),
        ([110], [100], Verdict.LESS),
        ([100], [106], Verdict.SAME),
        ([1], [2], Verdict.MORE),
        ([100, 101], [110, 111], Verdict.MORE),
        ([100, 120], [110, 121], Verdict.SAME),  # medians 110 and 115.5
        ([100, 112], [111, 130], Verdict.INCONCLUSIVE),  # the ranges meet
    ],
)
def test_memory_is_judged_by_the_threshold_and_the_repeats(
    base: list[int], candidate: list[int], found: Verdict
) -> None:
    sides = [[with_memory(size, repeat=number) for number, size in enumerate(side)] for side in (base, candidate)]
    assert verdict(*sides, metric=Metric.DEVICE_MEMORY) is found


def with_counts(operators: int, device_s: float | None = None, step_s: float = 0.1, **changes: Any) -> Record:
    counts = StepCounts(operators=operators, python_calls=900, launches=80, allocations=40)
    eager = variant_result(counts=counts, device_active_s=device_s)
    made = process(step_s, variants={"eager": eager})
    blocks = tuple(Block("eager", one.samples_s, 0.9 * step_s, 0.001) for one in made.blocks)
    return record(msgspec.structs.replace(made, blocks=blocks), **changes)


@pytest.mark.parametrize(
    ("base", "candidate", "found"),
    [
        (212, 236, Verdict.MORE),
        (236, 212, Verdict.LESS),
        (212, 212, Verdict.SAME),
        (1000, 1005, Verdict.SAME),  # less than 1%
        (1000, 1010, Verdict.MORE),
    ],
)
def test_four_processes_a_side_show_that_a_step_asks_more_of_the_host(
    base: int, candidate: int, found: Verdict
) -> None:
    sides = [[with_counts(count, repeat=repeat) for repeat in range(4)] for count in (base, candidate)]
    assert verdict(*sides, metric=Metric.OPERATORS) is found
    assert verdict(*sides, metric=Metric.LAUNCHES) is Verdict.SAME


def test_counts_of_one_process_may_be_those_of_another_program() -> None:
    assert verdict([with_counts(212)], [with_counts(236)], metric=Metric.OPERATORS) is Verdict.INCONCLUSIVE


def test_the_devices_time_is_judged_on_unlike_hosts_and_says_why_a_step_is_slower() -> None:
    slow_host = {"loop_s": (2 * LOOP_S[0], 2 * LOOP_S[1])}

    def side(operators: int, factor: float, **changes: Any) -> list[Record]:
        steps = enumerate(times(factor))
        return [
            msgspec.structs.replace(
                with_counts(operators, 0.01 * factor * (1 + number / 1000), step_s, repeat=number),
                outcome=process(
                    step_s,
                    variants=with_counts(operators, 0.01 * factor * (1 + number / 1000)).outcome.variants,
                    **changes,
                ),
            )
            for number, step_s in steps
        ]

    base = side(212, 1.0)
    findings = {one.metric: one for one in compare_runs(run_of(base), run_of(side(236, 1.05, **slow_host))).findings}
    assert findings[Metric.LATENCY].verdict is not Verdict.SLOWER  # the host explains it
    assert findings[Metric.DEVICE_TIME].verdict is Verdict.SLOWER
    findings = {one.metric: one for one in compare_runs(run_of(base), run_of(side(236, 1.05))).findings}
    assert findings[Metric.LATENCY].verdict is Verdict.SLOWER
    assert "device time +5.0%" in findings[Metric.LATENCY].remark
    assert "operators 212 to 236" in findings[Metric.LATENCY].remark


def test_a_few_kilobytes_are_no_regression() -> None:
    small, larger = (
        record(process(0.1, variants={"eager": variant_result(memory=Memory(device_peak_allocated_bytes=size))}))
        for size in (10_000, 20_000)
    )
    assert verdict([small], [larger], metric=Metric.DEVICE_MEMORY) is Verdict.SAME


def test_host_memory_of_runs_of_other_models_is_inconclusive() -> None:
    base, candidate = [with_memory(None, 300)], [with_memory(None, 400)]
    assert verdict(base, candidate, metric=Metric.HOST_MEMORY) is Verdict.MORE
    assert verdict(base, [*candidate, record(model="b")], metric=Metric.HOST_MEMORY) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("cache", "misses", "found"),
    [
        (CacheMode.SHARED, (9, 0), Verdict.INCONCLUSIVE),
        (CacheMode.SHARED, (9, 4), Verdict.INCONCLUSIVE),
        (CacheMode.SHARED, (9, 9), Verdict.LESS),
        (CacheMode.COLD, (9, 4), Verdict.LESS),  # the code of the model or the compiler is another one
    ],
)
def test_host_memory_of_runs_that_found_other_code_in_shared_caches_is_inconclusive(
    cache: CacheMode, misses: tuple[int, int], found: Verdict
) -> None:
    def compiling(host_mib: int, misses: int) -> Record:
        memory = Memory(host_peak_rss_bytes=host_mib * 2**20)
        compilation = Compilation(graphs=9, cache=cache, cache_misses=misses)
        variants = {"eager": variant_result(), "candidate": variant_result(memory=memory, compilation=compilation)}
        return record(msgspec.structs.replace(compared(), variants=variants), backend=INDUCTOR)

    assert verdict([compiling(400, misses[0])], [compiling(300, misses[1])], metric=Metric.HOST_MEMORY) is found


def test_a_metric_that_one_run_lacks_is_left_out() -> None:
    found = compare_runs(run_of([with_memory(100)]), run_of([with_memory(None)])).findings
    assert {one.metric for one in found} == {Metric.LATENCY, Metric.HOST_MEMORY}


def compiled(cpu_s: float, repeat: int = 0, cache: CacheMode = CacheMode.COLD, *, traced: bool = False) -> Record:
    candidate = variant_result(first_step_cpu_s=cpu_s, compilation=Compilation(graphs=1, cache=cache, traced=traced))
    variants = {"eager": variant_result(), "candidate": candidate}
    return record(in_turns(0.2, 0.1, variants=variants, host_loop_s=LOOP_S), backend=INDUCTOR, repeat=repeat)


def test_compile_time_is_tested_between_processes() -> None:
    base = [compiled(cpu_s, repeat) for repeat, cpu_s in enumerate((10.0, 10.2, 9.9, 10.1))]
    worse = [compiled(cpu_s, repeat) for repeat, cpu_s in enumerate((12.0, 12.2, 11.9, 12.1))]
    assert verdict(base, worse, metric=Metric.COMPILE_TIME) is Verdict.SLOWER
    assert verdict(base[:1], worse[:1], metric=Metric.COMPILE_TIME) is Verdict.INCONCLUSIVE
    assert verdict(base, base) is Verdict.SAME


def test_a_run_promises_what_a_comparison_with_it_can_see() -> None:
    """With inductor each case has two tests, of the step and of compiling, and they share the error rate."""
    made = []
    for repeat, step_s in enumerate((0.1, 0.12, 0.09, 0.11)):
        one = compiled(10.0 + repeat / 100, repeat)
        assert isinstance(one.outcome, Measured)
        blocks = tuple(Block(block.variant, (step_s,)) for block in one.outcome.blocks)
        made.append(msgspec.structs.replace(one, outcome=msgspec.structs.replace(one.outcome, blocks=blocks)))
    run = run_of(made)
    (seen,) = (one.sees for one in compare_runs(run, run).findings if one.metric is Metric.LATENCY)
    (noise,) = noise_of(run)
    assert seen is not None
    assert seen > 0.2
    assert noise.sees == pytest.approx(seen)


@pytest.mark.parametrize("other", [compiled(1.0, cache=CacheMode.WARM), compiled(1.0, traced=True)])
def test_compile_times_with_other_caches_or_a_trace_are_not_compared(other: Record) -> None:
    found = compare_runs(run_of([compiled(10.0)]), run_of([other])).findings
    assert Metric.COMPILE_TIME not in {one.metric for one in found}


# --- nights of an index ---


def test_two_nights_of_an_index_have_the_findings_of_the_two_runs(tmp_path: Path) -> None:
    """All figures that a verdict depends on are kept: the shared device, the host's loop, eager's own time."""
    generator = random.Random(7)
    loops_s, shared = ((0.001, 0.001), (0.0012, 0.0012)), ({}, SHARED)
    paths = []
    for number in range(2):
        made = [*with_shared(1.0 + 0.1 * number, 5 * number), *[with_memory(100 + 50 * number, model="memory")]]
        made.append(with_counts(100 + number, 0.01, model="counts"))
        made += records((0.1 * (1 + number) * generator.lognormvariate(0, 0.02) for _ in range(5)), model="noisy")
        made += [record(process(0.1 * (1 + number), loop_s=loops_s[number], **shared[number]), model="single")]
        made += on_host(1.0 + 0.4 * number, 1.0 + 0.1 * number, model="host")
        made += [compiled(10.0 + number + repeat / 100, repeat) for repeat in range(5)]
        paths.append(night(tmp_path / "runs", number, made, torch="2.14.0"))
    history = read_history([tmp_path / "runs"])
    sides = [side(history.runs, str(path)) for path in paths]
    (machine,) = compare_versions(history, *sides, metrics=tuple(Metric)).machines
    of_runs = compare_runs(*map(read_run, paths))
    assert {one.metric for one in of_runs.findings} == set(Metric)

    def by_label(findings: Iterable[Finding]) -> list[Finding]:
        return sorted(findings, key=lambda one: (one.case.label(), one.metric))

    assert by_label(machine.findings) == by_label(of_runs.findings)
    assert machine.changes == of_runs.changes == ()
