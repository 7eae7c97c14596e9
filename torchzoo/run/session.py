"""One run from its request to its records: a new one, or one that was cut short."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import torchzoo
from torchzoo.case import Case
from torchzoo.errors import UsageError
from torchzoo.machine.differences import machine_differences
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import BatchCurve, Environment, Manifest, Record
from torchzoo.run import batches, plan
from torchzoo.run.batches import best_batch
from torchzoo.run.debugging import kept
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan
from torchzoo.run.pool import Pool, PoolRun, PoolWorkers
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import (
    Models,
    lanes_for,
    missing,
    models_of,
    own_cores,
    read_models,
    to_preload,
    with_jobs,
)
from torchzoo.run.scheduler import Scheduler
from torchzoo.run.tuning import OnTried, at_batch, ignore_tried, quick, throughput_curves
from torchzoo.settings import Settings, Stage
from torchzoo.store import Run, RunStore, StoreError
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is ready to start: the cases that are left and the records that exist.

    `workers` is a context manager: enter it before `run`.
    """

    manifest: Manifest
    left: Plan
    done: tuple[Record, ...]
    lanes: tuple[Lane, ...]
    workers: PoolWorkers

    def run(self, run_store: RunStore, on_stage: Callable[[Case, Lane, Stage], None]) -> Iterator[Record]:
        """Run the cases that are left. Each record is yielded after it is on disk."""
        numbers = {case: number for number, case in enumerate(self.manifest.cases)}
        curves = {curve.case: curve.samples_per_s for curve in self.manifest.batch_curves}
        scheduler = Scheduler(
            self.workers,
            self.lanes,
            self.manifest.settings,
            log_path=lambda planned: run_store.log_path(numbers[planned.case], planned.case.label()),
            on_stage=on_stage,
        )
        for finished in scheduler.run(self.left):
            record = msgspec.structs.replace(finished, batch_curve=curves.get(finished.case.tuning_case()))
            yield kept(run_store, record, self.manifest)


def new_run(request: RunRequest, run_store: RunStore, on_tried: OnTried = ignore_tried) -> Session:
    """Check the request, ask the machine what it has, make the plan, and write the manifest.

    With the batch size `auto`, the batches are searched for first; `on_tried` is told of each batch that was tried.

    Raises:
        UsageError, CatalogError, ServerError: the request can't be carried out.
    """
    _check_jobs(request)
    models = models_of(request)
    tuned = tuned_batches(request.batch_file)
    with contextlib.ExitStack() as until_ready:
        pool = until_ready.enter_context(
            Pool(to_preload(models, request.axes.backends), request.settings.limits.build_s)
        )
        machine = pool.machine_info()
        axes = plan.axes_on(request.axes, machine)
        lacking = missing(models, axes.backends)
        to_tune = plan.to_tune(models, axes, lacking)
        curves = throughput_curves(to_tune, quick(request), pool, machine, run_store.logs, on_tried)
        found = {case: best_batch(curve) for case, curve in curves.items()}
        planned = plan.make_plan(models, axes, lacking, tuned_on(machine, axes.devices, tuned), found)
        settings = with_jobs(request.settings, request.jobs, axes.devices, cases=len(planned))
        lanes = lanes_for(axes.devices, request.device_indices, settings, machine, axes.worlds)
        manifest = make_manifest(request, settings, machine, models, planned)
        manifest = msgspec.structs.replace(
            manifest,
            undisturbed_loop_s=pool.host_speed(lanes),
            batch_curves=tuple(
                BatchCurve(case=at_batch(case, found[case]), samples_per_s=curve) for case, curve in curves.items()
            ),
        )
        run_store.begin(manifest)
        workers = _workers(pool, manifest)
        until_ready.pop_all()  # the workers' context closes the pool
        return Session(manifest=manifest, left=planned, done=(), lanes=lanes, workers=workers)


def planned_here(request: RunRequest) -> Plan:
    """The cases of a request on this machine, as `new_run` plans them. No batch size `auto` is searched for.

    Raises:
        UsageError, CatalogError, ServerError: the request can't be carried out.
    """
    _check_jobs(request)
    models = models_of(request)
    tuned = tuned_batches(request.batch_file)
    with Pool([], request.settings.limits.build_s) as pool:
        machine = pool.machine_info()
    axes = plan.axes_on(request.axes, machine)
    return plan.make_plan(models, axes, missing(models, axes.backends), tuned_on(machine, axes.devices, tuned))


def _check_jobs(request: RunRequest) -> None:
    """Each device needs a worker.

    Raises:
        UsageError: there are fewer.
    """
    named = len(request.device_indices or ())
    if request.jobs is not None and request.jobs < named:
        only = "only one worker lives" if request.jobs == 1 else f"only {request.jobs} workers live"
        raise UsageError(f"--devices names {named}, but {only} at a time: add --jobs {named}, or name fewer devices")


def make_manifest(
    request: RunRequest, settings: Settings, machine: MachineInfo, models: Models, planned: Plan
) -> Manifest:
    """What is known of a run before its first case. The host's speed is not known yet.

    Args:
        request: what was asked for.
        settings: with the number of jobs of this machine.
        machine: what the run's cases find.
        models: the chosen models.
        planned: all cases.
    """
    return Manifest(
        torchzoo_version=torchzoo.__version__,
        command=tuple(shlex.quote(word) for word in request.command or sys.argv),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        environment=machine.environment,
        settings=settings,
        cases=tuple(one.case for one in planned),
        domains={model.name: model.domain for model in models if isinstance(model, ModelSpec)},
        device_indices=request.device_indices,
        models_dirs=tuple(str(Path(folder).resolve()) for folder in request.models_dirs),
    )


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a run that was cut short."""

    done: tuple[Record, ...]
    cases: tuple[Case, ...]  # without a record, or with one that an interrupt cut short
    models: Models  # of these cases

    def plan(self, lacking: dict[str, str]) -> Plan:
        """The cases, those that can't run on this machine with the reason (`resources.missing`)."""
        by_name = {model.name if isinstance(model, ModelSpec) else model[0]: model for model in self.models}
        return tuple(plan.plan_case(case, by_name[case.model], lacking) for case in self.cases)


def rest_of(run: Run, *, retry_failed: bool) -> Rest:
    """What is left of a run.

    Raises:
        StoreError: a model is no longer there.
        CatalogError: a folder of models is no longer there.
    """
    finished = run.finished
    done = tuple(r for r in run.records if r.case in finished and not (retry_failed and r.failure))
    have_record = {record.case for record in done}
    cases = tuple(case for case in run.manifest.cases if case not in have_record)
    catalog = find_models(map(Path, run.manifest.models_dirs))
    gone = sorted({case.model for case in cases if case.model not in catalog})
    if gone:
        raise StoreError(f"{run.path} needs models that are no longer there: {', '.join(gone)}")
    models = read_models(catalog, list(dict.fromkeys(case.model for case in cases)))
    return Rest(done=done, cases=cases, models=models)


def resumed_run(run: Run, *, retry_failed: bool) -> Session:
    """The cases of `run` that are not finished yet, under the settings that the run began with.

    Args:
        run: what was read from the run's folder.
        retry_failed: run the cases that failed once more, too.

    Raises:
        StoreError: the machine or the software is not the one that the run began on.
        CatalogError, ServerError: as for a new run.
    """
    manifest = run.manifest
    rest = rest_of(run, retry_failed=retry_failed)
    cases, models = rest.cases, rest.models
    with contextlib.ExitStack() as until_ready:
        libraries = to_preload(models, [case.backend for case in cases])
        pool = until_ready.enter_context(Pool(libraries, manifest.settings.limits.build_s))
        machine = pool.machine_info()
        check_same_machine(run, machine.environment)
        devices = list(dict.fromkeys(case.device for case in cases))
        worlds = [case.world for case in cases]
        of_run = [case.device for case in manifest.cases]
        lanes = lanes_for(devices, manifest.device_indices, manifest.settings, machine, worlds, of_run=of_run)
        left = rest.plan(missing(models, [case.backend for case in cases]))
        looks_s = (manifest.undisturbed_loop_s, pool.host_speed(lanes) if lanes else None)  # no lanes: nothing is left
        undisturbed_loop_s = min(filter(None, looks_s), default=None)
        manifest = msgspec.structs.replace(manifest, undisturbed_loop_s=undisturbed_loop_s)
        workers = _workers(pool, manifest)
        until_ready.pop_all()
        return Session(manifest=manifest, left=left, done=rest.done, lanes=lanes, workers=workers)


def _workers(pool: Pool, manifest: Manifest) -> PoolWorkers:
    run = PoolRun(pool=pool, settings=manifest.settings, undisturbed_loop_s=manifest.undisturbed_loop_s)
    return PoolWorkers({"": run}, own_cores=own_cores())


def tuned_batches(path: str | None) -> batches.Tuned:
    """The batches of the file at `path`, or torchzoo's own.

    Raises:
        UsageError: a file was named and is not there.
    """
    if path is None:
        return batches.read_tuned(batches.default_file())
    if not Path(path).is_file():
        raise UsageError(f"--batch-file: no file {path}; `torchzoo doctor --batches MODEL --file {path}` makes it")
    return batches.read_tuned(Path(path))


def tuned_on(machine: MachineInfo, devices: Sequence[str], tuned: batches.Tuned) -> dict[str, dict[str, int]]:
    """The tuned batches of the devices of this machine, by device and model."""
    return {
        device: {name: one.batch_size for name, one in tuned.get(machine.device_class(device), {}).items()}
        for device in devices
    }


def check_same_machine(run: Run, now: Environment) -> None:
    """Raises `StoreError` where the machine or the software is not the one that the run began on."""
    current = msgspec.structs.replace(run.manifest, environment=now)
    changed = [f"{d.name} was {d.base}, is {d.candidate}" for d in machine_differences(run.manifest, current)]
    if changed:
        raise StoreError(
            f"{run.path} began on another machine or other software, start a new run: {'; '.join(changed)}"
        )
