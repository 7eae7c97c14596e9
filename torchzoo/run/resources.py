"""What the cases of a run need of this machine: readable models, installed packages, lanes, and a number of jobs."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from torchzoo import backends
from torchzoo.case import Backend
from torchzoo.errors import UsageError
from torchzoo.machine.facts import MachineInfo
from torchzoo.machine.limits import physical_cores, usable_cores, whole_cores
from torchzoo.run.lanes import CPU, Lane, make_lanes, make_rank_lanes, split_cores
from torchzoo.run.plan import QUANTIZER
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.zoo.catalog import Catalog, find_models, library_imports
from torchzoo.zoo.programs import install_words
from torchzoo.zoo.requirements import unsatisfied
from torchzoo.zoo.spec import ModelSpec, SpecError

#: The chosen models. Of a folder whose metadata can't be read, its name and the error.
Models = Sequence[ModelSpec | tuple[str, SpecError]]


def read_models(catalog: Catalog, names: Sequence[str]) -> Models:
    """The specs of these models. A folder that can't be read keeps its error and stops no other model."""
    models: list[ModelSpec | tuple[str, SpecError]] = []
    for name in names:
        try:
            models.append(catalog.spec(name))
        except SpecError as error:
            models.append((name, error))
    return models


def readable(models: Models) -> tuple[ModelSpec, ...]:
    """The models whose metadata can be read."""
    return tuple(model for model in models if isinstance(model, ModelSpec))


def models_of(request: RunRequest) -> Models:
    """The models that a request names, as `read_models` gives them.

    Raises:
        UsageError, CatalogError: a name or a folder is not there.
    """
    catalog = find_models(map(Path, request.models_dirs))
    return read_models(catalog, catalog.select(request.patterns, request.suites))


def part_of(request: RunRequest, number: int, count: int) -> RunRequest:
    """Every `count`th of the request's models, from the one of that number on (counted from 1).

    Raises:
        UsageError: there are fewer models than parts.
    """
    catalog = find_models(map(Path, request.models_dirs))
    names = catalog.select(request.patterns, request.suites)
    if len(names) < count:
        raise UsageError(f"--part {number}/{count}: the plan has only {len(names)} models")
    return msgspec.structs.replace(request, patterns=tuple(names[number - 1 :: count]), suites=())


#: The code that measures a case, and what it imports of PyTorch's compilers: a second of CPU time in each worker.
MEASURING = "torchzoo.measure.measure_case"


def to_preload(models: Models, chosen_backends: Iterable[Backend]) -> list[str]:
    """Return the modules that the server imports: those of the chosen models, the compilers, and `MEASURING`."""
    libraries = [name for spec in readable(models) for name in library_imports(spec)]
    compilers = [name for backend in chosen_backends for name in backends.info(backend.name).preload]
    return list(dict.fromkeys([*libraries, *compilers, MEASURING]))


def missing(models: Models, chosen_backends: Sequence[Backend]) -> dict[str, str]:
    """What is not installed: by model name or by package (a backend's, torchao), the reason and what to do."""
    reasons = {}
    for spec in models:
        if isinstance(spec, ModelSpec):
            problems = list(filter(None, map(unsatisfied, spec.requirements)))
            if problems:
                reasons[spec.name] = f"{', '.join(problems)}: {shlex.join([*install_words(), spec.name])}"
    for backend in chosen_backends:
        info = backends.info(backend.name)
        if info.package is not None and importlib.util.find_spec(info.package) is None:
            reasons[info.package] = f"{backend.name} needs {info.package}, which is not installed: {info.install}"
    if importlib.util.find_spec(QUANTIZER) is None:
        reasons[QUANTIZER] = f"quantized precisions need {QUANTIZER}, which is not installed: pip install {QUANTIZER}"
    return reasons


def default_jobs(threads: int | None, *, on_cpu_only: bool) -> int:
    """How many workers prepare at once: one for each core that a container may use, since none measures meanwhile.

    On the CPU the steps of each worker use `threads` cores (None: all of them), and threads that wait for a busy core
    only spin.
    """
    cores = whole_cores(len(usable_cores()))
    per_worker = (threads or cores) if on_cpu_only else 1
    return max(1, cores // per_worker)


def with_jobs(settings: Settings, jobs: int | None, devices: Sequence[str], cases: int) -> Settings:
    """The settings with the number of workers, never more than cases, and of their compile threads.

    The compile threads do not follow the number of cases: a case compiles alike in a short and in a long run.
    """
    on_cpu_only = all(device == CPU for device in devices)
    most = jobs or default_jobs(settings.threads, on_cpu_only=on_cpu_only)
    compile_threads = None if most == 1 else max(4, 2 * whole_cores(len(usable_cores())) // most)
    return msgspec.structs.replace(settings, jobs=min(most, cases), compile_threads=compile_threads)


def lanes_for(
    devices: Sequence[str],
    indices: tuple[int, ...] | None,
    settings: Settings,
    machine: MachineInfo,
    worlds: Sequence[int] = (1,),
    *,
    of_run: Sequence[str] = (),
) -> tuple[Lane, ...]:
    """The lanes for cases on these devices with so many ranks.

    `of_run` are the devices of the whole run, where only a part of its cases is left.

    Raises:
        UsageError: `--devices` has an index that the machine does not have.
    """
    kinds = [kind for kind in machine.devices if kind != CPU]
    for index in indices or ():
        if not kinds or index >= machine.devices[kinds[0]]:
            present = f"{machine.devices[kinds[0]]} of {kinds[0]}" if kinds else "no accelerator"
            raise UsageError(f"--devices: no device {index}; there is {present} here, counted from 0")
    is_mixed = len({device == CPU for device in of_run or devices}) > 1
    cpu_jobs = default_jobs(settings.threads, on_cpu_only=True) if is_mixed else settings.jobs
    physical = physical_cores(usable_cores())
    alone = make_lanes(devices, indices, machine.accelerators, physical=physical, cpu_jobs=cpu_jobs)
    several = [world for world in dict.fromkeys(worlds) if world > 1]
    rank_lanes = make_rank_lanes(several, devices, indices, machine.accelerators, physical=physical)
    return (*alone, *rank_lanes) if 1 in worlds else rank_lanes


def own_cores() -> tuple[int, ...] | None:
    """The cores that the runner keeps to; None if it may use all."""
    return split_cores(physical_cores(usable_cores()))[0]
