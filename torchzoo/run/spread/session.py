"""A run that is spread over nodes, new or resumed: the same plan, the same folder, the same records as any other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import msgspec

from torchzoo.case import Backend, Case
from torchzoo.errors import UsageError
from torchzoo.machine.differences import machine_kind
from torchzoo.record import Manifest, Record
from torchzoo.run import plan
from torchzoo.run.debugging import kept
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import Models, models_of
from torchzoo.run.scheduler import in_order, record_of_resolved
from torchzoo.run.session import make_manifest, rest_of, tuned_batches, tuned_on
from torchzoo.run.spread import protocol
from torchzoo.run.spread.controller import Controller
from torchzoo.run.spread.crew import Crew, Member
from torchzoo.run.spread.leases import Leases
from torchzoo.run.spread.nodes import Nodes
from torchzoo.settings import Settings, Stage
from torchzoo.store import Run, RunStore
from torchzoo.zoo.folders import bundled
from torchzoo.zoo.spec import ModelSpec

Say = Callable[[str], None]


class SpreadSession:
    """A spread run that is ready to start. It is used as a `torchzoo.run.session.Session` is.

    Args:
        manifest: of the run. Nodes that join later are added.
        left: the cases without a record.
        done: the records that exist.
        crew: nodes that have begun.
    """

    def __init__(self, manifest: Manifest, left: Plan, done: tuple[Record, ...], crew: Crew) -> None:
        self.manifest = manifest
        self.left = left
        self.done = done
        self.workers: AbstractContextManager[object] = contextlib.nullcontext()  # the nodes have them
        self._crew = crew

    @property
    def lanes(self) -> tuple[Lane, ...]:
        begun = [member.begun for member in self._crew.members.values() if member.begun is not None]
        return tuple(lane for one in begun for lane in one.lanes)

    def run(self, run_store: RunStore, on_stage: Callable[[Case, Lane, Stage], None]) -> Iterator[Record]:
        """Run the cases that are left. Each record is yielded after it is on disk."""
        numbers = {case: number for number, case in enumerate(self.manifest.cases)}
        curves = {curve.case: curve.samples_per_s for curve in self.manifest.batch_curves}

        def keep_log(case: Case, log: str) -> str:
            path = run_store.log_path(numbers[case], case.label())
            path.write_text(log, encoding="utf-8")
            return str(path)

        def on_begun(member: Member) -> None:
            if self._note(member):
                run_store.begin(self.manifest)

        for planned in self.left:
            if planned.resolved is not None:
                yield run_store.append(record_of_resolved(planned))
        runnable = [one for one in in_order(self.left, jobs=2) if one.resolved is None]
        controller = Controller(self._crew, Leases(runnable), keep_log=keep_log, on_stage=on_stage, on_begun=on_begun)
        with contextlib.closing(controller.run()) as finished:
            for found in finished:
                record = msgspec.structs.replace(found, batch_curve=curves.get(found.case.tuning_case()))
                yield kept(run_store, record, self.manifest)

    def _note(self, member: Member) -> bool:
        """Add a node to the manifest. Returns whether it was not there yet."""
        host = member.as_host()
        if any((one.name, one.lanes) == (host.name, host.lanes) for one in self.manifest.hosts):
            return False
        self.manifest = msgspec.structs.replace(self.manifest, hosts=(*self.manifest.hosts, host))
        return True


def new_spread_run(
    request: RunRequest, run_store: RunStore, nodes: Nodes, *, host_kind: str | None, say: Say
) -> SpreadSession:
    """Check the request, ask the nodes what they have, make the plan, and write the manifest.

    Raises:
        UsageError, CatalogError, EngineError: the request can't be carried out.
    """
    if plan.AUTO in request.axes.batch_sizes:
        raise UsageError("--bs auto searches on this machine: use it with --executor local, or name the batch sizes")
    models = models_of(request)
    tuned = tuned_batches(request.batch_file)
    crew = _ready_crew(nodes, models, request.axes.backends, request.settings, say)
    crew.choose(host_kind)
    prepared = [member.prepared for member in crew.members.values() if member.prepared is not None]
    machine = prepared[0].machine
    axes = plan.axes_on(request.axes, machine)
    planned = plan.make_plan(models, axes, _missing(crew), tuned_on(machine, axes.devices, tuned))
    settings = request.settings
    _begin(crew, settings, request.jobs, planned, request.device_indices)
    first = next(member for member in crew.members.values() if member.begun is not None)
    assert first.begun is not None
    manifest = make_manifest(request, first.begun.settings, machine, models, planned)
    hosts = tuple(member.as_host() for member in crew.members.values() if member.begun is not None)
    manifest = msgspec.structs.replace(manifest, hosts=hosts, undisturbed_loop_s=first.begun.undisturbed_loop_s)
    run_store.begin(manifest)
    return SpreadSession(manifest, planned, (), crew)


def resumed_spread_run(run: Run, nodes: Nodes, *, retry_failed: bool, host_kind: str | None, say: Say) -> SpreadSession:
    """The cases of `run` that have no record yet, on nodes of the kind that it began on, whatever ran it before.

    Raises:
        StoreError, UsageError, CatalogError, EngineError: the run can't go on here.
    """
    manifest = run.manifest
    rest = rest_of(run, retry_failed=retry_failed)
    backends = tuple(dict.fromkeys(case.backend for case in rest.cases))
    if not rest.cases:
        return SpreadSession(manifest, (), rest.done, _crew(nodes, (), (), manifest.settings, say))
    crew = _ready_crew(nodes, rest.models, backends, manifest.settings, say)
    began_on = [manifest.environment, *(host.environment for host in manifest.hosts)]
    needed = [machine_kind(environment) for environment in began_on]
    crew.choose(host_kind, needed)
    left = rest.plan(_missing(crew))
    _begin(crew, manifest.settings, manifest.settings.jobs, left, manifest.device_indices)
    return SpreadSession(manifest, left, rest.done, crew)


def _ready_crew(nodes: Nodes, models: Models, backends: tuple[Backend, ...], settings: Settings, say: Say) -> Crew:
    """Nodes that have loaded what the cases need."""
    crew = _crew(nodes, models, backends, settings, say)
    crew.gather(lambda member: member.prepared is not None)
    return crew


def _crew(nodes: Nodes, models: Models, backends: tuple[Backend, ...], settings: Settings, say: Say) -> Crew:
    specs = tuple(model for model in models if isinstance(model, ModelSpec))
    prepare = protocol.Prepare(
        models=specs,
        backends=backends,
        import_limit_s=settings.limits.build_s,
        models_root=str(bundled("models")),
    )
    return Crew(nodes, prepare, say)


def _begin(
    crew: Crew, settings: Settings, jobs: int | None, planned: Plan, device_indices: tuple[int, ...] | None
) -> None:
    """Let the nodes begin, and wait until they have."""
    cases = [one.case for one in planned]
    begin = protocol.Begin(
        host="",
        settings=settings,
        jobs=jobs,
        cases=max(1, len(cases)),
        devices=tuple(dict.fromkeys(case.device for case in cases)),
        device_indices=device_indices,
        worlds=tuple(dict.fromkeys(case.world for case in cases)),
    )
    crew.let_begin(begin)
    crew.gather(lambda member: member.begun is not None)


def _missing(crew: Crew) -> dict[str, str]:
    """What is not installed on one of the nodes: a case that needs it can't run wherever it is leased to."""
    lacking: dict[str, str] = {}
    for member in crew.members.values():
        if member.prepared is not None:
            for name, reason in member.prepared.missing.items():
                lacking.setdefault(name, f"{reason} (on {member.host})")
    return lacking
