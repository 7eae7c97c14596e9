"""What was achieved, which peak it is held against, and what bounds it, from records with known answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples import CASE, measured, record, rendered, variant_result
from torchzoo.analysis.peaks import Peak, Peaks, keep_measured
from torchzoo.analysis.roofline import RooflineBound, achieved, known_peaks, mixed_peak
from torchzoo.record import BackToBack, Block, Breakdown, Flops, Measured, MeasuredPeaks, StepTime
from torchzoo.report import one_case
from torchzoo.report.one_case import work_lines

PEAKS = Peaks(
    compute={path: Peak(per_s=rate, source="datasheet") for path, rate in {"fp32": 50.0, "tf32": 450.0}.items()},
    memory=Peak(per_s=100.0, source="datasheet"),
)
DEFAULT = {"cudnn_allow_tf32": "True", "float32_matmul_precision": "highest"}


def flops(moved: int | None = None, without: dict[str, int] | None = None, **by_operator: dict[str, int]) -> Flops:
    return Flops(
        total=sum(sum(each.values()) for each in by_operator.values()),
        by_operator={f"aten::{name}": each for name, each in by_operator.items()},
        bytes_moved=moved,
        without_formula=without or {},
    )


def case_of(work: Flops | None, *, host_s: float | None = None, busy_s: float | None = None, **more: Any) -> Measured:
    """A step of one second, the host's part of it, and what a breakdown found."""
    result = variant_result(
        back_to_back=(BackToBack(4, 4.0, host_s=host_s),) * 3,
        breakdown=None if busy_s is None else Breakdown(steps=(StepTime(2.0, busy_s, 0.0),) * 3, kernels=()),
    )
    names = more.pop("names", ("eager",))
    return measured(
        blocks=tuple(Block(name, (second,)) for name in names for second in (0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.1)),
        variants=dict.fromkeys(names, result),
        flops=work,
        precision_flags=DEFAULT,
        **more,
    )


def bound(case: Measured, variant: str = "eager", peaks: Peaks = PEAKS) -> RooflineBound:
    found = achieved(case, variant, peaks)
    assert found is not None
    return found.bound


def test_what_was_achieved_has_the_interval_of_the_latency() -> None:
    found = achieved(case_of(flops(mm={"float32": 10})), "eager", PEAKS)
    assert found is not None
    assert (found.flop_per_s.low, found.flop_per_s.value) == (pytest.approx(10 / 1.1), pytest.approx(10))
    assert found.flop_per_s.high == pytest.approx(10 / 0.9)
    assert found.mfu is not None
    assert found.mfu.value == pytest.approx(10 / 50)


def test_nothing_is_said_where_nothing_was_counted() -> None:
    assert achieved(case_of(None), "eager", PEAKS) is None
    assert work_lines(CASE, case_of(None)) == []


def test_the_peak_of_a_mixture_adds_times_not_rates() -> None:
    """90 at 450 a second and 10 at 50 take 0.4 s: 250 a second, not the 410 of a mean of rates."""
    work = flops(convolution={"float32": 80}, convolution_backward={"float32": 10}, mm={"float32": 10})
    found = mixed_peak(work, DEFAULT, PEAKS)
    assert found is not None
    assert found.flop_per_s == pytest.approx(250)
    assert found.paths == {"tf32": pytest.approx(0.9), "fp32": pytest.approx(0.1)}


@pytest.mark.parametrize(
    ("operator", "changes", "path"),
    [
        ("convolution", {}, "tf32"),
        ("_cudnn_rnn", {}, "tf32"),
        ("addmm", {}, "fp32"),
        ("convolution", {"cudnn_allow_tf32": "False"}, "fp32"),
        ("addmm", {"float32_matmul_precision": "high"}, "tf32"),
        ("convolution", {"cudnn_allow_tf32": "False", "float32_matmul_precision": "high"}, "fp32"),
    ],
)
def test_flags_decide_between_tf32_and_fp32(operator: str, changes: dict[str, str], path: str) -> None:
    found = mixed_peak(flops(**{operator: {"float32": 7}}), DEFAULT | changes, PEAKS)
    assert found is not None
    assert found.paths == {path: 1.0}


def test_a_device_without_tf32_computes_in_fp32() -> None:
    without = Peaks(compute={"fp32": PEAKS.compute["fp32"]}, memory=None)
    found = mixed_peak(flops(convolution={"float32": 7}), DEFAULT, without)
    assert found is not None
    assert found.paths == {"fp32": 1.0}


def test_the_dtype_is_the_operators_own_not_the_labels() -> None:
    both = Peaks(compute=PEAKS.compute | {"fp16": Peak(per_s=900.0, source="measured")}, memory=None)
    found = mixed_peak(flops(mm={"float16": 90, "float32": 10}), DEFAULT, both)
    assert found is not None
    assert found.flop_per_s == pytest.approx(100 / (90 / 900 + 10 / 50))
    assert found.source == "measured and datasheet"


@pytest.mark.parametrize("work", [flops(), flops(linear={"quint8": 5}), flops(mm={"float32": 5, "float64": 1})])
def test_no_peak_is_guessed(work: Flops) -> None:
    assert mixed_peak(work, DEFAULT, PEAKS) is None
    found = achieved(case_of(work), "eager", PEAKS)
    assert found is not None
    assert (found.mfu, found.bound) == (None, RooflineBound.UNKNOWN)


COMPUTE, MEMORY, LITTLE = flops(40, mm={"float32": 45}), flops(90, mm={"float32": 5}), flops(4, mm={"float32": 2})


def test_an_idle_device_waits_for_launches() -> None:
    assert bound(case_of(LITTLE, busy_s=0.4)) is RooflineBound.LAUNCH
    assert bound(case_of(LITTLE, busy_s=0.6)) is RooflineBound.UNKNOWN  # busy, but with nothing that is known
    assert bound(case_of(MEMORY, busy_s=0.4)) is RooflineBound.LAUNCH  # bytes that caches kept from moving


def test_without_a_breakdown_the_hosts_time_tells() -> None:
    assert bound(case_of(LITTLE, host_s=0.95)) is RooflineBound.LAUNCH
    assert bound(case_of(LITTLE, host_s=0.5)) is RooflineBound.UNKNOWN
    assert (
        bound(case_of(COMPUTE, host_s=0.95)) is RooflineBound.COMPUTE
    )  # the queue of launches is full, the device is not idle


def test_a_step_that_waits_by_nature_says_nothing_of_launches() -> None:
    assert bound(case_of(LITTLE, host_s=1.0, host_syncs="NMS")) is RooflineBound.UNKNOWN


def test_the_ceiling_that_is_used_more_bounds() -> None:
    for known in ({}, {"host_s": 0.1}, {"busy_s": 1.0}):
        assert bound(case_of(COMPUTE, **known)) is RooflineBound.COMPUTE
        assert bound(case_of(MEMORY, **known)) is RooflineBound.MEMORY


def test_a_third_of_a_ceiling_explains_a_busy_device_only() -> None:
    third = flops(33, mm={"float32": 5})
    assert bound(case_of(third, busy_s=0.9)) is RooflineBound.MEMORY
    assert bound(case_of(third, host_s=0.1)) is RooflineBound.MEMORY
    assert bound(case_of(third)) is RooflineBound.UNKNOWN


def test_of_a_candidate_bytes_are_not_known() -> None:
    names = ("eager", "candidate")
    assert bound(case_of(MEMORY, busy_s=1.0, names=names), "candidate") is RooflineBound.UNKNOWN
    assert bound(case_of(flops(33, mm={"float32": 20}), busy_s=1.0, names=names), "candidate") is RooflineBound.UNKNOWN
    assert bound(case_of(COMPUTE, busy_s=1.0, names=names), "candidate") is RooflineBound.COMPUTE
    found = achieved(case_of(MEMORY, busy_s=1.0, names=names), "candidate", PEAKS)
    assert found is not None
    assert "bytes of fused code are not known" in found.why


def test_memory_is_not_blamed_where_operations_are_missing() -> None:
    work = flops(90, {"aten::_fft_r2c": 3}, mm={"float32": 5})
    assert bound(case_of(work, busy_s=1.0)) is RooflineBound.UNKNOWN


@pytest.fixture
def _measured_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHZOO_CACHE", str(tmp_path))
    known = MeasuredPeaks(tflop_per_s={"fp32": 0.1}, gb_per_s=20.0, torch="2.15.0", date="2026-11-21")
    keep_measured(tmp_path / "peaks.yaml", "a CPU, 2 threads", known)


@pytest.mark.usefixtures("_measured_cpu")
def test_peaks_are_of_the_device_and_threads_of_the_case() -> None:
    assert known_peaks(CASE, measured()).compute["fp32"].per_s == pytest.approx(1e11)
    assert known_peaks(CASE, measured(threads=1)).compute == {}
    h200 = known_peaks(record(device="cuda").case, measured(device_name="NVIDIA H200"))
    assert h200.compute["fp16"].per_s == pytest.approx(989.5e12)


def test_an_unknown_device_and_a_damaged_file_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHZOO_CACHE", str(tmp_path))
    case = case_of(flops(without={"aten::_fft_r2c": 3}, mm={"float32": 5}))
    text = rendered(one_case.brief(record(case)))
    assert "not known; see torchzoo doctor --peaks" in text
    assert "no formula for aten::_fft_r2c (3 calls)" in text
    (tmp_path / "peaks.yaml").write_text("[")
    assert "can't read" in rendered(one_case.brief(record(case)))
