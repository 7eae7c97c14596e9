"""Two software environments measured beside each other: in turns, process by process, on one machine.

What drifts in the course of a run (the temperature, a neighbour on the same machine) meets both sides alike. The sides
are two run folders, `base` and `candidate`, that every other command reads.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from torchzoo.analysis.compare import RunComparison, compare_runs
from torchzoo.case import Case
from torchzoo.environment import MachineInfo
from torchzoo.errors import TorchzooError, UsageError, attempt, one_line
from torchzoo.files import read_file, to_json
from torchzoo.history.environments import Environment
from torchzoo.provenance import DifferenceKind
from torchzoo.record import Manifest, Record
from torchzoo.run import agent as protocol
from torchzoo.run import plan
from torchzoo.run.agents import AgentProcess, AgentWorkers
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import Models, lanes_for, read_models, with_jobs
from torchzoo.run.scheduler import Scheduler
from torchzoo.run.session import check_same_machine, make_manifest
from torchzoo.settings import Stage
from torchzoo.store import Run, RunStore, read_run, write_whole
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec

FILE = "ab.json"
_MOST_BYTES = 2**20


class Side(enum.StrEnum):
    BASE = "base"
    CANDIDATE = "candidate"


class AbRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured, and in which two environments (SPECs, see `torchzoo.history.environments`)."""

    base: str
    candidate: str
    run: RunRequest


class AbError(TorchzooError):
    """A folder of an A/B measurement can't be used. The message is one line."""


#: Called for each record, with its side and how many are done of how many.
OnRecord = Callable[[Side, Record, int, int], None]
#: Called when a worker begins a stage.
OnStage = Callable[[Case, Lane, Stage], None]


def ignore(*_: object) -> None:
    """Nothing is shown."""


def begin(request: AbRequest, path: Path) -> None:
    """Note in `path` what is to be measured, so that it can be resumed.

    Raises:
        UsageError: the request can't be measured so, or the folder holds another measurement.
    """
    if plan.AUTO in request.run.axes.batch_sizes:
        raise UsageError("--bs auto could choose other batches for each side: give numbers, smoke or default")
    if (path / FILE).exists():
        raise UsageError(f"{path} holds an A/B measurement already: go on with --resume {path}, or name another folder")
    path.mkdir(parents=True, exist_ok=True)
    write_whole(path / FILE, msgspec.json.format(to_json(request), indent=1) + b"\n")


def read_request(path: Path) -> AbRequest:
    """What the measurement in `path` was begun with.

    Raises:
        AbError: there is none, or its file can't be read.
    """
    if not (path / FILE).is_file():
        raise AbError(f"no A/B measurement in {path}: there is no file {FILE}")
    found = attempt(lambda: msgspec.json.decode(read_file(path / FILE, _MOST_BYTES), type=AbRequest))
    if isinstance(found, Exception):
        raise AbError(f"{path / FILE}: {one_line(found)}")
    return found


def measure(
    request: AbRequest,
    environments: dict[Side, Environment],
    path: Path,
    *,
    on_record: OnRecord = ignore,
    on_stage: OnStage = ignore,
) -> None:
    """Measure what is missing of `request` into the two run folders below `path`. Records are kept as they come.

    Raises:
        UsageError, CatalogError, AgentError, StoreError: it can't be carried out; the message is one line.
    """
    catalog = find_models(map(Path, request.run.models_dirs))
    models = read_models(catalog, catalog.select(request.run.patterns, request.run.suites))
    with contextlib.ExitStack() as stack:
        stores = {side: stack.enter_context(_store(path / side)) for side in Side}
        agents = {side: stack.enter_context(_agent(environments[side])) for side in Side}
        sides = {side: _prepare(agents[side], stores[side], request.run, models) for side in Side}
        left = in_turns({side: one.left for side, one in sides.items()})
        if not left:
            return
        lanes = _begin(agents, stores, sides, request.run)
        total = sum(len(one.manifest.cases) for one in sides.values())
        done = total - len(left)
        workers = stack.enter_context(AgentWorkers({side.value: agent for side, agent in agents.items()}))
        for side, record in _measured(left, workers, lanes, stores, sides, on_stage):
            done += 1
            on_record(side, record, done, total)


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A side that is ready: what it is asked to measure and what is left of it."""

    manifest: Manifest
    left: Plan
    machine: MachineInfo


def _store(path: Path) -> RunStore:
    return RunStore(path, resume=(path / "run.json").is_file())


def _agent(environment: Environment) -> AgentProcess:
    return AgentProcess(environment.name, environment.python, environment.variables)


def _prepare(agent: AgentProcess, store: RunStore, request: RunRequest, models: Models) -> _Prepared:
    """Ask the side's environment what it has, and plan what is left to do there. A new side's manifest is not written.

    Cases that the environment has no library for are skipped with the reason, as in a run.
    """
    specs = tuple(model for model in models if isinstance(model, ModelSpec))
    prepare = protocol.Prepare(
        models=specs, backends=request.axes.backends, import_limit_s=request.settings.limits.build_s
    )
    found = agent.ask(prepare, protocol.Prepared)
    axes = request.axes
    if not axes.devices:
        axes = msgspec.structs.replace(axes, devices=(found.machine.default_device,))
    plan.check_axes(axes, found.machine)
    planned = plan.make_plan(models, axes, found.missing)
    settings = with_jobs(request.settings, request.jobs, axes.devices, cases=2 * len(planned))
    manifest = make_manifest(request, settings, found.machine, models, planned)
    done: set[Case] = set()
    if store.resume:
        before = read_run(store.path)
        check_same_machine(before, found.machine.environment)
        manifest, done = before.manifest, {record.case for record in before.records}
    left = tuple(one for one in planned if one.case not in done and one.case in set(manifest.cases))
    return _Prepared(manifest=manifest, left=left, machine=found.machine)


def _begin(
    agents: dict[Side, AgentProcess], stores: dict[Side, RunStore], sides: dict[Side, _Prepared], request: RunRequest
) -> tuple[Lane, ...]:
    """Let the agents begin, and write the manifests of new sides. Returns the lanes, which both sides share."""
    base = sides[Side.BASE]
    devices = list(dict.fromkeys(case.device for case in base.manifest.cases))
    lanes = lanes_for(devices, request.device_indices, base.manifest.settings, base.machine)
    for side, one in sides.items():
        known_s = one.manifest.undisturbed_loop_s
        begun = agents[side].ask(
            protocol.Begin(settings=one.manifest.settings, lanes=lanes, undisturbed_loop_s=known_s), protocol.Begun
        )
        if not stores[side].resume:
            stores[side].begin(msgspec.structs.replace(one.manifest, undisturbed_loop_s=begun.undisturbed_loop_s))
    return lanes


def _measured(
    left: Plan,
    workers: AgentWorkers,
    lanes: tuple[Lane, ...],
    stores: dict[Side, RunStore],
    sides: dict[Side, _Prepared],
    on_stage: OnStage,
) -> Iterator[tuple[Side, Record]]:
    """Each record with its side, after it is on disk."""
    settings = sides[Side.BASE].manifest.settings
    numbers = {(side, case): number for side, one in sides.items() for number, case in enumerate(one.manifest.cases)}

    def log_path(planned: PlannedCase) -> Path:
        side = Side(planned.agent)
        return stores[side].log_path(numbers[side, planned.case], planned.case.label())

    scheduler = Scheduler(
        workers, lanes, jobs=settings.jobs, limits=settings.limits, log_path=log_path, on_stage=on_stage
    )
    with contextlib.closing(scheduler.run_planned(left)) as finished:
        for planned, record in finished:
            side = Side(planned.agent)
            yield side, stores[side].append(record)


def in_turns(left: dict[Side, Plan]) -> Plan:
    """The cases of both sides, one side's beside the other's: A B in even repeats, B A in odd ones.

    The scheduler runs all first repeats before the second ones, so each case is measured in the order A B B A A B ...
    """
    by_case: dict[Case, dict[Side, PlannedCase]] = {}
    for side, some in left.items():
        for one in some:
            by_case.setdefault(one.case, {})[side] = msgspec.structs.replace(one, agent=side.value)
    return tuple(
        both[side]
        for case, both in by_case.items()
        for side in (list(Side) if case.repeat % 2 == 0 else list(reversed(Side)))
        if side in both
    )


def compare_sides(path: Path, *, threshold: float | None = None) -> RunComparison:
    """The verdicts of `compare`, whatever the sides differ in: that difference is the point.

    Raises:
        StoreError: a side can't be read. UsageError: they have no case in common.
    """
    base, candidate = (read_run(path / side) for side in Side)
    return compare_runs(base, candidate, threshold=threshold, across=frozenset(DifferenceKind))


def read_sides(path: Path) -> dict[Side, Run]:
    """The two runs of a measurement.

    Raises:
        StoreError: one of them can't be read.
    """
    return {side: read_run(path / side) for side in Side}
