"""One run against another: what newly fails or is gone, and which differences of machines are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from examples import environment, measured, record, results_of, run_of
from repeated_runs import FAILED, STEADY, process, records
from torchzoo.analysis.compare import Change, compare_runs
from torchzoo.case import Domain
from torchzoo.errors import UsageError
from torchzoo.machine.differences import DifferenceKind
from torchzoo.record import Check, CheckStatus, DeviceState, Environment, Gpu, HostWatch, Skipped
from torchzoo.report import run_comparison as shown
from torchzoo.report import summary

# --- status ---


def test_what_newly_fails_passes_is_skipped_new_or_gone_is_listed() -> None:
    wrong = process(0.1, check=Check(status=CheckStatus.INCORRECT, reason="loss is off"))
    base = [record(model=name) for name in ("fails", "wrong", "skips", "gone")]
    base += [record(FAILED, model="mended"), record(FAILED, model="broken")]
    candidate = [
        record(FAILED, model="fails"),
        record(wrong, model="wrong"),
        record(Skipped(reason="why"), model="skips"),
        record(model="mended"),
        record(FAILED, model="broken"),
        record(model="new"),
    ]
    comparison = compare_runs(run_of(base), run_of(candidate))
    assert {change.case.model: change.change for change in comparison.changes} == {
        "fails": Change.NEWLY_FAILING,
        "wrong": Change.NEWLY_FAILING,
        "skips": Change.NEWLY_SKIPPED,
        "mended": Change.NEWLY_PASSING,
        "new": Change.NEW,
        "gone": Change.GONE,
    }
    assert comparison.still_failing == 1
    assert comparison.has_regression


def test_wrong_results_are_neither_faster_nor_slower() -> None:
    """A step that is slower since its results are right again is no regression."""
    wrong = Check(status=CheckStatus.INCORRECT, reason="loss is off")
    fast = [record(process(0.05, check=wrong), repeat=repeat) for repeat in range(5)]
    right = [record(process(0.1), repeat=repeat) for repeat in range(5)]
    mended, broken = compare_runs(run_of(fast), run_of(right)), compare_runs(run_of(right), run_of(fast))
    assert [one.change for one in mended.changes] == [Change.NEWLY_PASSING]
    assert [one.change for one in broken.changes] == [Change.NEWLY_FAILING]
    assert (mended.findings, mended.has_regression) == ((), False)
    assert (broken.findings, broken.has_regression) == ((), True)


def test_a_case_that_fails_in_one_of_its_processes_fails() -> None:
    comparison = compare_runs(run_of(records(STEADY)), run_of([*records(STEADY)[:4], record(FAILED, repeat=4)]))
    [change] = comparison.changes
    assert change.change is Change.NEWLY_FAILING
    assert change.candidate == "failed, error in build: no (in 1 of 5 processes)"


# --- what the runs stand on ---


def on(gpu: str = "NVIDIA H200", *, driver: str = "580.1", **changes: Any) -> Environment:
    return environment(gpus=(Gpu(name=gpu, memory_bytes=1, driver=driver),), **changes)


def test_one_device_against_another_gives_ratios_by_domain() -> None:
    domains = {"a": Domain.NLP, "b": Domain.NLP, "c": Domain.SPEECH}
    base = [record(process(step_s), model=name) for name, step_s in (("a", 0.2), ("b", 0.8), ("c", 0.1))]
    candidate = [record(process(0.1, device_name="a GPU"), model=name, device="cuda") for name in "abc"]
    comparison = compare_runs(
        run_of(base, domains=domains),
        run_of(candidate, domains=domains, environment=on()),
        across=frozenset({DifferenceKind.HARDWARE, DifferenceKind.DRIVER}),
    )
    means = {mean.domain: (mean.ratio.value, mean.cases) for mean in comparison.device_means}
    assert means["nlp"] == (pytest.approx(4.0), 2)
    assert means["all"] == (pytest.approx(16 ** (1 / 3)), 3)
    ratios = {one.case.model: one.ratio for one in comparison.device_ratios}
    assert {name: ratio.value for name, ratio in ratios.items()} == pytest.approx({"a": 2, "b": 8, "c": 1})
    # The steps of each run are within 0.5%, and each median's interval holds at 95%. The runs are not paired.
    assert (ratios["b"].low, ratios["b"].high) == pytest.approx((8 * 0.995 / 1.005, 8 * 1.005 / 0.995))
    assert ratios["b"].confidence == pytest.approx(0.9)
    assert not comparison.has_regression
    assert "| 1.00x [0.99, 1.01] (at 90%) |" in shown.as_markdown(comparison)


def test_during_how_many_cases_the_host_stayed_slow_is_said() -> None:
    watch = HostWatch(undisturbed_s=0.001, looks_s=(0.002,), waited_s=0.0, fast_cores=(), was_slow=True)
    slow = [record(msgspec.structs.replace(measured(), host=watch), model=name) for name in "ab"]
    base, candidate = run_of([record(model=name) for name in "abc"]), run_of([*slow, record(model="c")])
    comparison = compare_runs(base, candidate)
    assert comparison.slow_hosts == (0, 2)
    (line,) = [line for line in shown.summary(comparison) if "slow" in line]
    assert line.startswith("the host stayed slow while 0 cases of the base and 2 of the candidate were measured")
    assert not [line for line in shown.summary(compare_runs(base, base)) if "slow" in line]
    assert summary.slow_hosts(results_of(candidate.records)) == [
        "the host stayed slow while 2 of 3 cases were measured: such steps count"
    ]
    assert summary.slow_hosts(results_of(base.records)) == []


def test_during_how_many_cases_others_used_the_device_is_said() -> None:
    has_open = measured(device_state_before=DeviceState(foreign_processes=0))
    has_open = msgspec.structs.replace(has_open, device_state_after=DeviceState(foreign_processes=2))
    both = [record(has_open, model="a"), record(measured(device_was_busy=True), model="b"), record(model="c")]
    base, candidate = run_of(both), run_of([record(model=name) for name in "abc"])
    (line,) = [line for line in shown.summary(compare_runs(base, candidate)) if "device" in line]
    assert "while 2 cases of the base and 0 of the candidate" in line
    assert not [line for line in shown.summary(compare_runs(candidate, candidate)) if "device" in line]


def test_runs_without_a_common_case_are_refused() -> None:
    with pytest.raises(UsageError, match="no case in common"):
        compare_runs(run_of([record()]), run_of([record(model="b")]))
