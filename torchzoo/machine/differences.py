"""Compare the machines, software and settings of runs."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from torchzoo.case import EAGER
from torchzoo.machine.facts import KERNEL_PACKAGES
from torchzoo.record import Environment, Manifest, Measured
from torchzoo.store import Run


class DifferenceKind(enum.StrEnum):
    """The kind of a difference between two runs. A comparison accepts the kinds before `other` only with `--across`."""

    HARDWARE = "hardware"
    TORCH = "torch"
    DRIVER = "driver"
    KERNELS = "kernels"
    OTHER = "other"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that differs between two runs; `none` for a run without it."""

    kind: DifferenceKind
    name: str
    base: str
    candidate: str


#: Facts of kind `other` that must be equal for records in one report or one run; packages must, too.
_REQUIRED = frozenset({"python", "threads", "compile caches", "timing"})

_Facts = dict[tuple[DifferenceKind, str], str]


def run_differences(base: Run, candidate: Run) -> tuple[Difference, ...]:
    """The differences between two runs, for a comparison. GPUs that no case ran on are ignored."""
    both_use_cpu = all(any(case.device == "cpu" for case in run.manifest.cases) for run in (base, candidate))
    facts = [_facts(run.manifest, gpus=_gpus_used(run)) for run in (base, candidate)]
    return _differences(*facts, cores_matter=both_use_cpu)


def machine_differences(base: Manifest, candidate: Manifest) -> tuple[Difference, ...]:
    """The differences in machine, software or settings that forbid records of two runs in one resumed run."""
    return _that_forbid(base, candidate, gpus=_gpus_present, cores_matter=True)


def report_differences(base: Manifest, candidate: Manifest) -> tuple[Difference, ...]:
    """The differences that forbid records of two runs in one report: those of `machine_differences`, except hosts.

    A case on an accelerator has a device and cores of its own, and nothing else runs while it is timed. So if all cases
    of both runs are on accelerators, their hosts may have more or fewer GPUs and cores of the same kind.
    """
    if any(case.device_type == "cpu" for manifest in (base, candidate) for case in manifest.cases):
        return machine_differences(base, candidate)
    return _that_forbid(base, candidate, gpus=_kinds_of_gpus, cores_matter=False)


def why_not_together(base: Manifest, candidate: Manifest) -> str:
    """The differences that forbid records of two runs in one report, in words; empty if there are none."""
    return "; ".join(f"{one.name} is {one.base} and {one.candidate}" for one in report_differences(base, candidate))


def _that_forbid(
    base: Manifest, candidate: Manifest, *, gpus: Callable[[Environment], str | None], cores_matter: bool
) -> tuple[Difference, ...]:
    packages = {*base.environment.packages, *candidate.environment.packages}
    facts = [_facts(manifest, gpus=gpus(manifest.environment)) for manifest in (base, candidate)]
    return tuple(
        difference
        for difference in _differences(*facts, cores_matter=cores_matter)
        if difference.kind is not DifferenceKind.OTHER or difference.name in {*_REQUIRED, *packages}
    )


#: The facts that must be equal on all machines of a run: their names and values.
MachineKind = tuple[tuple[str, str], ...]


def machine_kind(environment: Environment) -> MachineKind:
    """The kind of a machine with its software: the facts by which `machine_differences` tells machines apart."""
    facts = _machine_facts(environment, gpus=_gpus_present(environment))
    return tuple(
        (name, str(value))
        for (kind, name), value in facts.items()
        if value not in (None, "") and (kind is not DifferenceKind.OTHER or name in {*_REQUIRED, *environment.packages})
    )


def differences_of_kinds(kinds: Sequence[MachineKind]) -> list[str]:
    """The facts of each kind that differ between the kinds; `the same` for equal kinds."""
    every = [dict(kind) for kind in kinds]
    names = [name for name in dict.fromkeys(name for kind in every for name in kind)]  # noqa: C416  in their order
    unlike = [name for name in names if len({kind.get(name) for kind in every}) > 1]
    return [", ".join(f"{name} {kind.get(name, 'none')}" for name in unlike) or "the same" for kind in every]


def hardware_text(manifest: Manifest, gpu: str | None) -> str:
    """The kind of machine of a run's cases, in one line. Figures of different kinds are never in one series.

    Args:
        manifest: the run's manifest.
        gpu: the device's name; None for cases on the CPU. Cases on a GPU hardly depend on the number of cores.
    """
    environment = manifest.environment
    parts = [environment.cpu or "unknown CPU", f"{environment.cpu_usable} cores" if gpu is None else gpu]
    return ", ".join(filter(None, parts))


def machine_names(runs: Sequence[Run]) -> list[str]:
    """A name for the machine of each run: the devices that its cases ran on, or its CPU.

    Equal names of different machines are followed by the facts that differ.
    """
    names = [_gpus_used(run) or run.manifest.environment.cpu for run in runs]
    named = list(names)
    for name in dict.fromkeys(names):
        places = [place for place, one in enumerate(names) if one == name]
        kinds = [machine_kind(runs[place].manifest.environment) for place in places]
        if len(set(kinds)) > 1:
            for place, text in zip(places, differences_of_kinds(kinds), strict=True):
                named[place] = f"{name} ({text})"
    return named


def gpu_names(manifest: Manifest) -> str:
    """The names of the machine's GPUs, each once; `unknown GPU` if none is known."""
    return ", ".join(sorted({gpu.name for gpu in manifest.environment.gpus})) or "unknown GPU"


def software_facts(manifest: Manifest) -> dict[str, str]:
    """The software facts of a run by name: torch, packages, driver, threads, variables."""
    facts = _facts(manifest, gpus=_gpus_present(manifest.environment))
    return {name: value for (kind, name), value in facts.items() if kind is not DifferenceKind.HARDWARE}


def _differences(base: _Facts, candidate: _Facts, *, cores_matter: bool) -> tuple[Difference, ...]:
    """The facts that are not equal, by kind. A fact that only one run has is a difference, too."""
    found = []
    for (kind, name), was in {**dict.fromkeys(candidate), **base}.items():
        now = candidate.get((kind, name))
        if name == "usable cores" and not cores_matter:
            kind = DifferenceKind.OTHER  # noqa: PLW2901  the number of cores hardly changes cases on a GPU
        if was != now:
            found.append(Difference(kind=kind, name=name, base=was or "none", candidate=now or "none"))
    return tuple(sorted(found, key=lambda difference: list(DifferenceKind).index(difference.kind)))


def _gpus_used(run: Run) -> str | None:
    """The names of the devices that cases ran on, or of the machine's before any case ran. None for a CPU run."""
    if run.manifest.cases and all(case.device == "cpu" for case in run.manifest.cases):
        return None
    names = {
        record.outcome.device_name
        for record in run.records
        if isinstance(record.outcome, Measured) and record.case.device != "cpu"
    }
    return ", ".join(sorted(names or {gpu.name for gpu in run.manifest.environment.gpus}))


def _gpus_present(environment: Environment) -> str | None:
    """All GPUs of the machine, as `2 x NVIDIA H200 (140.4 GiB)`; None if there are none."""
    return ", ".join(f"{count} x {kind}" for kind, count in _count_gpus(environment).items()) or None


def _kinds_of_gpus(environment: Environment) -> str | None:
    """The kinds of GPU of the machine, as `NVIDIA H200 (140.4 GiB)`; None if there are none."""
    return ", ".join(sorted(_count_gpus(environment))) or None


def _count_gpus(environment: Environment) -> Counter[str]:
    return Counter(f"{gpu.name} ({gpu.memory_bytes / 2**30:.1f} GiB)" for gpu in environment.gpus)


def kernel_packages(environment: Environment) -> dict[str, str]:
    """Return the versions of the installed `KERNEL_PACKAGES`; empty if the installed packages are not known."""
    distributions = environment.distributions or {}
    return {name: distributions[name] for name in KERNEL_PACKAGES if name in distributions}


def _facts(manifest: Manifest, *, gpus: str | None) -> _Facts:
    """All facts that a run has, by kind and name.

    Args:
        manifest: the run's manifest.
        gpus: the GPUs; None if there are none, or if they don't matter.
    """
    kind, settings = DifferenceKind, manifest.settings
    facts = _machine_facts(manifest.environment, gpus=gpus)
    facts[kind.OTHER, "threads"] = settings.threads
    facts[kind.OTHER, "compile caches"] = settings.cache
    facts[kind.OTHER, "workers"] = settings.jobs
    facts[kind.OTHER, "timing"] = "yes" if settings.is_timed else "no"
    if any(case.backend != EAGER for case in manifest.cases):
        facts[kind.OTHER, "compile threads"] = settings.compile_threads or "PyTorch's own choice"
    return {key: str(value) for key, value in facts.items() if value not in (None, "")}


def _machine_facts(environment: Environment, *, gpus: str | None) -> dict[tuple[DifferenceKind, str], Any]:
    """Return the facts of the machine and its software. A value may be None or empty."""
    kind = DifferenceKind
    facts: dict[tuple[DifferenceKind, str], Any] = {
        (kind.HARDWARE, "CPU"): environment.cpu,
        (kind.HARDWARE, "usable cores"): environment.cpu_usable,
        (kind.HARDWARE, "device"): "CPU" if gpus is None else gpus,
    }
    of_torch = ("torch", "torch_commit", "cuda", "hip", "cudnn")
    others = ("python", "malloc", "torchzoo", "torchzoo_commit")
    if gpus is not None:
        facts[kind.DRIVER, "driver"] = ", ".join(sorted({gpu.driver for gpu in environment.gpus}))
        facts[kind.OTHER, "GPUs"] = len(environment.gpus)
    facts |= {(kind.KERNELS, name): version for name, version in kernel_packages(environment).items()}
    facts |= {(kind.TORCH, name): getattr(environment, name) for name in of_torch}
    facts |= {(kind.OTHER, name): version for name, version in environment.packages.items()}
    facts |= {(kind.OTHER, name): getattr(environment, name) for name in others}
    variables = {name: value for name, value in environment.variables.items() if not name.startswith("TORCHZOO_")}
    facts |= {(kind.OTHER, name): value for name, value in variables.items()}
    return facts
