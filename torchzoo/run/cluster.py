"""A run over several hosts: each measures cases by itself, and every case gets one record, whatever becomes of hosts.

The runner gives a host more cases when it needs some, and keeps all records in the folder of the run.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from torchzoo import __version__
from torchzoo.case import Case
from torchzoo.errors import UsageError
from torchzoo.machine.differences import MachineKind, differences_of_kinds, machine_kind
from torchzoo.record import Failed, FailureKind, Host, Manifest, Record
from torchzoo.run import budget, plan
from torchzoo.run.debugging import kept
from torchzoo.run.experiment import OnStage, make_manifest, rest_of, tuned_batches, tuned_on
from torchzoo.run.host_process import Entered, Finished, Given, HostReady, HostStart
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan
from torchzoo.run.ray_hosts import PATIENCE_S, ClusterError, Event, Lost, RayHosts
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import models_of, readable
from torchzoo.run.scheduler import in_order, record_of_resolved, timestamp
from torchzoo.store import Run, RunStore
from torchzoo.zoo.folders import bundled

WAIT_S = 1.0  # at most: an interrupt is seen so late
#: `--host-kind`: use hosts of all kinds.
ANY = "any"

Say = Callable[[str], None]


# --- which host runs which case ---


@dataclass
class _Taker:
    """A host that takes cases."""

    kind: MachineKind
    ready: HostReady
    held: dict[Case, Entered | None] = field(default_factory=dict)  # the stage of each case that has begun

    def runs(self, case: Case) -> bool:
        return any(lane.runs(case) for lane in self.ready.lanes)


class CaseQueue:
    """The cases of a run that have no record, and the hosts that have them. The repeats of a case stay on one kind.

    When a host is lost, its cases go back to the front of the queue. A case that was running there fails when a second
    host is lost while it runs; until it has a record, no other case of its sort is on its host.

    Args:
        cases: those without a record, in the order in which they are to start.
    """

    def __init__(self, cases: Iterable[Case]) -> None:
        self._waiting = dict.fromkeys(cases)  # in their order
        self._takers: dict[str, _Taker] = {}
        self._began_at: dict[Case, str] = {}
        self._lost_on: dict[Case, str] = {}  # the host that was lost while it ran the case
        self._kind_of: dict[Case, MachineKind] = {}  # by the first repeat of a case
        self._has_record: set[Case] = set()  # first repeats of cases

    @property
    def left(self) -> int:
        """How many cases have no record."""
        return len(self._waiting) + sum(len(taker.held) for taker in self._takers.values())

    def join(self, name: str, ready: HostReady) -> None:
        """A host can run cases from now on."""
        self._takers[name] = _Taker(machine_kind(ready.machine.environment), ready)

    def take(self, name: str) -> list[Case]:
        """The cases that a host gets now: as many as it works on, and one more for each lane while many are left.

        No host gets more than its share of what is left, so that all end together.
        """
        taker = self._takers[name]
        share = -(-len(self._waiting) // len(self._takers))
        ahead = len(taker.ready.lanes) if len(self._waiting) > len(self._takers) else 0
        most = min(taker.ready.most_alive + ahead - len(taker.held), share)
        taken: list[Case] = []
        for case in self._waiting:
            if len(taken) >= most:
                break
            beside_another = case in self._lost_on and any(other in self._lost_on for other in taker.held)
            if not beside_another and self._may_run(case, taker):
                taken.append(case)
                taker.held[case] = None
                self._kind_of[case.first_repeat()] = taker.kind
        for case in taken:
            del self._waiting[case]
        return taken

    def enter(self, name: str, entered: Entered) -> None:
        """A host's worker begins a stage of a case."""
        self._takers[name].held[entered.case] = entered
        self._began_at.setdefault(entered.case, timestamp())

    def finish(self, name: str, case: Case) -> None:
        """A host has told the record of a case."""
        del self._takers[name].held[case]
        self._has_record.add(case.first_repeat())

    def lose(self, name: str, why: str) -> list[Record]:
        """A host is gone. Its cases wait again; those that have lost a second host are returned with their failure."""
        lost = self._takers.pop(name, None)
        if lost is None:
            return []
        if all(taker.kind != lost.kind for taker in self._takers.values()):
            self._kind_of = {
                case: kind for case, kind in self._kind_of.items() if kind != lost.kind or case in self._has_record
            }
        failed = [one for case, one in lost.held.items() if one and case in self._lost_on]
        records = [self._lost_twice(entered, name, why) for entered in failed]
        back = [case for case in lost.held if case not in {entered.case for entered in failed}]
        self._waiting = dict.fromkeys(back) | self._waiting
        self._lost_on |= {case: name for case in back if lost.held[case]}
        return records

    def stranded(self) -> Case | None:
        """A case that none of the hosts may run; None while one of them still has cases."""
        if any(taker.held for taker in self._takers.values()):
            return None
        takers = self._takers.values()
        return next((case for case in self._waiting if not any(self._may_run(case, one) for one in takers)), None)

    def _may_run(self, case: Case, taker: _Taker) -> bool:
        return taker.runs(case) and self._kind_of.get(case.first_repeat(), taker.kind) == taker.kind

    def _lost_twice(self, entered: Entered, name: str, why: str) -> Record:
        case = entered.case
        message = f"the host was lost while it ran the case, on {self._lost_on[case]} and then on {name}: {why}"
        self._has_record.add(case.first_repeat())
        return Record(
            case=case,
            outcome=Failed(kind=FailureKind.CRASHED, stage=entered.stage, message=message),
            started_at=self._began_at[case],
            finished_at=timestamp(),
            lane=entered.lane.name,
        )


# --- which hosts take part ---


class Cluster:
    """The hosts that are ready and take part: those with this torchzoo, of the kinds that were chosen.

    Args:
        hosts: where they come from.
        say: tells the user something, in a line.
        now_s: a monotonic clock.
    """

    def __init__(self, hosts: RayHosts, say: Say, now_s: Callable[[], float] = time.monotonic) -> None:
        self.hosts = hosts
        self.ready: dict[str, HostReady] = {}
        self._kinds: tuple[MachineKind, ...] | None = None  # None until they are chosen
        self._say = say
        self._now_s = now_s

    def gather(self, start: HostStart) -> None:
        """Start the hosts, and wait until all of them are ready, or the first ones for some time.

        Raises:
            ClusterError: no host is ready, and none is expected.
        """
        self.hosts.begin(start)
        until_s = math.inf
        while self.hosts.expected() and self._now_s() < until_s:
            self.wait()
            if self.ready:
                until_s = min(until_s, self._now_s() + PATIENCE_S)
        if not self.ready:
            raise ClusterError("no host is ready to run cases; see above")

    def choose(self, asked: str | None, needed: Sequence[MachineKind] = ()) -> None:
        """Choose the kinds of machines that take part (see `choose_kinds`), and dismiss hosts of other kinds.

        Raises:
            UsageError: the hosts differ and no kind was chosen, or none is of a kind that may take part.
        """
        there: dict[MachineKind, list[str]] = {}
        for name, ready in self.ready.items():
            there.setdefault(machine_kind(ready.machine.environment), []).append(name)
        self._kinds = choose_kinds(there, asked, needed)
        for kind in there.keys() - set(self._kinds):
            for name in there[kind]:
                self._dismiss(name, "it is of another kind")

    def wait(self) -> list[tuple[str, Event]]:
        """What happened to the hosts that take part. A new host is ready only if it may take part."""
        happened: list[tuple[str, Event]] = []
        for name, event in self.hosts.wait(WAIT_S):
            match event:
                case HostReady() if why := self._why_not(event):
                    self._dismiss(name, why)
                case HostReady():
                    self.ready[name] = event
                    happened.append((name, event))
                case Lost(why=why):
                    self._say(f"{name} is lost: {why}" if name in self.ready else f"{name} is not used: {why}")
                    self.ready.pop(name, None)
                    happened.append((name, event))
                case _:
                    happened.append((name, event))
        return happened

    def _why_not(self, ready: HostReady) -> str | None:
        environment = ready.machine.environment
        if environment.torchzoo != __version__:
            return f"it has torchzoo {environment.torchzoo}, here is {__version__}"
        if self._kinds is not None and (kind := machine_kind(environment)) not in self._kinds:
            return f"it is of another kind: {differences_of_kinds([kind, *self._kinds])[0]}"
        return None

    def _dismiss(self, name: str, why: str) -> None:
        self._say(f"{name} is not used: {why}")
        self.ready.pop(name, None)
        self.hosts.dismiss(name)


def choose_kinds(
    there: dict[MachineKind, list[str]], asked: str | None, needed: Sequence[MachineKind]
) -> tuple[MachineKind, ...]:
    """The kinds that take part.

    Args:
        there: the hosts of each kind.
        asked: the option `--host-kind`: words of a kind's facts, `any`, or None.
        needed: the kinds that the run began on; empty for a new run.

    Raises:
        UsageError: see `Cluster.choose`.
    """
    kinds = [facts for facts in there if not needed or facts in needed]
    if not kinds:
        here, began = differences_of_kinds([next(iter(there)), needed[0]])
        raise UsageError(f"the run began on another machine or other software: there {began}, here {here}")
    if asked is not None and asked != ANY:
        kinds = [
            kind for kind in kinds if asked.lower() in "; ".join(f"{name} {value}" for name, value in kind).lower()
        ]
    if len(kinds) == 1 or (kinds and (asked == ANY or needed)):
        return tuple(kinds)
    texts = differences_of_kinds(list(there))
    found = "; ".join(f"{_names(hosts)}: {text}" for hosts, text in zip(there.values(), texts, strict=True))
    if asked is not None and not kinds:
        raise UsageError(f"--host-kind {asked}: no such kind among {found}")
    raise UsageError(
        f"the hosts differ ({found}): choose one kind with --host-kind, by a word of it, or mix them with "
        f"--host-kind {ANY}"
    )


def _names(hosts: Sequence[str], most: int = 4) -> str:
    more = f" and {len(hosts) - most} more" if len(hosts) > most else ""
    return f"{', '.join(hosts[:most])}{more}"


# --- a run ---


class ClusterSession:
    """A run over hosts that is ready to start. It is used as a `torchzoo.run.experiment.Experiment` is.

    Args:
        manifest: of the run. Hosts that join later are added.
        left: the cases without a record.
        done: the records that exist.
        cluster: hosts that are ready.
        store: of the run.
    """

    def __init__(
        self, manifest: Manifest, left: Plan, done: tuple[Record, ...], cluster: Cluster, store: RunStore
    ) -> None:
        self.manifest = manifest
        self.store = store
        self.left = left
        self.done = done
        self.workers: AbstractContextManager[object] = contextlib.nullcontext()  # the hosts have them
        self._cluster = cluster

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(lane for ready in self._cluster.ready.values() for lane in ready.lanes)

    def run(self, on_stage: OnStage) -> Iterator[tuple[str, Record]]:
        """Run the cases that are left. Each record is yielded after it is on disk, with the name of no environment.

        Raises:
            ClusterError: no host is left that may run one of the cases.
            KeyboardInterrupt: SIGINT or SIGTERM came.
        """
        numbers = {case: number for number, case in enumerate(self.manifest.cases)}
        curves = {curve.case: curve.samples_per_s for curve in self.manifest.batch_curves}
        for planned in self.left:
            if planned.resolved is not None:
                yield "", self.store.append(record_of_resolved(planned))
        with contextlib.closing(self._finished(on_stage)) as told:
            for finished in told:
                case = finished.record.case
                record = _with_log(finished, self.store.log_path(numbers[case], case.label()))
                record = msgspec.structs.replace(record, batch_curve=curves.get(case.tuning_case()))
                yield "", kept(self.store, record, self.manifest)

    def _finished(self, on_stage: OnStage) -> Generator[Finished]:
        queue = CaseQueue(one.case for one in in_order(self.left, jobs=2) if one.resolved is None)
        events: list[tuple[str, Event]] = list(self._cluster.ready.items())
        with Interrupts() as interrupts:
            while queue.left:
                for name, event in events:
                    match event:
                        case HostReady():
                            queue.join(name, event)
                            self.manifest = _with_hosts(self.manifest, {name: event})
                            self.store.begin(self.manifest)
                        case Entered(case=case, lane=lane, stage=stage):
                            queue.enter(name, event)
                            on_stage(case, lane, stage)
                        case Finished(record=record):
                            queue.finish(name, record.case)
                            yield event
                        case Lost(why=why):
                            yield from (Finished(record=record) for record in queue.lose(name, why))
                if any(not isinstance(event, Entered) for _, event in events):
                    self._give(queue)
                if not events:
                    self._check_that_hosts_are_left(queue)
                events = self._cluster.wait()
                if interrupts.came:
                    raise KeyboardInterrupt

    def _give(self, queue: CaseQueue) -> None:
        for name in self._cluster.ready:
            if cases := queue.take(name):
                self._cluster.hosts.give(name, Given(cases=tuple(cases), share_s=self.manifest.settings.share_s))

    def _check_that_hosts_are_left(self, queue: CaseQueue) -> None:
        if self._cluster.hosts.expected():
            return  # it may run what the others do not
        rest = f"{queue.left} cases have no outcome: go on with --resume"
        if not self._cluster.ready:
            raise ClusterError(f"all hosts are gone, and {rest}")
        if (case := queue.stranded()) is not None:
            raise ClusterError(f"no host is left that may run {case.label()}; {rest}")


def new_cluster_run(
    request: RunRequest, store: RunStore, hosts: RayHosts, *, host_kind: str | None, say: Say
) -> ClusterSession:
    """Check the request, ask the hosts what they have, make the plan, and write the manifest.

    Raises:
        UsageError, CatalogError, ClusterError: the request can't be carried out.
    """
    if plan.AUTO in request.axes.batch_sizes:
        raise UsageError("--bs auto searches on this machine: use it with --executor local, or name the batch sizes")
    models = models_of(request)
    tuned = tuned_batches(request.batch_file)
    start = HostStart(
        models=readable(models),
        models_root=str(bundled("models")),
        backends=request.axes.backends,
        settings=request.settings,
        devices=request.axes.devices,
        device_indices=request.device_indices,
        worlds=request.axes.worlds,
        jobs=request.jobs,
    )
    cluster = Cluster(hosts, say)
    cluster.gather(start)
    cluster.choose(host_kind)
    first = next(iter(cluster.ready.values()))
    axes = plan.axes_on(request.axes, first.machine)
    planned = plan.make_plan(models, axes, _missing(cluster), tuned_on(first.machine, axes.devices, tuned))
    lanes = [lane for ready in cluster.ready.values() for lane in ready.lanes]
    share_s = budget.share_s(request.budget, request.settings, planned, lanes)
    settings = msgspec.structs.replace(first.settings, jobs=min(first.settings.jobs, len(planned)), share_s=share_s)
    manifest = make_manifest(request, settings, first.machine, models, planned)
    manifest = msgspec.structs.replace(manifest, undisturbed_loop_s=first.undisturbed_loop_s)
    manifest = _with_hosts(manifest, cluster.ready)
    store.begin(manifest)
    return ClusterSession(manifest, planned, (), cluster, store)


def resumed_cluster_run(
    run: Run, store: RunStore, hosts: RayHosts, *, retry_failed: bool, host_kind: str | None, say: Say
) -> ClusterSession:
    """The cases of a run that have no record yet, on hosts of the kind that it began on, whatever ran it before.

    Raises:
        StoreError, UsageError, CatalogError, ClusterError: the run can't go on here.
    """
    manifest = run.manifest
    rest = rest_of(run, retry_failed=retry_failed)
    cluster = Cluster(hosts, say)
    if not rest.cases:
        return ClusterSession(manifest, (), rest.done, cluster, store)
    start = HostStart(
        models=readable(rest.models),
        models_root=str(bundled("models")),
        backends=tuple(dict.fromkeys(case.backend for case in rest.cases)),
        settings=manifest.settings,
        devices=tuple(dict.fromkeys(case.device for case in rest.cases)),
        device_indices=manifest.device_indices,
        worlds=tuple(dict.fromkeys(case.world for case in rest.cases)),
        jobs=manifest.settings.jobs,
    )
    cluster.gather(start)
    began_on = [manifest.environment, *(host.environment for host in manifest.hosts)]
    cluster.choose(host_kind, [machine_kind(environment) for environment in began_on])
    return ClusterSession(manifest, rest.plan(_missing(cluster)), rest.done, cluster, store)


def _with_hosts(manifest: Manifest, ready: Mapping[str, HostReady]) -> Manifest:
    """The manifest with these hosts added, those with the same lanes that it has already excepted."""
    hosts = [
        Host(
            name=name,
            environment=one.machine.environment,
            lanes=tuple(lane.name for lane in one.lanes),
            undisturbed_loop_s=one.undisturbed_loop_s,
        )
        for name, one in ready.items()
    ]
    known = {(host.name, host.lanes) for host in manifest.hosts}
    new = [host for host in hosts if (host.name, host.lanes) not in known]
    return msgspec.structs.replace(manifest, hosts=(*manifest.hosts, *new))


def _missing(cluster: Cluster) -> dict[str, str]:
    """What is not installed on one of the hosts: a case that needs it runs on none of them."""
    lacking: dict[str, str] = {}
    for name, ready in cluster.ready.items():
        for what, reason in ready.missing.items():
            lacking.setdefault(what, f"{reason} (on {name})")
    return lacking


def _with_log(finished: Finished, path: Path) -> Record:
    """The record; of a failed case with the path of its log here."""
    record = finished.record
    if not isinstance(record.outcome, Failed) or not record.outcome.log:
        return record
    path.write_text(finished.log, encoding="utf-8")
    return msgspec.structs.replace(record, outcome=msgspec.structs.replace(record.outcome, log=str(path)))
