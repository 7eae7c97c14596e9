"""One run, from what was asked to its records: a new one, or one that was cut short."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import torchzoo
from torchzoo import backends, batches, plan, stats
from torchzoo.batches import best_batch
from torchzoo.catalog import Catalog, find_models, library_imports
from torchzoo.environment import Facts
from torchzoo.install import unmet
from torchzoo.lanes import CPU, Lane, make_lanes, usable_cores
from torchzoo.plan import Axes, Entry, Plan, UsageError
from torchzoo.processes import ForkedWorkers, ForkServer
from torchzoo.record import BatchCurve, Case, Failed, Manifest, Measured, Record, Settings, Skipped, Stage
from torchzoo.report import units
from torchzoo.report.rows import in_a_line
from torchzoo.scheduler import Scheduler
from torchzoo.spec import Mode, ModelSpec, SpecError
from torchzoo.store import Run, RunStore, StoreError

Models = Sequence[ModelSpec | tuple[str, SpecError]]

#: What must be the same for two sets of records to stand in one run.
SAME = ("torch", "cuda", "hip", "cudnn", "python", "cpu", "cpu_usable", "gpus", "packages")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a new run is to do; the settings but for jobs and compile threads, which depend on the machine.

    `axes.devices` may be empty: then it is the accelerator, or the CPU without one.
    """

    patterns: tuple[str, ...]
    suites: tuple[str, ...] = ()
    axes: Axes
    settings: Settings
    jobs: int | None = None  # None: by the cores
    device_indices: tuple[int, ...] | None = None
    models_dirs: tuple[str, ...] = ()
    batch_file: str | None = None  # of tuned batches; None: torchzoo's own


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A run ready to go: what is left to do, and what is done already. Use `workers` as a context around `run`."""

    manifest: Manifest
    left: Plan
    done: tuple[Record, ...]
    lanes: tuple[Lane, ...]
    workers: ForkedWorkers

    def run(self, run_store: RunStore, on_stage: Callable[[Case, Lane, Stage], None]) -> Iterator[Record]:
        """Yield the record of each case that is left, when it is on disk."""
        numbers = {case: number for number, case in enumerate(self.manifest.cases)}
        curves = {curve.case: curve.samples_per_s for curve in self.manifest.batch_curves}
        scheduler = Scheduler(
            self.workers,
            self.lanes,
            jobs=self.manifest.settings.jobs,
            limits=self.manifest.settings.limits,
            log_path=lambda case: run_store.log_path(numbers[case], case.label()),
            on_stage=on_stage,
        )
        for settled in scheduler.run(self.left):
            record = msgspec.structs.replace(settled, batch_curve=curves.get(settled.case.tuning_case()))
            run_store.append(record)
            yield record


def new_run(asked: Asked, run_store: RunStore, say: Callable[[str], None] = lambda _: None) -> Session:
    """Check all that can be checked, ask the machine what it has, plan, and write the manifest.

    With the batch size `auto`, the batches are tuned before; `say` tells how that goes on.

    Raises:
        UsageError, CatalogError, TorchUnusable: what was asked for can't be; one line says what to do.
    """
    catalog = find_models(map(Path, asked.models_dirs))
    models = _read(catalog, catalog.select(asked.patterns, asked.suites))
    server = ForkServer(_to_preload(models))
    facts = server.facts()
    axes = asked.axes
    if not axes.devices:
        axes = msgspec.structs.replace(axes, devices=(list(facts.devices)[-1],))
    plan.check_axes(axes, facts)
    tuned = batches.read_tuned(batches.default_file()) if asked.batch_file is None else _read_batches(asked.batch_file)
    tuned_here = {
        device: {name: one.batch_size for name, one in tuned.get(facts.device_class(device), {}).items()}
        for device in axes.devices
    }
    lacking = missing(models, axes.backends)
    curves = _tune(plan.to_tune(models, axes, lacking), _quickly(asked), server, facts, run_store.logs, say)
    found = {case: best_batch(curve) for case, curve in curves.items()}
    entries = plan.make_plan(models, axes, lacking, tuned_here, found)
    settings = _with_jobs(asked.settings, asked.jobs, axes.devices, cases=len(entries))
    lanes = _lanes(axes.devices, asked.device_indices, settings, facts)
    manifest = Manifest(
        torchzoo_version=torchzoo.__version__,
        command=tuple(shlex.quote(word) for word in sys.argv),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=facts.environment,
        settings=settings,
        cases=tuple(entry.case for entry in entries),
        domains={model.name: model.domain for model in models if isinstance(model, ModelSpec)},
        device_indices=asked.device_indices,
        models_dirs=tuple(str(Path(folder).resolve()) for folder in asked.models_dirs),
        batch_curves=tuple(
            BatchCurve(case=_at_batch(case, found[case]), samples_per_s=curve) for case, curve in curves.items()
        ),
    )
    run_store.begin(manifest)
    return Session(manifest=manifest, left=entries, done=(), lanes=lanes, workers=ForkedWorkers(server, settings))


def resumed_run(run: Run, *, retry_failed: bool) -> Session:
    """The cases of `run` that have no record yet, or, with `retry_failed`, one of a failure; all else as it began.

    Raises:
        StoreError: the machine or the software is not what the run began on.
        CatalogError, TorchUnusable: as for a new run.
    """
    manifest = run.manifest
    done = tuple(record for record in run.records if not (retry_failed and isinstance(record.outcome, Failed)))
    settled = {record.case for record in done}
    cases = [case for case in manifest.cases if case not in settled]
    catalog = find_models(map(Path, manifest.models_dirs))
    gone = sorted({case.model for case in cases} - set(catalog.folders))
    if gone:
        raise StoreError(f"{run.path} goes on with models that are no longer there: {', '.join(gone)}")
    models = _read(catalog, list(dict.fromkeys(case.model for case in cases)))
    server = ForkServer(_to_preload(models))
    facts = server.facts()
    _check_same_machine(run, facts.environment)
    devices = list(dict.fromkeys(case.device for case in cases))
    lanes = _lanes(devices, manifest.device_indices, manifest.settings, facts)
    by_name = {model.name if isinstance(model, ModelSpec) else model[0]: model for model in models}
    lacking = missing(models, [case.backend for case in cases])
    left = tuple(plan.make_entry(case, by_name[case.model], lacking) for case in cases)
    workers = ForkedWorkers(server, manifest.settings)
    return Session(manifest=manifest, left=left, done=done, lanes=lanes, workers=workers)


def tune_batches(
    asked: Asked, path: Path, *, logs: Path, say: Callable[[str], None] = lambda _: None
) -> dict[str, batches.TunedBatch]:
    """Find the evaluation batches of models on one device and precision, in eager, and keep them in the file `path`.

    All models are doubled together; a model whose default batch does not even run is left out, and `say` tells why.

    Raises:
        BatchFileError: the file can't be read or written.
        UsageError, CatalogError, TorchUnusable: as for a new run.
    """
    tuned = batches.read_tuned(path)
    catalog = find_models(map(Path, asked.models_dirs))
    models = [
        model
        for model in _read(catalog, catalog.select(asked.patterns, asked.suites))
        if isinstance(model, ModelSpec) and Mode.EVAL in model.batch_size
    ]
    server = ForkServer(_to_preload(models))
    facts = server.facts()
    device = asked.axes.devices[0] if asked.axes.devices else list(facts.devices)[-1]
    axes = msgspec.structs.replace(asked.axes, devices=(device,))
    plan.check_axes(axes, facts)
    entries = plan.make_plan(models, axes, missing(models, axes.backends))
    for entry in entries:
        if isinstance(entry.settled, Skipped):
            say(f"{entry.case.label()}: skipped: {entry.settled.reason}")
    runnable = tuple(entry for entry in entries if entry.settled is None)
    curves = {case.model: curve for case, curve in _tune(runnable, asked, server, facts, logs, say).items()}
    found = {
        name: batches.TunedBatch(
            batch_size=best_batch(curve),
            precision=axes.precisions[0],
            torch=str(facts.environment["torch"]),
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            samples_per_s={size: float(f"{rate:.4g}") for size, rate in curve.items()},
        )
        for name, curve in curves.items()
    }
    tuned.setdefault(facts.device_class(device), {}).update(found)
    batches.write_tuned(path, tuned)
    return found


def _tune(
    entries: Plan, asked: Asked, server: ForkServer, facts: Facts, logs: Path, say: Callable[[str], None]
) -> dict[Case, dict[int, float]]:
    """Samples/s of each case by batch size, doubled from its own; a case that does not even run so is left out."""
    if not entries:
        return {}
    devices = list(dict.fromkeys(entry.case.device for entry in entries))
    settings = _with_jobs(asked.settings, asked.jobs, devices, cases=len(entries))
    lanes = _lanes(devices, asked.device_indices, settings, facts)
    specs = {entry.case: entry.spec for entry in entries}

    def throughputs(batch_sizes: dict[Case, int]) -> dict[Case, float | None]:
        tried = {_at_batch(case, size): case for case, size in batch_sizes.items()}
        scheduler = Scheduler(
            workers,
            lanes,
            jobs=settings.jobs,
            limits=settings.limits,
            log_path=lambda case: logs / f"tune-{'-'.join(case.label().replace(':', '-').split())}.log",
        )
        found: dict[Case, float | None] = {}
        for record in scheduler.run(tuple(Entry(case=case, spec=specs[first]) for case, first in tried.items())):
            rate = found[tried[record.case]] = _samples_per_s(record)
            told = in_a_line(record) if rate is None else units.rate(rate, "samples")
            say(f"tuning {record.case.label()}: {told}")
        return found

    with ForkedWorkers(server, settings) as workers:
        curves = batches.tune({entry.case: entry.case.batch_size or 1 for entry in entries}, throughputs)
    return {case: curve for case, curve in curves.items() if curve}


def _read_batches(path: str) -> batches.Tuned:
    """Raises `UsageError` where the file that was asked for is not there."""
    if not Path(path).is_file():
        raise UsageError(f"--batch-file: no file {path}; `torchzoo tune-batch MODEL --file {path}` makes one")
    return batches.read_tuned(Path(path))


def _quickly(asked: Asked) -> Asked:
    """Timed as far as a choice of batch needs, and nothing beside time."""
    time_limit_s = min(asked.settings.time_limit_s, batches.TIME_LIMIT_S)
    settings = msgspec.structs.replace(asked.settings, time_limit_s=time_limit_s, passes=())
    return msgspec.structs.replace(asked, settings=settings)


def _at_batch(case: Case, batch_size: int) -> Case:
    return msgspec.structs.replace(case, batch_size=batch_size)


def _samples_per_s(record: Record) -> float | None:
    if not isinstance(record.outcome, Measured):
        return None
    runs = record.outcome.variants[stats.EAGER_VARIANT].back_to_back
    return stats.steps_per_s(runs).value * record.outcome.samples_per_step


def _check_same_machine(run: Run, environment: dict[str, Any]) -> None:
    then = run.manifest.environment
    changed = [
        f"{name} was {then.get(name)}, is {environment.get(name)}"
        for name in SAME
        if msgspec.to_builtins(environment.get(name)) != then.get(name)
    ]
    if changed:
        raise StoreError(f"{run.path} was begun on other ground, start a new run: {'; '.join(changed)}")


def _read(catalog: Catalog, names: Sequence[str]) -> list[ModelSpec | tuple[str, SpecError]]:
    models: list[ModelSpec | tuple[str, SpecError]] = []
    for name in names:
        try:
            models.append(catalog.spec(name))
        except SpecError as error:
            models.append((name, error))
    return models


def _to_preload(models: Models) -> list[str]:
    """What the fork server is to import: what the folders of the chosen models do."""
    specs = [model for model in models if isinstance(model, ModelSpec)]
    return list(dict.fromkeys(name for spec in specs for name in library_imports(spec)))


def missing(models: Models, chosen_backends: Sequence[Any]) -> dict[str, str]:
    """Why a model or a backend's package can't be used here: what is not installed, and what to do."""
    reasons = {}
    for spec in models:
        if isinstance(spec, ModelSpec):
            problems = list(filter(None, map(unmet, spec.requirements)))
            if problems:
                reasons[spec.name] = f"{', '.join(problems)}: python install.py {spec.name}"
    for backend in chosen_backends:
        info = backends.info(backend.name)
        if info.package is not None and importlib.util.find_spec(info.package) is None:
            reasons[info.package] = f"{backend.name} needs {info.package}, which is not installed: {info.install}"
    return reasons


def default_jobs(threads: int | None, *, on_cpu_only: bool) -> int:
    """Workers alive at once: three in four cores get one, the rest is for measuring and the compilers' own threads.

    On the CPU each worker's steps use `threads` cores (None: all), and threads that wait for busy cores only spin.
    """
    cores = len(usable_cores())
    per_worker = (threads or cores) if on_cpu_only else 1
    return max(1, cores * 3 // 4 // per_worker)


def _with_jobs(settings: Settings, jobs: int | None, devices: Sequence[str], cases: int) -> Settings:
    on_cpu_only = all(device == CPU for device in devices)
    jobs = min(jobs or default_jobs(settings.threads, on_cpu_only=on_cpu_only), cases)
    compile_threads = None if jobs == 1 else max(2, 2 * len(usable_cores()) // jobs)
    return msgspec.structs.replace(settings, jobs=jobs, compile_threads=compile_threads)


def _lanes(
    devices: Sequence[str], indices: tuple[int, ...] | None, settings: Settings, facts: Facts
) -> tuple[Lane, ...]:
    """Raises `UsageError` for an index of `--devices` that the machine does not have."""
    kinds = [kind for kind in facts.devices if kind != CPU]
    for index in indices or ():
        if not kinds or index >= facts.devices[kinds[0]]:
            present = f"{facts.devices[kinds[0]]} of {kinds[0]}" if kinds else "no accelerator"
            raise UsageError(f"--devices: no device {index}; there is {present} here, counted from 0")
    is_mixed = len({device == CPU for device in devices}) > 1
    cpu_jobs = default_jobs(settings.threads, on_cpu_only=True) if is_mixed else settings.jobs
    return make_lanes(devices, indices, facts.accelerators, cores=usable_cores(), cpu_jobs=cpu_jobs)
