"""The host's reference work, and the host's part of a step in its units."""

from __future__ import annotations

import time

import msgspec
import pytest
import torch

from examples import measured, record, run_of, variant_result
from repeated_runs import on_host, process
from torchzoo.analysis.bound import REFERENCE_HOST_S, step_model
from torchzoo.analysis.compare import compare_runs
from torchzoo.analysis.figures import case_figures
from torchzoo.analysis.judge import Verdict
from torchzoo.analysis.run_figures import Metric
from torchzoo.machine.differences import DifferenceKind
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.host import HostGate
from torchzoo.measure.host_reference import HostReference
from torchzoo.measure.latency import measure_latency
from torchzoo.measure.variant import Variant
from torchzoo.record import Block, Measured, Record
from torchzoo.settings import Settings

CPU = torch.device("cpu")


@pytest.mark.parametrize("trains", [True, False])
def test_the_work_takes_time_and_moves_no_random_numbers(trains: bool) -> None:  # noqa: FBT001
    before = torch.get_rng_state()
    reference = HostReference(CPU, DeviceClock(CPU), trains=trains)
    reference.warm_up()
    times_s = [reference.take_s() for _ in range(3)]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(0 < time_s < 1 for time_s in times_s)


def test_the_hosts_time_is_cpu_time_without_waiting() -> None:
    """A step that sleeps for most of its time takes CPU time for the rest."""
    sleeping = Variant(name="eager", step=lambda: time.sleep(0.01), select=lambda: None)
    clock = DeviceClock(CPU)
    gate = HostGate(None, time.perf_counter_ns)
    (first, *_) = measure_latency(
        [sleeping],
        clock,
        gate,
        Settings(time_limit_s=0.1),
        steps_per_block={"eager": 2},
        reference=HostReference(CPU, clock, trains=False).take_s,
    ).blocks
    assert first.cpu_s is not None
    assert first.cpu_s < min(first.samples_s) / 2
    assert first.reference_s is not None


def test_the_hosts_work_is_equal_on_hosts_of_unlike_speed() -> None:
    host_s = case_figures(on_host(1.0)).eager.host_s
    assert host_s is not None
    assert host_s.value == pytest.approx(9.85 * REFERENCE_HOST_S, rel=0.01)
    findings = {one.metric: one for one in compare_runs(run_of(on_host(1.0)), run_of(on_host(1.4))).findings}
    assert findings[Metric.HOST_TIME].verdict is Verdict.SAME
    assert findings[Metric.LATENCY].verdict is Verdict.INCONCLUSIVE


def test_three_percent_more_work_of_the_host_are_found_on_another_host() -> None:
    findings = {one.metric: one for one in compare_runs(run_of(on_host(1.0)), run_of(on_host(1.4, 1.03))).findings}
    assert findings[Metric.HOST_TIME].verdict is Verdict.SLOWER


def test_blocks_without_the_reference_have_no_figure() -> None:
    figures = case_figures([record(process(0.01))])
    assert figures.eager.host_s is None


def test_runs_of_unlike_hosts_are_compared_in_what_the_host_does_not_change() -> None:
    base, candidate = run_of(on_host(1.0)), run_of(on_host(1.4, 1.05))
    other = msgspec.structs.replace(candidate.manifest.environment, cpu="another CPU")
    moved = msgspec.structs.replace(candidate, manifest=msgspec.structs.replace(candidate.manifest, environment=other))
    comparison = compare_runs(base, moved, across=frozenset(DifferenceKind))
    assert [(one.metric, one.verdict) for one in comparison.findings] == [(Metric.HOST_TIME, Verdict.SLOWER)]
    assert comparison.device_ratios
    assert comparison.has_regression


@pytest.mark.parametrize(
    ("took_s", "device_s", "issued_s", "there", "expected_s"),
    [
        (
            0.010,
            0.001,
            0.0099,
            2.0,
            0.0199,
        ),  # driven by the host: all but what comes after its return takes twice as long
        (0.010, 0.008, 0.0099, 0.5, 0.008),  # driven by the host here, and by the device there
        (0.010, 0.0098, 0.003, 2.0, 0.0102),  # bound by the device, which the host still outruns
        (0.010, 0.0098, 0.006, 2.0, 0.012),  # bound by the device here, and by the host there
        (0.010, 0.0098, 0.003, 0.5, 0.0099),
        (0.010, 0.011, 0.003, 2.0, 0.010),  # a profiled step whose device took longer than a timed step
    ],
)
def test_a_step_on_another_host(
    took_s: float, device_s: float, issued_s: float, there: float, expected_s: float
) -> None:
    block = Block("eager", (took_s,), issued_s, issued_s, REFERENCE_HOST_S)
    eager = variant_result(device_active_s=device_s)
    model = step_model(measured(blocks=(block,) * 6, variants={"eager": eager}), "eager")
    assert model is not None
    assert model.step_s(there) == pytest.approx(expected_s)
    assert model.step_s(1.0) == pytest.approx(took_s)


def test_a_step_on_the_host_that_measured_it_takes_what_was_measured() -> None:
    def with_device_work(one: Record) -> Record:
        assert isinstance(one.outcome, Measured)
        eager = msgspec.structs.replace(one.outcome.variants["eager"], device_active_s=0.002)
        return msgspec.structs.replace(one, outcome=msgspec.structs.replace(one.outcome, variants={"eager": eager}))

    figures = case_figures([with_device_work(on_host(1.5)[0])])
    assert figures.eager.host_speed == pytest.approx(1.5)
    here, reference = figures.eager.latency_on(1.5), figures.eager.latency_on(1.0)
    assert here is not None
    assert reference is not None
    assert here.value == pytest.approx(0.015, rel=0.01)
    assert reference.value == pytest.approx(0.0098 + 0.0003, rel=0.01)
