"""How runs differ: which records may stand in one report or in one resumed run, and what a comparison accepts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.utils import canonicalize_name

from examples import CASE, manifest, measured, record, run_of
from kept_runs import keep
from torchzoo.analysis.cases import read_report_data
from torchzoo.analysis.compare import compare_runs
from torchzoo.case import Backend
from torchzoo.errors import UsageError
from torchzoo.machine.differences import DifferenceKind, machine_differences, run_differences
from torchzoo.machine.facts import KERNEL_PACKAGES
from torchzoo.record import Environment, Gpu, Manifest, Record
from torchzoo.report import markdown
from torchzoo.run.experiment import check_same_machine
from torchzoo.settings import CacheMode, Settings
from torchzoo.store import Run, StoreError, read_run

H200 = Gpu(name="NVIDIA H200", memory_bytes=150_754_820_096, driver="580.159.04")
MIG = msgspec.structs.replace(H200, memory_bytes=18 * 2**30)
ENVIRONMENT = Environment(
    torchzoo="0.1.0",
    torchzoo_commit="2c6ebe8",
    python="3.11.7",
    platform="Linux",
    cpu="a CPU",
    cpu_count=16,
    cpu_usable=8,
    host_memory_bytes=2**35,
    torch="2.15.0",
    torch_commit="d0f2af8",
    cuda="13.2",
    hip=None,
    cudnn=92600,
    packages={"timm": "1.0.31", "numpy": "2.4.6"},
    gpus=(H200, H200),
    variables={"OMP_NUM_THREADS": "8"},
)
SETTINGS = Settings(threads=8, jobs=4)

#: What is changed in the environment, and the difference that it makes: kind, name and both values.
REFUSED: list[tuple[dict[str, Any], tuple[str, str, str, str]]] = [
    ({"cpu": "another"}, ("hardware", "CPU", "a CPU", "another")),
    ({"cpu_usable": 4}, ("hardware", "usable cores", "8", "4")),
    ({"gpus": (H200,)}, ("hardware", "device", "2 x NVIDIA H200 (140.4 GiB)", "1 x NVIDIA H200 (140.4 GiB)")),
    ({"gpus": (MIG, MIG)}, ("hardware", "device", "2 x NVIDIA H200 (140.4 GiB)", "2 x NVIDIA H200 (18.0 GiB)")),
    ({"gpus": (msgspec.structs.replace(H200, driver="590.1"),) * 2}, ("driver", "driver", "580.159.04", "590.1")),
    ({"torch": "2.16.0"}, ("torch", "torch", "2.15.0", "2.16.0")),
    ({"torch_commit": "70d99e9"}, ("torch", "torch_commit", "d0f2af8", "70d99e9")),
    ({"cuda": "13.0"}, ("torch", "cuda", "13.2", "13.0")),
    ({"cuda": None}, ("torch", "cuda", "13.2", "none")),
    ({"hip": "7.0"}, ("torch", "hip", "none", "7.0")),
    ({"cudnn": 92700}, ("torch", "cudnn", "92600", "92700")),
    ({"distributions": {"mamba-ssm": "2.2.4", "pytest": "9"}}, ("kernels", "mamba-ssm", "none", "2.2.4")),
    ({"python": "3.12.1"}, ("other", "python", "3.11.7", "3.12.1")),
    ({"packages": {"timm": "1.0.31", "numpy": "2.5.0"}}, ("other", "numpy", "2.4.6", "2.5.0")),
    ({"packages": {"numpy": "2.4.6"}}, ("other", "timm", "1.0.31", "none")),
]

#: What may differ between records that stand together.
ACCEPTED: list[dict[str, Any]] = [
    {"torchzoo": "0.2.0", "torchzoo_commit": "be46279"},
    {"variables": {"OMP_NUM_THREADS": "2", "TORCH_LOGS": "dynamo"}},
    {"distributions": {"effdet": "0.4.1", "pytest": "9.1.1"}},
    {"platform": "Linux 7", "host_memory_bytes": 2**34, "cpu_count": 32},
]


def of(settings: Settings = SETTINGS, **environment: Any) -> Manifest:
    return manifest(environment=msgspec.structs.replace(ENVIRONMENT, **environment), settings=settings)


def found(base: Manifest, candidate: Manifest) -> list[tuple[str, str, str, str]]:
    return [(d.kind, d.name, d.base, d.candidate) for d in machine_differences(base, candidate)]


def keep_with(path: Path, records: Sequence[Record], settings: Settings = SETTINGS, **environment: Any) -> Path:
    facts = msgspec.structs.replace(ENVIRONMENT, **environment)
    return keep(path, records, environment=facts, settings=settings)


def run(
    device: str = "cuda", *, device_name: str = "NVIDIA H200", settings: Settings = SETTINGS, **changes: Any
) -> Run:
    """A run of one case on `device`, with these changes of the environment."""
    environment = msgspec.structs.replace(ENVIRONMENT, **changes)
    records = [record(measured(device_name=device_name), device=device)]
    return run_of(records, environment=environment, settings=settings)


def differences(base: Run, candidate: Run) -> dict[str, tuple[str, str, str]]:
    return {d.name: (d.kind, d.base, d.candidate) for d in run_differences(base, candidate)}


# --- records that stand together ---


@pytest.mark.parametrize(("change", "difference"), REFUSED, ids=lambda value: str(value)[:40])
def test_another_machine_or_other_software_stands_apart(
    change: dict[str, Any], difference: tuple[str, str, str, str]
) -> None:
    kind, name, base, candidate = difference
    assert found(of(), of(**change)) == [difference]
    assert found(of(**change), of()) == [(kind, name, candidate, base)]


def test_of_mixed_gpus_the_number_of_each_counts() -> None:
    b200 = msgspec.structs.replace(H200, name="NVIDIA B200")
    [(_, name, base, _)] = found(of(gpus=(H200, H200, b200)), of(gpus=(H200, b200, b200)))
    assert name == "device"
    assert base == "2 x NVIDIA H200 (140.4 GiB), 1 x NVIDIA B200 (140.4 GiB)"


@pytest.mark.parametrize("change", ACCEPTED, ids=str)
def test_what_does_not_change_a_measurement_may_differ(change: dict[str, Any]) -> None:
    assert found(of(), of(**change)) == []


def test_settings_that_change_a_measurement_stand_apart_and_others_do_not() -> None:
    change = msgspec.structs.replace
    assert found(of(), of(change(SETTINGS, threads=2))) == [("other", "threads", "8", "2")]
    assert found(of(), of(change(SETTINGS, threads=None))) == [("other", "threads", "8", "none")]
    assert found(of(), of(change(SETTINGS, cache=CacheMode.WARM))) == [("other", "compile caches", "cold", "warm")]
    assert found(of(), of(change(SETTINGS, jobs=1, time_limit_s=3.0))) == []


@pytest.mark.parametrize("name", KERNEL_PACKAGES)
def test_libraries_with_kernels_are_compared_by_version_and_the_others_are_not(name: str) -> None:
    assert canonicalize_name(name) == name  # as `installed_distributions` writes it
    one, other = (of(distributions={name: version, "pytest": version}) for version in ("1.0", "2.0"))
    assert found(one, one) == []
    assert found(one, other) == [("kernels", name, "1.0", "2.0")]
    assert found(of(distributions=None), other) == [("kernels", name, "none", "2.0")]
    assert f", {name} 1.0" in markdown.software_line(one)


# --- where it is asked ---


@pytest.mark.parametrize("change", [change for change, _ in REFUSED], ids=str)
def test_a_report_over_two_runs_names_them_and_what_differs(tmp_path: Path, change: dict[str, Any]) -> None:
    one = keep_with(tmp_path / "one", [record()])
    two = keep_with(tmp_path / "two", [record(model="b")], **change)
    with pytest.raises(StoreError) as error:
        read_report_data([one, two])
    message = str(error.value)
    assert "\n" not in message
    assert str(one) in message
    assert str(two) in message
    for _, name, base, candidate in found(of(), of(**change)):
        assert f"{name} is {base} and {candidate}" in message


#: What may differ between the hosts of cases on a GPU: each has a GPU and cores of its own.
OTHER_HOSTS: list[dict[str, Any]] = [{"gpus": (H200,), "cpu_usable": 4}, {"cpu_usable": 64}]


@pytest.mark.parametrize("change", OTHER_HOSTS, ids=str)
def test_a_report_on_gpus_takes_hosts_with_more_or_fewer_of_the_same_kind_and_names_them(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    paths = []
    for model, environment in {"a": {}, "b": change | {"torchzoo_commit": "fffffff"}}.items():
        one = record(measured(device_name="NVIDIA H200"), model=model, device="cuda")
        paths.append(keep_with(tmp_path / model, [one], **environment))
    data = read_report_data(paths)
    assert [result.case.model for result in data.cases] == ["a", "b"]
    said = "\n".join(markdown.provenance(*(run.manifest for run in data.runs)).texts)
    assert "8 cores; 2 x NVIDIA H200 (driver 580.159.04); and a CPU, " in said
    assert f"{change['cpu_usable']} cores" in said
    assert "torchzoo 0.1.0 (2c6ebe8) and torchzoo 0.1.0 (fffffff)" in said
    with pytest.raises(StoreError, match="usable cores is 8 and"):
        read_report_data([paths[0], keep_with(tmp_path / "cpu", [record()], **change)])


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"gpus": (MIG,)}, "device"),
        ({"gpus": ()}, "device"),
        ({"cpu": "another"}, "CPU"),
        ({"torch": "2.16.0"}, "torch"),
    ],
    ids=str,
)
def test_a_report_on_gpus_takes_no_other_kind_of_machine_or_software(
    tmp_path: Path, change: dict[str, Any], name: str
) -> None:
    one = record(measured(device_name="NVIDIA H200"), device="cuda")
    first, second = keep_with(tmp_path / "one", [one]), keep_with(tmp_path / "two", [one], **change)
    with pytest.raises(StoreError, match=f"{name} is "):
        read_report_data([first, second])


@pytest.mark.parametrize("change", [change for change, _ in REFUSED], ids=str)
def test_a_run_is_not_resumed_elsewhere(tmp_path: Path, change: dict[str, Any]) -> None:
    began = read_run(keep_with(tmp_path / "run", []))
    with pytest.raises(StoreError) as error:
        check_same_machine(began, msgspec.structs.replace(ENVIRONMENT, **change))
    message = str(error.value)
    assert "\n" not in message
    assert str(tmp_path / "run") in message
    for _, name, base, candidate in found(of(), of(**change)):
        assert f"{name} was {base}, is {candidate}" in message


@pytest.mark.parametrize("change", [{}, *ACCEPTED], ids=str)
def test_a_run_is_resumed_on_the_machine_where_it_began(tmp_path: Path, change: dict[str, Any]) -> None:
    check_same_machine(read_run(keep_with(tmp_path / "run", [])), msgspec.structs.replace(ENVIRONMENT, **change))


ACROSS: list[tuple[DifferenceKind, dict[str, Any]]] = [
    (DifferenceKind.HARDWARE, {"cpu": "another"}),
    (DifferenceKind.HARDWARE, {"device_name": "NVIDIA B200"}),
    (DifferenceKind.TORCH, {"torch_commit": "70d99e9"}),
    (DifferenceKind.DRIVER, {"gpus": (msgspec.structs.replace(H200, driver="590.1"),) * 2}),
    (DifferenceKind.KERNELS, {"distributions": {"flash-linear-attention": "0.5.1"}}),
]


@pytest.mark.parametrize(("kind", "change"), ACROSS, ids=str)
def test_a_comparison_needs_across_for_hardware_torch_driver_and_kernels(
    kind: DifferenceKind, change: dict[str, Any]
) -> None:
    base, candidate = run(), run(**change)
    others = frozenset(set(DifferenceKind) - {kind})
    for across in (frozenset[DifferenceKind](), others):
        with pytest.raises(UsageError, match=f"--across={kind}"):
            compare_runs(base, candidate, across=across)
    comparison = compare_runs(base, candidate, across=frozenset({kind}))
    assert [difference.kind for difference in comparison.differences] == [kind]


def test_a_comparison_shows_other_differences_and_does_not_ask() -> None:
    settings = msgspec.structs.replace(SETTINGS, threads=None, jobs=1)
    variables = {"OMP_NUM_THREADS": "2", "TORCHZOO_PRELOAD": "timm"}
    candidate = run(python="3.12.1", torchzoo_commit="be46279", packages={}, variables=variables, settings=settings)
    compare_runs(run(), candidate)
    assert differences(run(), candidate) == {
        "python": ("other", "3.11.7", "3.12.1"),
        "torchzoo_commit": ("other", "2c6ebe8", "be46279"),
        "timm": ("other", "1.0.31", "none"),
        "numpy": ("other", "2.4.6", "none"),
        "OMP_NUM_THREADS": ("other", "8", "2"),
        "threads": ("other", "8", "none"),
        "workers": ("other", "4", "1"),
    }


def test_a_comparison_shows_in_how_many_processes_inductor_compiled() -> None:
    def compiled(compile_threads: int | None) -> Run:
        settings = msgspec.structs.replace(SETTINGS, compile_threads=compile_threads)
        cases = (msgspec.structs.replace(CASE, device="cuda", backend=Backend("inductor")),)
        return run_of([], cases=cases, environment=ENVIRONMENT, settings=settings)

    assert differences(compiled(4), compiled(None)) == {"compile threads": ("other", "4", "PyTorch's own choice")}
    eager = run(settings=msgspec.structs.replace(SETTINGS, compile_threads=4))
    assert differences(eager, run()) == {}


def test_a_comparison_of_gpu_runs_takes_the_devices_that_cases_ran_on() -> None:
    more = run(gpus=(H200,) * 8)
    assert differences(run(), more) == {"GPUs": ("other", "2", "8")}
    assert differences(run(), run(device_name="NVIDIA B200")) == {"device": ("hardware", "NVIDIA H200", "NVIDIA B200")}
    assert differences(run(), run(cpu_usable=4)) == {"usable cores": ("other", "8", "4")}  # a GPU's cases hardly notice


def test_before_any_case_ran_the_devices_are_the_machines() -> None:
    planned = (msgspec.structs.replace(CASE, device="cuda"),)
    empty = run_of([], cases=planned, environment=ENVIRONMENT, settings=SETTINGS)
    assert differences(empty, run()) == {}
    unknown = run_of([], cases=planned, environment=msgspec.structs.replace(ENVIRONMENT, gpus=()), settings=SETTINGS)
    assert differences(unknown, run())["device"] == ("hardware", "none", "NVIDIA H200")
