"""What machine, software and settings a run was measured with, and how two runs differ in them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec

from torchzoo.record import Manifest, Measured
from torchzoo.store import Run


class DifferenceKind(enum.StrEnum):
    """What two runs differ in. A comparison accepts the first three kinds only with `--across`."""

    HARDWARE = "hardware"
    TORCH = "torch"
    DRIVER = "driver"
    OTHER = "other"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One fact that is not the same in two runs; `none` where a run does not have it."""

    kind: DifferenceKind
    name: str
    base: str
    candidate: str


#: The facts of kind `other` that must also be equal for two sets of records to stand together; packages too.
_REQUIRED = frozenset({"usable cores", "GPUs", "python", "threads", "compile caches"})

_Facts = dict[tuple[DifferenceKind, str], str]


def run_differences(base: Run, candidate: Run) -> tuple[Difference, ...]:
    """How two runs differ. The hardware is the devices that their cases ran on, so a CPU run's GPUs don't matter."""
    uses_cpu = all(any(case.device == "cpu" for case in run.manifest.cases) for run in (base, candidate))
    facts = [_facts(run.manifest, gpus=_gpus_used(run)) for run in (base, candidate)]
    return _differences(*facts, cores_matter=uses_cpu)


def machine_differences(base: Manifest, candidate: Manifest) -> tuple[Difference, ...]:
    """What keeps the records of two runs from standing together: another machine, other software, other settings."""
    packages = {*_packages(base), *_packages(candidate)}
    facts = [_facts(manifest, gpus=_gpu_names(manifest)) for manifest in (base, candidate)]
    return tuple(
        difference
        for difference in _differences(*facts, cores_matter=True)
        if difference.kind is not DifferenceKind.OTHER or difference.name in {*_REQUIRED, *packages}
    )


def _differences(base: _Facts, candidate: _Facts, *, cores_matter: bool) -> tuple[Difference, ...]:
    found = []
    for (kind, name), was in {**dict.fromkeys(candidate), **base}.items():
        now = candidate.get((kind, name))
        if name == "usable cores" and not cores_matter:
            if None in (was, now):
                continue
            kind = DifferenceKind.OTHER  # noqa: PLW2901  cases on a GPU hardly notice
        if was != now:
            found.append(Difference(kind=kind, name=name, base=was or "none", candidate=now or "none"))
    return tuple(sorted(found, key=lambda difference: list(DifferenceKind).index(difference.kind)))


def _gpus_used(run: Run) -> Iterable[str]:
    """The names of the devices that cases ran on; before any case ran, those of the machine. Empty for a CPU run."""
    if all(case.device == "cpu" for case in run.manifest.cases):
        return ()
    names = {
        record.outcome.device_name
        for record in run.records
        if isinstance(record.outcome, Measured) and record.case.device != "cpu"
    }
    return names or _gpu_names(run.manifest)


def _gpu_names(manifest: Manifest) -> Iterable[str]:
    return {gpu["name"] for gpu in manifest.environment.get("gpus") or []}


def _packages(manifest: Manifest) -> dict[str, str]:
    return manifest.environment.get("packages") or {}


def _facts(manifest: Manifest, *, gpus: Iterable[str]) -> _Facts:
    """All facts by kind and name; one that the run does not have is left out."""
    kind, environment, settings = DifferenceKind, manifest.environment, manifest.settings
    facts: dict[tuple[DifferenceKind, str], Any] = {
        (kind.HARDWARE, "CPU"): environment.get("cpu"),
        (kind.HARDWARE, "usable cores"): environment.get("cpu_usable"),
        (kind.HARDWARE, "device"): ", ".join(sorted(gpus)) or "CPU",
    }
    if gpus:
        machine = environment.get("gpus") or []
        facts[kind.DRIVER, "driver"] = ", ".join(sorted({str(gpu["driver"]) for gpu in machine}))
        facts[kind.OTHER, "GPUs"] = len(machine)
    facts |= {(kind.TORCH, name): environment.get(name) for name in ("torch", "torch_commit", "cuda", "hip", "cudnn")}
    facts |= {(kind.OTHER, name): version for name, version in _packages(manifest).items()}
    facts |= {(kind.OTHER, name): environment.get(name) for name in ("python", "torchzoo", "torchzoo_commit")}
    variables = environment.get("variables") or {}
    facts |= {(kind.OTHER, name): value for name, value in variables.items() if not name.startswith("TORCHZOO_")}
    facts[kind.OTHER, "threads"] = settings.threads
    facts[kind.OTHER, "compile caches"] = settings.cache
    facts[kind.OTHER, "workers"] = settings.jobs
    return {key: str(value) for key, value in facts.items() if value not in (None, "")}
