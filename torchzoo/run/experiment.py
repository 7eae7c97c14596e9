"""An experiment: measure cases in one or several environments of this machine, or go on with what was cut short.

Each environment has a run folder of its own, which every other command reads. Several environments are measured process
by process in turns, so that whatever drifts meanwhile (the temperature, other users of the machine) affects all alike.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import torchzoo
from torchzoo.case import Case
from torchzoo.errors import UsageError, one_line
from torchzoo.machine.differences import machine_differences
from torchzoo.machine.facts import MachineInfo
from torchzoo.measure.fresh_turns import TurnsOf
from torchzoo.record import BatchCurve, Environment, Manifest, Record, RecordKey, Skipped
from torchzoo.run import batches, budget, plan
from torchzoo.run.batches import best_batch
from torchzoo.run.debugging import kept
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.pool import Pool, PoolRun, PoolWorkers, ServerError
from torchzoo.run.request import RunRequest, Software
from torchzoo.run.resources import Models, lanes_for, models_of, own_cores, read_models, readable, to_preload, with_jobs
from torchzoo.run.scheduler import Scheduler
from torchzoo.run.tuning import OnTried, at_batch, ignore_tried, quick, throughput_curves
from torchzoo.run.turns import make_fresh_lanes, turns_of_plan
from torchzoo.settings import Settings, Stage
from torchzoo.store import Run, RunStore, StoreError, read_run
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec

#: Called for each record, with the name of its environment, the number of records so far, and their total.
OnRecord = Callable[[str, Record, int, int], None]
#: Called when a worker begins a stage.
OnStage = Callable[[Case, Lane, Stage], None]
#: The environments, each with the open store of its run, by name.
Stores = Mapping[str, tuple[Software, RunStore]]


def ignore(*_: object) -> None:
    """Show nothing."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """An environment, and the folder of its run."""

    software: Software
    folder: Path


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The run of an experiment in one environment: the cases that are left, and the records that exist."""

    store: RunStore
    pool: Pool
    machine: MachineInfo
    manifest: Manifest
    left: Plan
    done: tuple[Record, ...] = ()


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that are ready to start, by the names of their environments; a run in this environment has no name.

    `workers` is a context manager: enter it before `run`.
    """

    parts: dict[str, Part]
    lanes: tuple[Lane, ...]
    workers: PoolWorkers

    @property
    def manifest(self) -> Manifest:
        """The manifest of the only run, or of the first."""
        return next(iter(self.parts.values())).manifest

    @property
    def done(self) -> tuple[Record, ...]:
        """The records that exist."""
        return tuple(record for part in self.parts.values() for record in part.done)

    @property
    def left(self) -> Plan:
        """The processes that are left of all runs."""
        return _left(self.parts)

    @property
    def total(self) -> int:
        """The number of cases of all runs, with those that have records."""
        return sum(len(part.manifest.cases) for part in self.parts.values())

    def run(
        self, on_stage: OnStage = ignore, on_start: Callable[[PlannedCase], None] = ignore
    ) -> Iterator[tuple[str, Record]]:
        """Run the cases that are left. Each record is yielded after it is on disk, with the name of its environment.

        A turn with a record may run again, for the files that it leaves for others; its first record stays.
        """
        numbers = {name: {case: n for n, case in enumerate(part.manifest.cases)} for name, part in self.parts.items()}

        def log_path(planned: PlannedCase) -> Path:
            name, (case, *turn) = planned.environment, planned.key
            label = " ".join([case.label(), *(map(str, turn) if planned.turn is not None else ())])
            return self.parts[name].store.log_path(numbers[name][case], label)

        scheduler = Scheduler(
            self.workers, self.lanes, self.manifest.settings, log_path=log_path, on_stage=on_stage, on_start=on_start
        )
        left = in_turns({name: part.left for name, part in self.parts.items()})
        turns = Counter(planned.case for planned in left if planned.turn is not None)
        with contextlib.closing(scheduler.run_planned(left)) as finished:
            for planned, record in finished:
                part = self.parts[planned.environment]
                if planned.turn is not None:
                    turns[planned.case] -= 1
                    if not turns[planned.case]:
                        shutil.rmtree(self.workers.folder_of(planned), ignore_errors=True)
                    if any(record.key == before.key for before in part.done):
                        continue
                curves = {curve.case: curve.samples_per_s for curve in part.manifest.batch_curves}
                whole = msgspec.structs.replace(record, batch_curve=curves.get(record.case.tuning_case()))
                yield planned.environment, kept(part.store, whole, part.manifest)


def _left(parts: Mapping[str, Part]) -> Plan:
    return tuple(planned for part in parts.values() for planned in part.left)


def here(store: RunStore) -> Stores:
    """The store of a run in this environment, which has no name."""
    return {"": (Software(), store)}


def in_turns(left: Mapping[str, Plan]) -> Plan:
    """Interleave the cases of all environments: in their order in even repeats, in reverse order in odd ones.

    The scheduler runs all first repeats before the second ones, so a case of two environments is measured in the order
    A B B A A B ...
    """
    by_key: dict[RecordKey, dict[str, PlannedCase]] = {}
    for name, some in left.items():
        for one in some:
            by_key.setdefault(one.key, {})[name] = msgspec.structs.replace(one, environment=name)
    names = list(left)
    return tuple(
        found[name]
        for (case, _, _), found in by_key.items()
        for name in (names if case.repeat % 2 == 0 else names[::-1])
        if name in found
    )


def measure(
    request: RunRequest,
    places: Mapping[str, Place],
    *,
    only: Collection[Case] = (),
    on_record: OnRecord = ignore,
    on_stage: OnStage = ignore,
) -> None:
    """Measure what is missing of `request` in each place. Records are on disk as they come.

    Args:
        request: measured in each place. The batch sizes are given: `auto` could choose others in each. If no
            device is named, the one that the first environment prefers is used in all.
        places: by name. A run that was begun ends with the cases that it began with.
        only: if any: only these of the request's cases, given with repeat 0.
        on_record: called with each record.
        on_stage: called with each stage of a worker.

    Raises:
        UsageError, CatalogError, ServerError, StoreError: the experiment can't be made; the message is one line.
    """
    with contextlib.ExitStack() as stack:
        stores = {}
        for name, place in places.items():
            store = RunStore(place.folder, resume=(place.folder / "run.json").is_file())
            stores[name] = (place.software, stack.enter_context(store))
        if all(store.resume and read_run(store.path).is_whole for _, store in stores.values()):
            return
        experiment = ready(stores, request, only=only)
        stack.enter_context(experiment.workers)
        for done, (name, record) in enumerate(experiment.run(on_stage), len(experiment.done) + 1):
            on_record(name, record, done, experiment.total)


def ready(
    stores: Stores,
    request: RunRequest | None = None,
    *,
    only: Collection[Case] = (),
    turns_of: TurnsOf | None = None,
    retry_failed: bool = False,
    relocated: Callable[[Run], Run] = lambda run: run,
    on_tried: OnTried = ignore_tried,
) -> Experiment:
    """Plan the request in each place, or go on with the run that it holds, and write the manifests of new runs.

    Args:
        stores: of the runs, open.
        request: what is measured where a place holds no run yet; None where all hold one. A run that was begun keeps
            its own cases and settings.
        only: if any: only these of the request's cases, given with repeat 0.
        turns_of: the fresh processes that measure a case; None: a worker measures it.
        retry_failed: in runs that were begun, run the cases that failed once more, too.
        relocated: returns a run that was begun with the folders of its models where they are now.
        on_tried: called with each batch that the batch size `auto` tries.

    Raises:
        UsageError, CatalogError, ServerError: the request can't be carried out.
        StoreError: a run began on another machine or other software, or a model is no longer there.
    """
    with contextlib.ExitStack() as until_ready:
        parts: dict[str, Part] = {}
        models = () if request is None else models_of(request)
        for name, (software, store) in stores.items():
            if store.resume:
                run = relocated(read_run(store.path, in_turns=turns_of is not None))
                parts[name] = _resumed(software, run, store, until_ready, turns_of, retry_failed=retry_failed)
            else:
                assert request is not None
                asked = _Asked(request, models, only, turns_of, on_tried, environments=len(stores))
                parts[name] = _new(software, store, asked, until_ready)
            if request is not None and not request.axes.devices:
                axes = msgspec.structs.replace(request.axes, devices=(parts[name].machine.default_device,))
                request = msgspec.structs.replace(request, axes=axes)
        lanes = _lanes(parts)
        share_s = None
        if request is not None and turns_of is None:
            left = _left(parts)
            share_s = budget.share_s(request.budget, request.settings, left, lanes)
        runs = {}
        for name, part in parts.items():
            speed_s = None
            if turns_of is not None:
                part.pool.renew()  # a server of fresh processes has loaded nothing
            elif lanes:  # else nothing is left
                speed_s = part.pool.host_speed(lanes)
            if not part.store.resume:
                settings = msgspec.structs.replace(part.manifest.settings, share_s=share_s)
                manifest = msgspec.structs.replace(part.manifest, settings=settings, undisturbed_loop_s=speed_s)
                parts[name] = msgspec.structs.replace(part, manifest=manifest)
                part.store.begin(manifest)
            looks_s = (part.manifest.undisturbed_loop_s, speed_s)
            runs[name] = PoolRun(
                pool=part.pool,
                settings=parts[name].manifest.settings,
                undisturbed_loop_s=min(filter(None, looks_s), default=None),
            )
        until_ready.pop_all()  # the workers' context closes the pools
        keeps_to = own_cores() if turns_of is None else None
        return Experiment(parts=parts, lanes=lanes, workers=PoolWorkers(runs, own_cores=keeps_to))


def _lanes(parts: Mapping[str, Part]) -> tuple[Lane, ...]:
    """The lanes that all environments share."""
    first = next(iter(parts.values()))
    settings, indices = first.manifest.settings, first.manifest.device_indices
    of_run = [case.device for part in parts.values() for case in part.manifest.cases]
    if first.manifest.turns:
        return make_fresh_lanes(settings.jobs, list(dict.fromkeys(of_run)), indices, first.machine)
    left = [one.case for part in parts.values() for one in part.left]
    devices, worlds = list(dict.fromkeys(case.device for case in left)), [case.world for case in left]
    return lanes_for(devices, indices, settings, first.machine, worlds, of_run=of_run)


@dataclass(frozen=True)
class _Asked:
    """See `ready`."""

    request: RunRequest
    models: Models
    only: Collection[Case]
    turns_of: TurnsOf | None
    on_tried: OnTried
    environments: int


def _new(software: Software, store: RunStore, asked: _Asked, stack: contextlib.ExitStack) -> Part:
    """Check the request, ask the environment what it has, and make the plan. The host's speed is not known yet."""
    request, models, turns_of = asked.request, asked.models, asked.turns_of
    if turns_of is None:
        _check_jobs(request)
    elif plan.AUTO in request.axes.batch_sizes:
        raise UsageError("--bs auto: name the batch sizes, for fresh processes don't look for one")
    tuned = tuned_batches(request.batch_file)
    libraries = to_preload(models, request.axes.backends) if turns_of is None else []
    pool = stack.enter_context(_pool(software, libraries, request.settings))
    machine = pool.machine_info()
    try:
        axes = plan.axes_on(request.axes, machine)
    except UsageError as error:
        if not software.name:
            raise
        raise ServerError(software.name, one_line(error)) from error  # another environment may see another device
    lacking = pool.missing(readable(models), axes.backends)
    to_tune = plan.to_tune(models, axes, lacking)
    curves = throughput_curves(to_tune, quick(request), pool, machine, store.logs, asked.on_tried)
    found = {case: best_batch(curve) for case, curve in curves.items()}
    planned = plan.make_plan(models, axes, lacking, tuned_on(machine, axes.devices, tuned), found)
    if asked.only:
        planned = tuple(one for one in planned if one.case.first_repeat() in asked.only)
    settings = with_jobs(request.settings, request.jobs, axes.devices, cases=asked.environments * len(planned))
    left = planned
    if turns_of is not None:
        jobs = request.jobs or max(1, len(request.device_indices or ()))
        settings = msgspec.structs.replace(request.settings, jobs=jobs, compile_threads=None)
        left = turns_of_plan(planned, turns_of, {})
    manifest = make_manifest(request, settings, machine, models, planned)
    batch_curves = tuple(
        BatchCurve(case=at_batch(case, found[case]), samples_per_s=curve) for case, curve in curves.items()
    )
    turns = 0 if turns_of is None else len(left)
    manifest = msgspec.structs.replace(manifest, batch_curves=batch_curves, turns=turns)
    return Part(store=store, pool=pool, machine=machine, manifest=manifest, left=left)


def _resumed(
    software: Software,
    run: Run,
    store: RunStore,
    stack: contextlib.ExitStack,
    turns_of: TurnsOf | None,
    *,
    retry_failed: bool,
) -> Part:
    """The cases of a run that are not finished yet, under the settings that the run began with.

    Of a run in turns, all cases: `turns_of_plan` tells what is left of each.
    """
    rest = rest_of(run, retry_failed=retry_failed, in_turns=turns_of is not None)
    used = [case.backend for case in rest.cases]
    libraries = to_preload(rest.models, used) if turns_of is None else []
    pool = stack.enter_context(_pool(software, libraries, run.manifest.settings))
    machine = pool.machine_info()
    check_same_machine(run, machine.environment)
    left = rest.plan(pool.missing(readable(rest.models), used))
    if turns_of is not None:
        left = turns_of_plan(left, turns_of, {record.key: record.outcome for record in rest.done})
    return Part(store=store, pool=pool, machine=machine, manifest=run.manifest, left=left, done=rest.done)


def _pool(software: Software, libraries: Sequence[str], settings: Settings) -> Pool:
    limit_s = settings.limits.build_s
    return Pool(libraries, limit_s, name=software.name, python=software.python, variables=software.variables)


def planned_here(request: RunRequest) -> tuple[Plan, tuple[Lane, ...]]:
    """The cases of a request on this machine, as `ready` plans them, and the lanes for those that can run.

    No batch size `auto` is searched for.

    Raises:
        UsageError, CatalogError, ServerError: the request can't be carried out.
    """
    _check_jobs(request)
    models = models_of(request)
    tuned = tuned_batches(request.batch_file)
    with Pool([], request.settings.limits.build_s) as pool:
        machine = pool.machine_info()
        axes = plan.axes_on(request.axes, machine)
        lacking = pool.missing(readable(models), axes.backends)
    planned = plan.make_plan(models, axes, lacking, tuned_on(machine, axes.devices, tuned))
    settings = with_jobs(request.settings, request.jobs, axes.devices, cases=len(planned))
    worlds = [one.case.world for one in planned]
    return planned, lanes_for(axes.devices, request.device_indices, settings, machine, worlds)


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
    """Make the manifest of a run that has no records. The host's speed is not known yet.

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
    """The rest of a run that was cut short."""

    done: tuple[Record, ...]
    cases: tuple[Case, ...]  # without a record, or with one that an interrupt cut short
    models: Models  # of these cases

    def plan(self, lacking: dict[str, str]) -> Plan:
        """The cases, those that can't run on this machine with the reason (`resources.missing`)."""
        by_name = {model.name if isinstance(model, ModelSpec) else model[0]: model for model in self.models}
        return tuple(plan.plan_case(case, by_name[case.model], lacking) for case in self.cases)


def rest_of(run: Run, *, retry_failed: bool, in_turns: bool = False) -> Rest:
    """Return the rest of a run. In a run in turns, `retry_failed` repeats skipped turns, too.

    Raises:
        StoreError: a model is no longer there.
        CatalogError: a folder of models is no longer there.
    """

    def is_again(record: Record) -> bool:
        return record.failure is not None or (in_turns and isinstance(record.outcome, Skipped))

    done = tuple(record for record in run.finished if not (retry_failed and is_again(record)))
    have_record = set() if in_turns else {record.case for record in done}
    cases = tuple(case for case in run.manifest.cases if case not in have_record)
    catalog = find_models(map(Path, run.manifest.models_dirs))
    gone = sorted({case.model for case in cases if case.model not in catalog})
    if gone:
        raise StoreError(f"{run.path} needs models that are no longer there: {', '.join(gone)}")
    models = read_models(catalog, list(dict.fromkeys(case.model for case in cases)))
    return Rest(done=done, cases=cases, models=models)


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
