"""The leak check: verdicts on series with known growth, and real steps that leak or do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import examples
from torchzoo.analysis import leaks
from torchzoo.analysis.leaks import LeakVerdict, Measure
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.passes.leak import measure_growth
from torchzoo.record import Growth
from torchzoo.report.remarks import growth_lines, remarks

CPU = torch.device("cpu")
KIB, MIB = 2**10, 2**20


def verdict(values: list[int], measure: Measure = Measure.DEVICE) -> LeakVerdict:
    fields: dict[str, Any] = {"device_bytes": None, "host_bytes": (0,) * len(values), "heap_bytes": None}
    names = {Measure.DEVICE: "device_bytes", Measure.HEAP: "heap_bytes", Measure.HOST: "host_bytes"}
    fields[names.get(measure, "python_objects")] = tuple(values)
    return leaks.check(Growth(**fields)).verdicts[measure]


@pytest.mark.parametrize(
    ("values", "measure", "found"),
    [
        ([512 * step for step in range(8)], Measure.DEVICE, LeakVerdict.LEAK),
        ([0] * 8, Measure.DEVICE, LeakVerdict.LEVEL),
        ([10_000 - step for step in range(30)], Measure.DEVICE, LeakVerdict.LEVEL),
        ([min(step, 14) * MIB for step in range(30)], Measure.DEVICE, LeakVerdict.LEVEL),  # a buffer that fills
        ([0, 0, 64 * MIB, *[80 * MIB] * 27], Measure.DEVICE, LeakVerdict.LEVEL),
        ([MIB * (step % 2) + 3 * MIB * step for step in range(30)], Measure.DEVICE, LeakVerdict.LEAK),
        ([MIB * (step // 2) for step in range(30)], Measure.DEVICE, LeakVerdict.LEAK),  # in every second step
        ([0] * 22 + [10 * MIB] * 8, Measure.HOST, LeakVerdict.INCONCLUSIVE),  # one jump
    ],
)
def test_memory_that_rises_in_each_step_leaks(values: list[int], measure: Measure, found: LeakVerdict) -> None:
    assert verdict(values, measure) is found


def test_memory_that_goes_up_and_down_by_turns_does_not_leak() -> None:
    assert verdict([MIB * (step % 2) for step in range(30)]) is not LeakVerdict.LEAK
    assert verdict([MIB * (step % 5) for step in range(30)]) is not LeakVerdict.LEAK


def test_noise_of_the_hosts_pages_is_rarely_called_a_leak_and_a_leak_of_a_megabyte_a_step_mostly() -> None:
    generator = random.Random(3)
    noisy = [[round(generator.gauss(0, MIB)) for _ in range(30)] for _ in range(400)]
    false = sum(verdict(values, Measure.HOST) is LeakVerdict.LEAK for values in noisy)
    found = sum(
        verdict([v + MIB * i for i, v in enumerate(values)], Measure.HOST) is LeakVerdict.LEAK for values in noisy
    )
    assert false <= 0.02 * 400
    assert found >= 0.95 * 400


def test_the_heap_stands_for_the_hosts_pages_where_it_is_known() -> None:
    pages = tuple(10 * MIB * step for step in range(30))
    assert leaks.check(Growth(device_bytes=None, host_bytes=pages)).verdict is LeakVerdict.LEAK
    level = Growth(device_bytes=None, host_bytes=pages, heap_bytes=(MIB,) * 30, python_objects=(7,) * 30)
    assert leaks.check(level).verdict is LeakVerdict.LEVEL


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="at least four"):
        leaks.slope([1.0, 2.0, 3.0])


def growth_of(step: Callable[[], Any], step_s: float = 0.001) -> Growth:
    for _ in range(3):
        step()
    return measure_growth(step, DeviceClock(CPU), CPU, step_s=step_s)


def trained(width: int = 64) -> Callable[[], torch.Tensor]:
    network = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.Adam(network.parameters())
    inputs = torch.randn(32, width)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = network(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def test_an_honest_training_step_is_level() -> None:
    growth = growth_of(trained())
    found = leaks.check(growth)
    assert found.verdict is LeakVerdict.LEVEL, found
    assert len(growth.host_bytes) == 30
    assert growth.device_bytes is None
    assert min(growth.host_bytes) > MIB


def test_tensors_that_are_kept_are_a_leak() -> None:
    kept: list[torch.Tensor] = []
    step = trained()
    growth = growth_of(lambda: kept.append(torch.ones(64 * KIB)) or step())
    found = leaks.check(growth)
    assert found.verdict is LeakVerdict.LEAK
    if growth.heap_bytes is not None:
        assert found.slopes[Measure.HEAP].value == pytest.approx(256 * KIB, rel=0.1)


def test_python_objects_that_are_kept_are_a_leak_by_their_number() -> None:
    kept: list[dict[str, object]] = []
    step = trained()

    def leaking() -> None:
        kept.append({"loss": step().detach().item(), "of": [len(kept)]})

    found = leaks.check(growth_of(leaking))
    assert found.verdicts[Measure.PYTHON] is LeakVerdict.LEAK
    assert found.slopes[Measure.PYTHON].value == pytest.approx(2, abs=0.5)


def test_garbage_in_cycles_is_collected_before_it_is_counted() -> None:
    step = trained()

    def cyclic() -> None:
        cycle: list[object] = [torch.ones(KIB)]
        cycle.append(cycle)
        step()

    assert leaks.check(growth_of(cyclic)).verdict is LeakVerdict.LEVEL


def test_slow_steps_are_fewer_but_never_below_eight() -> None:
    assert len(growth_of(lambda: None, step_s=0.5).host_bytes) == 20
    assert len(growth_of(lambda: None, step_s=60.0).host_bytes) == 8


def test_a_leak_is_a_remark_and_a_level_growth_a_line() -> None:
    level = Growth(device_bytes=None, host_bytes=(0,) * 8, heap_bytes=(0,) * 8, python_objects=(0,) * 8)
    leaking = Growth(device_bytes=tuple(MIB * step for step in range(8)), host_bytes=(0,) * 8)
    measured = examples.measured(variants={"eager": examples.variant_result(growth=leaking)})
    assert "eager: its memory leaks: 1.00 MiB a step on the device" in remarks(measured)
    quiet = examples.measured(variants={"eager": examples.variant_result(growth=level)})
    assert not any("leak" in remark for remark in remarks(quiet))
    results = [examples.variant_result(growth=level), examples.variant_result()]
    assert growth_lines(results) == [("growth of memory", ["none in 8 steps", "-"])]


@pytest.mark.gpu
def test_on_a_gpu_the_allocators_bytes_tell_a_leak_from_a_level_step() -> None:
    device = torch.device("cuda", 0)
    kept: list[torch.Tensor] = []
    clock = DeviceClock(device)
    leaking = measure_growth(lambda: kept.append(torch.ones(256, device=device)), clock, device, step_s=0.01)
    assert leaks.check(leaking).verdicts[Measure.DEVICE] is LeakVerdict.LEAK
    level = measure_growth(lambda: torch.ones(KIB, device=device).sum(), clock, device, step_s=0.01)
    assert leaks.check(level).verdicts[Measure.DEVICE] is LeakVerdict.LEVEL
