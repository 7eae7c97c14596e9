"""The document of paper_devices: two machines, each named wherever a figure is its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from benchmark_runs import beside, run_of
from study_records import CRASHED, alone, study_table, trained

from examples import GB, environment, variant_result
from torchzoo.case import Domain, Precision
from torchzoo.record import Gpu
from torchzoo.store import Run
from torchzoo.studies import study


def machine(gpu: str, step_s: float, *, path: str, driver: str = "1", **changes: Any) -> Run:
    """Training of resnet18 on such a GPU, which works for half of a slow step; alexnet crashes on the faster one."""
    steps_s = [step_s * share for share in (0.9, 1, 1.1) * 4]
    active_s = None if changes.get("device") == "cpu" else step_s / 2 if step_s > 0.2 else step_s
    eager = {"eager": variant_result(device_active_s=active_s)}
    cases = [
        trained("resnet18", alone(*steps_s, device_name=gpu, variants=eager), precision=Precision.TF32, **changes),
        trained(
            "alexnet", CRASHED if step_s < 0.2 else alone(1.0, device_name=gpu), precision=Precision.TF32, **changes
        ),
    ]
    run = run_of(cases, Path(path), command=("/src/run.py", "--suite", "torchbench", "-o", path))
    facts = environment(gpus=(Gpu(name=gpu, memory_bytes=80 * GB, driver=driver),))
    manifest = msgspec.structs.replace(run.manifest, environment=facts, domains={"resnet18": Domain.COMPUTER_VISION})
    return msgspec.structs.replace(run, manifest=manifest)


def document(*runs: Run) -> str:
    return study.document(study.load("paper_devices"), runs).text


def test_machines_with_the_same_gpu_are_named_by_what_they_differ_in() -> None:
    runs = (machine("GPU", 0.3, path="/one", driver="1"), machine("GPU", 0.1, path="/two", driver="2"))
    text = document(*runs, machine("other GPU", 0.1, path="/three"))
    assert "**Machine 1, GPU (driver 1)**" in text
    assert "GPU (driver 1)'s time over GPU (driver 2)'s: eager tf32, train, all" in text
    assert "**Machine 3, other GPU**" in text


def test_a_run_on_the_cpu_is_named_by_the_cpu_though_the_machine_has_a_gpu() -> None:
    text = document(machine("GPU", 0.3, path="/one", device="cpu"), machine("GPU", 0.1, path="/two"))
    assert "| case | a step on a CPU | a step on GPU |" in text
    assert "the device's work alone" not in beside(text, study_table())  # a CPU has no time of its own
