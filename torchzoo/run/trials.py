"""A userbenchmark with fresh processes, from its request to its records.

One process runs at a time. If several may, each lane of them has cores of its own, and a case stays on its lane.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

import msgspec

from torchzoo.case import Case
from torchzoo.errors import UsageError, attempt
from torchzoo.machine.facts import MachineInfo
from torchzoo.machine.limits import physical_cores, usable_cores
from torchzoo.measure.trial_records import Ask, Took, TrialRecord, Turn
from torchzoo.record import Failed, Manifest, Skipped
from torchzoo.run import fresh, plan
from torchzoo.run.experiment import check_same_machine, make_manifest
from torchzoo.run.lanes import CPU, split_cores
from torchzoo.run.plan import PlannedCase
from torchzoo.run.pool import Pool
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import missing, models_of, read_models
from torchzoo.run.trial_store import Trials, TrialStore
from torchzoo.settings import Settings
from torchzoo.store import Run, StoreError
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec

#: The turns of a case, given its repeats: how many processes each of its variants has.
TurnsOf = Callable[[Case, ModelSpec, int], list[Turn]]
OnTurn = Callable[[Case, Turn], None]
TurnKey = tuple[Case, str, int]  # a case, a variant and its number


class TrialLane(msgspec.Struct, frozen=True, kw_only=True):
    """Where one process runs at a time."""

    device: str = ""  # such as cuda:1; empty: the case's own
    cores: tuple[int, ...] = ()  # empty: all


class TrialSession(msgspec.Struct, frozen=True, kw_only=True):
    """Trials that are ready to start: the cases that are left, and the lanes."""

    manifest: Manifest
    left: tuple[PlannedCase, ...]
    lanes: tuple[TrialLane, ...]
    done: dict[TurnKey, fresh.Outcome] = {}  # turns that have a record from before; they are not run again

    def run(self, store: TrialStore, turns_of: TurnsOf, on_turn: OnTurn) -> Iterator[TrialRecord]:
        """Run what is left. Each record is yielded after it is on disk.

        Whoever leaves early ends all processes.
        """
        work = _Work(self)
        runners = [_Runner(self.manifest.settings, store, turns_of, on_turn, lane, work) for lane in self.lanes]
        threads = [threading.Thread(target=runner.work, daemon=True) for runner in runners]
        for thread in threads:
            thread.start()
        try:
            for record in work.results(len(threads)):
                store.append(record)
                yield record
        finally:
            work.end()
            for thread in threads:
                thread.join()


def _repeats(manifest: Manifest) -> dict[Case, list[Case]]:
    found: dict[Case, list[Case]] = {}
    for case in manifest.cases:
        found.setdefault(case.first_repeat(), []).append(case)
    return found


def new_trials(request: RunRequest, store: TrialStore, turns_of: TurnsOf) -> TrialSession:
    """Check the request, ask the machine what it has, make the plan, and write the manifest.

    Raises:
        UsageError, CatalogError, ServerError: the request can't be carried out; `turns_of` may say so of a case.
    """
    models = models_of(request)
    with Pool([], request.settings.limits.build_s) as pool:
        machine = pool.machine_info()
    axes = plan.axes_on(request.axes, machine)
    if plan.AUTO in axes.batch_sizes:
        raise UsageError("--bs auto: name the batch sizes, for these processes don't look for one")
    planned = plan.make_plan(models, axes, missing(models, axes.backends))
    left = tuple(one for one in planned if one.case.repeat == 0)
    turns = sum(
        len(turns_of(one.case, one.spec, axes.repeats)) if one.resolved is None and one.spec is not None else 1
        for one in left
    )
    jobs = request.jobs or max(1, len(request.device_indices or ()))
    settings = msgspec.structs.replace(request.settings, jobs=jobs, compile_threads=None)
    lanes = make_lanes(jobs, axes.devices, request.device_indices, machine)
    manifest = msgspec.structs.replace(make_manifest(request, settings, machine, models, planned), turns=turns)
    store.begin(manifest)
    return TrialSession(manifest=manifest, left=left, lanes=lanes)


def make_lanes(
    jobs: int, devices: Sequence[str], indices: Sequence[int] | None, machine: MachineInfo
) -> tuple[TrialLane, ...]:
    """So many lanes. Each has as many whole physical cores as the others; the devices take turns.

    Raises:
        UsageError: there are fewer cores than lanes, or the machine does not have a device.
    """
    used: Sequence[str] = [""]
    if indices is not None:
        kind = machine.default_device
        if list(devices) != [kind] or kind == CPU:
            raise UsageError(f"--devices spreads cases on an accelerator, and these are on {', '.join(devices)}")
        if max(indices) >= machine.devices[kind]:
            raise UsageError(f"--devices: no device {max(indices)}; there is {machine.devices[kind]} of {kind} here")
        used = [f"{kind}:{index}" for index in indices]
    if jobs == 1:
        return (TrialLane(device=used[0]),)
    _, physical = split_cores(physical_cores(usable_cores()))
    share = len(physical) // jobs
    if share == 0:
        raise UsageError(f"--jobs {jobs}: each process needs a core of its own, and there are {len(physical)} here")
    return tuple(
        TrialLane(
            device=used[number % len(used)],
            cores=tuple(core for one in physical[number * share : (number + 1) * share] for core in one),
        )
        for number in range(jobs)
    )


def resumed_trials(trials: Trials, turns_of: TurnsOf, *, retry_failed: bool = False) -> TrialSession:
    """The cases of which a turn has no record. They go on with these turns, after what these need.

    Args:
        trials: as they were kept.
        turns_of: the turns of a case.
        retry_failed: turns that failed or were skipped run again, too. What was missing may be there now.

    Raises:
        StoreError: the machine or the software is another one, or a model is no longer there.
    """
    manifest = trials.manifest
    with Pool([], manifest.settings.limits.build_s) as pool:
        machine = pool.machine_info()
    check_same_machine(Run(path=trials.path, manifest=manifest, records=()), machine.environment)
    catalog = find_models(map(Path, manifest.models_dirs))
    cases = _repeats(manifest)
    if gone := sorted({case.model for case in cases if case.model not in catalog}):
        raise StoreError(f"{trials.path} needs models that are no longer there: {', '.join(gone)}")
    models = read_models(catalog, list(dict.fromkeys(case.model for case in cases)))
    by_name = {model.name if isinstance(model, ModelSpec) else model[0]: model for model in models}
    lacking = missing(models, [case.backend for case in cases])
    done = {
        (record.case, record.variant, record.number): record.outcome
        for record in trials.records
        if isinstance(record.outcome, Took) or not retry_failed
    }
    left = []
    for case, repeated in cases.items():
        planned = plan.plan_case(case, by_name[case.model], lacking)
        if planned.resolved is not None or planned.spec is None:
            expected = [(case, "", 0)]
        else:
            turns = turns_of(case, planned.spec, len(repeated))
            expected = [(case, turn.variant, turn.number) for turn in turns]
        if not all(key in done for key in expected):
            left.append(planned)
    devices = list(dict.fromkeys(case.device for case in cases))
    lanes = make_lanes(manifest.settings.jobs, devices, manifest.device_indices, machine)
    return TrialSession(manifest=manifest, left=tuple(left), lanes=lanes, done=done)


class _Work:
    """What the lanes share: the cases that are left, the processes that run, and the results."""

    def __init__(self, session: TrialSession) -> None:
        self._left = list(reversed(session.left))
        self.repeats = {case: len(repeated) for case, repeated in _repeats(session.manifest).items()}
        self.done = session.done
        self.alive = fresh.Alive()
        self.is_over = threading.Event()
        self.told: SimpleQueue[TrialRecord | Exception | None] = SimpleQueue()  # None: a lane has no more to do

    def next(self) -> PlannedCase | None:
        """A case that no lane has begun."""
        if self.is_over.is_set():
            return None
        with contextlib.suppress(IndexError):
            return self._left.pop()
        return None

    def results(self, lanes: int) -> Iterator[TrialRecord]:
        """The records as they come, until so many lanes are done. What a lane raises is raised here."""
        while lanes:
            match self.told.get():
                case None:
                    lanes -= 1
                case TrialRecord() as record:
                    yield record
                case Exception() as error:
                    raise error

    def end(self) -> None:
        """End all processes. No lane begins another case."""
        self.is_over.set()
        self.alive.end_all()


@dataclass(frozen=True)
class _Runner:
    """Runs the turns of cases on one lane."""

    settings: Settings
    store: TrialStore
    turns_of: TurnsOf
    on_turn: OnTurn
    lane: TrialLane
    shared: _Work

    def work(self) -> None:
        """Take cases until there is none. What goes wrong is raised where the results are taken."""
        self.shared.told.put(attempt(self._take))

    def _take(self) -> None:
        while (planned := self.shared.next()) is not None:
            for record in self.records(planned):
                if self.shared.is_over.is_set():
                    return  # the process was ended, and says nothing of its case
                self.shared.told.put(record)

    def records(self, planned: PlannedCase) -> Iterator[TrialRecord]:
        """The records of the turns of a case that have none yet.

        What did not work is not tried again: its later turns have its reason. What a turn needs has left files, which
        are gone when trials go on: it runs again, and its first record stays.
        """
        if planned.resolved is not None or planned.spec is None:
            assert planned.resolved is not None
            yield TrialRecord(case=planned.case, outcome=planned.resolved, finished_at=_now())
            return
        not_taken: dict[str, Skipped | Failed] = {}
        with tempfile.TemporaryDirectory(prefix="torchzoo-trials-", ignore_cleanup_errors=True) as folder:
            turns = self.turns_of(planned.case, planned.spec, self.shared.repeats[planned.case])
            needed = self._needed(planned.case, turns)
            for number, turn in enumerate(turns):
                before = self._before(planned.case, turn)
                if before is not None and not (isinstance(before, Took) and turn.variant in needed):
                    if not isinstance(before, Took):
                        not_taken[turn.variant] = before
                    continue
                outcome: fresh.Outcome | None = not_taken.get(turn.variant) or not_taken.get(turn.needs)
                if outcome is None and turn.skip:
                    outcome = Skipped(reason=turn.skip)
                if outcome is None:
                    caches = Path(folder) / "caches" / (turn.cache or f"turn-{number}")
                    outcome = self._outcome(planned, turn, folder, caches)
                    if not turn.cache:
                        shutil.rmtree(caches, ignore_errors=True)
                if not isinstance(outcome, Took):
                    not_taken[turn.variant] = outcome
                if before is None:
                    yield TrialRecord(
                        case=planned.case, variant=turn.variant, number=turn.number, outcome=outcome, finished_at=_now()
                    )

    def _before(self, case: Case, turn: Turn) -> fresh.Outcome | None:
        """What came of a turn before the trials were cut short."""
        return self.shared.done.get((case, turn.variant, turn.number))

    def _needed(self, case: Case, turns: Sequence[Turn]) -> set[str]:
        """The variants that turns without a record need, and those that these need."""
        needed: set[str] = set()
        for turn in reversed(turns):
            if turn.variant in needed or self._before(case, turn) is None:
                needed.add(turn.needs)
        return needed

    def _outcome(self, planned: PlannedCase, turn: Turn, folder: str, caches: Path) -> fresh.Outcome:
        assert planned.spec is not None
        self.on_turn(planned.case, turn)
        caches.mkdir(parents=True, exist_ok=True)
        limits = self.settings.limits
        ask = Ask(
            function=turn.function,
            case=planned.case,
            spec=planned.spec,
            settings=self.settings,
            options=turn.options,
            folder=folder,
            caches=str(caches),
            log=str(self.store.log_path(planned.case, turn)),
            device=self.lane.device,
            cores=self.lane.cores,
        )
        return fresh.outcome_of(ask, limits.build_s + limits.compile_s + limits.measure_s, self.shared.alive)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
