"""The table of datasheets, the file of measured peaks, and measuring them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from examples import ENVIRONMENT
from torchzoo.analysis import peaks
from torchzoo.analysis.peaks import PeaksFileError, bus_ceiling_bytes_per_s, keep_measured, peaks_of, read_measured
from torchzoo.commands.doctor import (
    devices_alike,
    devices_to_measure,
    measure_and_keep_peaks,
    worlds,
)
from torchzoo.errors import TorchzooError
from torchzoo.machine.facts import Accelerator, MachineInfo
from torchzoo.measure.passes.measured_peaks import measure_peaks, median_s
from torchzoo.record import MeasuredPeaks
from torchzoo.run import questions

MEASURED = MeasuredPeaks(tflop_per_s={"fp32": 0.5, "bf16": 1.0}, gb_per_s=20.0, torch="2.15.0", date="2026-11-21")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHZOO_CACHE", str(tmp_path))
    return tmp_path / "peaks.yaml"


def test_every_entry_of_the_table_is_whole_and_says_where_it_is_from() -> None:
    sheets = peaks.datasheets()
    names = [name.casefold() for sheet in sheets for name in sheet.names]
    assert len(set(names)) == len(names)
    for sheet in sheets:
        assert sheet.url.startswith("https://"), sheet.names
        assert sheet.title
        assert {"fp32", "fp16"} <= set(sheet.tflop_per_s) <= {*peaks.PATHS, "fp64_matrix", "fp32_matrix"}, sheet.names
        assert sheet.gb_per_s > 100
        rising = [sheet.best_tflop_per_s(path) for path in ("fp32", "tf32", "fp16")]
        assert [value for value in rising if value] == sorted(value for value in rising if value), sheet.names
        assert sheet.tflop_per_s.get("bf16", sheet.tflop_per_s["fp16"]) == sheet.tflop_per_s["fp16"]


def test_products_use_the_matrix_units_of_their_precision() -> None:
    assert peaks_of("NVIDIA H200").compute["fp64"].per_s == pytest.approx(67e12)
    assert peaks_of("AMD Instinct MI210").compute["fp32"].per_s == pytest.approx(45.3e12)
    assert "tf32" not in peaks_of("Tesla V100-SXM2-16GB").compute


@pytest.mark.parametrize("name", ["NVIDIA H200", "H200", "nvidia h200", "A100-SXM4-40GB", "AMD Instinct MI300X"])
def test_a_device_is_found_by_its_name(name: str) -> None:
    assert peaks.datasheet(name) is not None


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA A10G",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "AMD Instinct MI250X/MI250",
        "NVIDIA H2000",
        "a CPU",
        "",
    ],
)
def test_another_device_is_not_taken_for_it(name: str) -> None:
    assert peaks.datasheet(name) is None
    assert peaks_of(name) == peaks.Peaks(compute={}, memory=None)


def test_measured_ceilings_serve_where_the_datasheet_has_nothing(cache: Path) -> None:
    keep_measured(
        cache, "NVIDIA L4", MeasuredPeaks(tflop_per_s={"fp64": 0.4, "fp32": 20}, gb_per_s=250, torch="2", date="D")
    )
    found = peaks_of("NVIDIA L4")
    assert (found.compute["fp32"].source, found.compute["fp32"].per_s) == ("datasheet", pytest.approx(30.3e12))
    assert (found.compute["fp64"].source, found.compute["fp64"].per_s) == (
        "measured D with torch 2",
        pytest.approx(4e11),
    )
    assert found.memory is not None
    assert found.memory.source == "datasheet"


def test_a_cpus_ceilings_are_those_of_the_same_number_of_threads(cache: Path) -> None:
    keep_measured(cache, peaks.measured_key("a CPU", 2), MEASURED)
    assert peaks_of("a CPU", threads=2).compute["bf16"].per_s == pytest.approx(1e12)
    assert peaks_of("a CPU", threads=1).compute == {}


def test_the_file_keeps_the_other_devices(cache: Path) -> None:
    keep_measured(cache, "one", MEASURED)
    keep_measured(cache, "other, 2 threads", MEASURED)
    keep_measured(cache, "one", MEASURED)
    assert read_measured(cache) == {"one": MEASURED, "other, 2 threads": MEASURED}
    assert [path.name for path in cache.parent.iterdir()] == ["peaks.yaml"]


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHZOO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert peaks.measured_file() == Path("/somewhere/torchzoo/peaks.yaml")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert peaks.measured_file() == Path("/home/me/.cache/torchzoo/peaks.yaml")


@pytest.mark.parametrize("text", ["a: [", "NVIDIA L4: {gb_per_s: fast}", "- 1", "NVIDIA L4: 3"])
def test_a_damaged_file_is_one_line_that_says_what_to_do(cache: Path, text: str) -> None:
    cache.write_text(text)
    with pytest.raises(PeaksFileError, match="delete it and run `torchzoo doctor --peaks`") as error:
        peaks_of("a CPU", threads=1)
    assert "\n" not in str(error.value)


def test_a_folder_that_can_not_be_written_is_one_line() -> None:
    with pytest.raises(PeaksFileError, match="can't"):
        keep_measured(Path("/proc/nowhere/peaks.yaml"), "one", MEASURED)


class FakeClock:
    """Work moves it."""

    def __init__(self) -> None:
        self.time_ns = 0
        self.waits = 0

    def now_ns(self) -> int:
        return self.time_ns

    def synchronize(self) -> None:
        self.waits += 1

    def mark(self) -> None: ...

    def device_time_s(self, began: object, ended: object) -> None: ...


def test_a_rate_is_the_median_of_runs_long_enough_to_time() -> None:
    clock, calls = FakeClock(), []

    def work() -> None:
        calls.append(1)
        clock.time_ns += 100_000_000 if len(calls) == 30 else 1_000_000  # one disturbed call of 1 ms

    assert median_s(work, clock) == pytest.approx(1e-3)
    assert len(calls) == 2 + 5 * 10


@pytest.mark.slow
def test_a_cpu_is_measured_and_does_not_copy_faster_than_light() -> None:
    found = measure_peaks(torch.device("cpu"), slow_s=0.01)
    assert {"fp64", "fp32"} <= set(found.tflop_per_s) <= set(peaks.PATHS) - {"tf32"}
    assert 1e-4 < found.tflop_per_s["fp32"] < 100
    assert 0.1 < found.gb_per_s < 5000
    assert found.torch == torch.__version__


@pytest.mark.gpu
def test_a_gpu_reaches_less_than_its_datasheet_says() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        found = measure_peaks(torch.device("cuda", 0))
    finally:
        torch.set_float32_matmul_precision(before)
    sheet = peaks.datasheet(torch.cuda.get_device_name())
    assert found.tflop_per_s["fp16"] > found.tflop_per_s["fp32"]
    if sheet is not None:
        for path, value in found.tflop_per_s.items():
            stated = sheet.best_tflop_per_s(path)
            assert stated is None or 0.3 < value / stated < 1.1, path
        assert 0.5 < found.gb_per_s / sheet.gb_per_s < 1.05


def test_one_device_of_each_name_is_measured() -> None:
    names = ["NVIDIA A10", "NVIDIA L4", "NVIDIA A10"]
    facts = MachineInfo(
        devices={"cpu": 1, "cuda": 3},
        dynamo_backends=(),
        environment=ENVIRONMENT,
        accelerators=tuple(Accelerator(name=name) for name in names),
    )
    assert devices_to_measure(facts) == ["cpu", "cuda:0", "cuda:1"]


class FakeServer:
    def measured_peaks(self, device: str) -> tuple[str, int | None, MeasuredPeaks]:
        name, threads = {"cpu": ("a CPU", 2), "cuda:0": ("NVIDIA L4", None)}[device]
        return name, threads, MEASURED

    def bus_peaks(self, devices: list[str]) -> dict[str, float]:
        return {"all_reduce": 100.0 * len(devices)}


FACTS = MachineInfo(
    devices={"cpu": 1, "cuda": 1},
    dynamo_backends=(),
    environment=ENVIRONMENT,
    accelerators=(Accelerator(name="NVIDIA L4"),),
)


def test_what_was_measured_is_shown_and_kept(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure_and_keep_peaks(FakeServer(), FACTS)  # type: ignore[arg-type]
    kept = read_measured(cache)
    assert kept.pop("a CPU, 2 ranks").bus_gb_per_s == {"all_reduce": 200.0}
    assert kept == {"a CPU, 2 threads": MEASURED, "NVIDIA L4": MEASURED}  # there is one GPU: no other to talk to
    assert bus_ceiling_bytes_per_s("a CPU", 2, "all_reduce") == 200e9
    assert bus_ceiling_bytes_per_s("a CPU", 4, "all_reduce") is None
    shown = capsys.readouterr().out
    assert "a CPU, 2 threads, torch 2.15.0" in shown
    assert f"kept in {cache}" in shown


def test_links_are_measured_between_two_four_and_all_devices() -> None:
    six = MachineInfo(
        devices={"cpu": 1, "cuda": 7},
        dynamo_backends=(),
        environment=ENVIRONMENT,
        accelerators=(*[Accelerator(name="A")] * 6, Accelerator(name="B")),
    )
    assert devices_alike(six, "cuda:0") == [f"cuda:{number}" for number in range(6)]
    assert worlds(6) == [2, 4, 6]
    assert worlds(len(devices_alike(six, "cuda:6"))) == []
    assert worlds(len(devices_alike(six, "cpu"))) == [2]


def test_a_damaged_file_is_noticed_before_anything_is_measured(cache: Path) -> None:
    cache.write_text("[")
    with pytest.raises(PeaksFileError):
        measure_and_keep_peaks(None, FACTS)  # type: ignore[arg-type]


def test_a_device_that_can_not_be_used_is_one_line() -> None:
    with pytest.raises(TorchzooError, match=r"^can't measure nonsense:0: [^\n]*$"):
        questions.measured_peaks("nonsense:0")
