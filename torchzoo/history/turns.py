"""Measure the same cases in several software environments of this machine, process by process in turns.

Whatever drifts in the course of a run (the temperature, other users of the machine) affects all of them alike. Each
environment has a run folder of its own, which every other command reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from torchzoo.case import Case
from torchzoo.environments.make import PythonEnvironment
from torchzoo.errors import UsageError, one_line
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import Manifest, Record
from torchzoo.run import plan
from torchzoo.run.batches import Tuned
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.pool import Pool, PoolRun, PoolWorkers, ServerError
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import Models, lanes_for, models_of, own_cores, to_preload, with_jobs
from torchzoo.run.scheduler import Scheduler
from torchzoo.run.session import check_same_machine, make_manifest, tuned_batches, tuned_on
from torchzoo.settings import Stage
from torchzoo.store import RunStore, StoreError, read_run
from torchzoo.zoo.spec import ModelSpec

#: Called for each record, with the name of its environment, the number of records so far, and their total.
OnRecord = Callable[[str, Record, int, int], None]
#: Called when a worker begins a stage.
OnStage = Callable[[Case, Lane, Stage], None]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """An environment, and the folder of its run."""

    environment: PythonEnvironment
    folder: Path


class _Side(msgspec.Struct, frozen=True, kw_only=True):
    """An environment that is ready, with its cases and those that are left to measure."""

    pool: Pool
    store: RunStore
    manifest: Manifest
    left: Plan
    machine: MachineInfo
    is_kept: bool  # whether the manifest is on disk already


def ignore(*_: object) -> None:
    """Show nothing."""


def measure(
    request: RunRequest,
    places: Mapping[str, Place],
    *,
    only: Collection[Case] = (),
    grows: bool = False,
    on_record: OnRecord = ignore,
    on_stage: OnStage = ignore,
) -> None:
    """Measure what is missing of `request` in each place. Records are on disk as they come.

    Args:
        request: measured in each place. The batch sizes are given: `auto` could choose others in each. If no
            device is named, the one that the first environment prefers is used in all.
        places: by name. A folder that holds a part of the run is completed.
        only: if any: only these of the request's cases, given with repeat 0.
        grows: whether cases that a begun run does not have, such as more repeats, are added to it. If not, a begun run
            ends with the cases it began with.
        on_record: called with each record.
        on_stage: called with each stage of a worker.

    Raises:
        UsageError, CatalogError, ServerError, StoreError: the run can't be made; the message is one line.
    """
    models = models_of(request)
    tuned = tuned_batches(request.batch_file)
    libraries, limit_s = to_preload(models, request.axes.backends), request.settings.limits.build_s
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, place in places.items():
            resume = (place.folder / "run.json").is_file()
            store = stack.enter_context(RunStore(place.folder, resume=resume))
            found = place.environment
            pool = Pool(libraries, limit_s, name=found.name, python=found.python, variables=found.variables)
            sides[name] = _ready(
                stack.enter_context(pool), store, request, models, tuned, only=only, grows=grows, cases_in=len(places)
            )
            if not request.axes.devices:  # the other environments use the device of the first one, too
                axes = msgspec.structs.replace(request.axes, devices=(sides[name].machine.default_device,))
                request = msgspec.structs.replace(request, axes=axes)
        left = in_turns({name: side.left for name, side in sides.items()})
        if not left:
            return
        lanes, runs = _begin(sides, request)
        total = sum(len(side.manifest.cases) for side in sides.values())
        workers = stack.enter_context(PoolWorkers(runs, own_cores=own_cores()))
        for done, (name, record) in enumerate(_measured(left, workers, lanes, sides, on_stage), total - len(left) + 1):
            on_record(name, record, done, total)


def in_turns(left: Mapping[str, Plan]) -> Plan:
    """Interleave the cases of all environments: in their order in even repeats, in reverse order in odd ones.

    The scheduler runs all first repeats before the second ones, so a case of two environments is measured in the order
    A B B A A B ...
    """
    by_case: dict[Case, dict[str, PlannedCase]] = {}
    for name, some in left.items():
        for one in some:
            by_case.setdefault(one.case, {})[name] = msgspec.structs.replace(one, environment=name)
    names = list(left)
    return tuple(
        found[name]
        for case, found in by_case.items()
        for name in (names if case.repeat % 2 == 0 else names[::-1])
        if name in found
    )


def _ready(
    pool: Pool,
    store: RunStore,
    request: RunRequest,
    models: Models,
    tuned: Tuned,
    *,
    only: Collection[Case],
    grows: bool,
    cases_in: int,
) -> _Side:
    """Ask the environment what it has, and plan what is left to measure there. No manifest is written.

    Cases for which the environment lacks a library are skipped with the reason, as in every run.
    """
    machine = pool.machine_info()
    missing = pool.missing([model for model in models if isinstance(model, ModelSpec)], request.axes.backends)
    try:
        axes = plan.axes_on(request.axes, machine)
    except UsageError as error:  # another environment may see another device
        raise ServerError(pool.name, one_line(error)) from error
    planned = plan.make_plan(models, axes, missing, tuned_on(machine, axes.devices, tuned))
    if only:
        planned = tuple(one for one in planned if one.case.first_repeat() in only)
    settings = with_jobs(request.settings, request.jobs, axes.devices, cases=cases_in * len(planned))
    manifest = make_manifest(request, settings, machine, models, planned)
    done: set[Case] = set()
    is_kept = False
    if store.resume:
        before = read_run(store.path)
        check_same_machine(before, machine.environment)
        manifest = _grown(before.manifest, manifest) if grows else before.manifest
        done = before.finished
        is_kept = manifest == before.manifest
    to_do = set(manifest.cases) - done
    left = tuple(one for one in planned if one.case in to_do)
    if len(left) < len(to_do) and not grows:
        gone = next(case for case in manifest.cases if case in to_do and case not in {one.case for one in left})
        raise StoreError(
            f"{store.path} was begun with {gone.label()}, which is not asked for now: start anew elsewhere"
        )
    return _Side(pool=pool, store=store, manifest=manifest, left=left, machine=machine, is_kept=is_kept)


def _grown(before: Manifest, now: Manifest) -> Manifest:
    """Return the manifest of a begun run with new cases of the request appended."""
    cases = tuple(dict.fromkeys((*before.cases, *now.cases)))
    return msgspec.structs.replace(before, cases=cases, domains={**before.domains, **now.domains})


def _begin(sides: Mapping[str, _Side], request: RunRequest) -> tuple[tuple[Lane, ...], dict[str, PoolRun]]:
    """Write the manifests of new and grown runs. Return the slots that all environments share, and their runs."""
    cases = [case for side in sides.values() for case in side.manifest.cases]
    devices = list(dict.fromkeys(case.device for case in cases))
    worlds = list(dict.fromkeys(case.world for case in cases))
    first = next(iter(sides.values()))
    lanes = lanes_for(devices, request.device_indices, first.manifest.settings, first.machine, worlds)
    runs = {}
    for name, side in sides.items():
        before_s = side.manifest.undisturbed_loop_s
        speed_s = min(filter(None, (before_s, side.pool.host_speed(lanes))))
        runs[name] = PoolRun(pool=side.pool, settings=side.manifest.settings, undisturbed_loop_s=speed_s)
        if not side.is_kept:
            kept_s = before_s if side.store.resume else speed_s
            side.store.begin(msgspec.structs.replace(side.manifest, undisturbed_loop_s=kept_s))
    return lanes, runs


def _measured(
    left: Plan, workers: PoolWorkers, lanes: tuple[Lane, ...], sides: Mapping[str, _Side], on_stage: OnStage
) -> Iterator[tuple[str, Record]]:
    """Yield each record with the name of its environment, after it is on disk."""
    settings = next(iter(sides.values())).manifest.settings
    numbers = {name: {case: n for n, case in enumerate(side.manifest.cases)} for name, side in sides.items()}

    def log_path(planned: PlannedCase) -> Path:
        return sides[planned.environment].store.log_path(
            numbers[planned.environment][planned.case], planned.case.label()
        )

    scheduler = Scheduler(workers, lanes, settings, log_path=log_path, on_stage=on_stage)
    with contextlib.closing(scheduler.run_planned(left)) as finished:
        for planned, record in finished:
            yield planned.environment, sides[planned.environment].store.append(record)
