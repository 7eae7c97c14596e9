"""A userbenchmark with fresh processes, from its request to its records. One process runs at a time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from torchzoo.case import Case
from torchzoo.errors import UsageError
from torchzoo.measure.fresh import Ask
from torchzoo.record import Failed, Manifest, Skipped
from torchzoo.run import fresh, plan
from torchzoo.run.fork_server import ForkServer
from torchzoo.run.plan import PlannedCase
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import missing, read_models, with_jobs
from torchzoo.run.session import check_same_machine, make_manifest
from torchzoo.settings import Settings
from torchzoo.store import Run, StoreError
from torchzoo.trials import Took, TrialRecord, Trials, TrialStore, Turn
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec

#: The turns of a case, given its repeats: how many processes each of its variants has.
TurnsOf = Callable[[Case, ModelSpec, int], list[Turn]]
OnTurn = Callable[[Case, Turn], None]


class TrialSession(msgspec.Struct, frozen=True, kw_only=True):
    """Trials that are ready to start: the cases that are left."""

    manifest: Manifest
    left: tuple[PlannedCase, ...]

    def run(self, store: TrialStore, turns_of: TurnsOf, on_turn: OnTurn) -> Iterator[TrialRecord]:
        """Run what is left. Each record is yielded after it is on disk."""
        repeats = {case: max(one.repeat for one in repeated) + 1 for case, repeated in _repeats(self.manifest).items()}
        for planned in self.left:
            for record in _records(planned, repeats[planned.case], self.manifest.settings, store, turns_of, on_turn):
                store.append(record)
                yield record


def _repeats(manifest: Manifest) -> dict[Case, list[Case]]:
    found: dict[Case, list[Case]] = {}
    for case in manifest.cases:
        found.setdefault(msgspec.structs.replace(case, repeat=0), []).append(case)
    return found


def new_trials(request: RunRequest, store: TrialStore, turns_of: TurnsOf) -> TrialSession:
    """Check the request, ask the machine what it has, make the plan, and write the manifest.

    Raises:
        UsageError, CatalogError, TorchUnusable: the request can't be carried out; `turns_of` may say so of a case.
    """
    catalog = find_models(map(Path, request.models_dirs))
    models = read_models(catalog, catalog.select(request.patterns, request.suites))
    machine = ForkServer([], request.settings.limits.build_s).machine_info()
    axes = request.axes
    if not axes.devices:
        axes = msgspec.structs.replace(axes, devices=(machine.default_device,))
    plan.check_axes(axes, machine)
    if plan.AUTO in axes.batch_sizes:
        raise UsageError("--bs auto: name the batch sizes, for these processes don't look for one")
    planned = plan.make_plan(models, axes, missing(models, axes.backends))
    settings = with_jobs(request.settings, 1, axes.devices, cases=len(planned))
    left = tuple(one for one in planned if one.case.repeat == 0)
    for one in left:
        if one.resolved is None and one.spec is not None:
            turns_of(one.case, one.spec, axes.repeats)
    manifest = make_manifest(request, settings, machine, models, planned)
    store.begin(manifest)
    return TrialSession(manifest=manifest, left=left)


def resumed_trials(trials: Trials, turns_of: TurnsOf) -> TrialSession:
    """The cases of which a turn has no record. They begin anew: their processes stand beside each other in time.

    Raises:
        StoreError: the machine or the software is another one, or a model is no longer there.
    """
    manifest = trials.manifest
    machine = ForkServer([], manifest.settings.limits.build_s).machine_info()
    check_same_machine(Run(path=trials.path, manifest=manifest, records=()), machine.environment)
    catalog = find_models(map(Path, manifest.models_dirs))
    cases = _repeats(manifest)
    if gone := sorted({case.model for case in cases if case.model not in catalog}):
        raise StoreError(f"{trials.path} needs models that are no longer there: {', '.join(gone)}")
    models = read_models(catalog, list(dict.fromkeys(case.model for case in cases)))
    by_name = {model.name if isinstance(model, ModelSpec) else model[0]: model for model in models}
    lacking = missing(models, [case.backend for case in cases])
    done = {(record.case, record.variant, record.number): record.outcome for record in trials.records}
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
    return TrialSession(manifest=manifest, left=tuple(left))


def _records(
    planned: PlannedCase, repeats: int, settings: Settings, store: TrialStore, turns_of: TurnsOf, on_turn: OnTurn
) -> Iterator[TrialRecord]:
    """The records of all turns of a case. What did not work is not tried again: its later turns have its reason."""
    if planned.resolved is not None or planned.spec is None:
        assert planned.resolved is not None
        yield TrialRecord(case=planned.case, outcome=planned.resolved, finished_at=_now())
        return
    limits = settings.limits
    limit_s = limits.build_s + limits.compile_s + limits.measure_s
    not_taken: dict[str, Skipped | Failed] = {}
    with tempfile.TemporaryDirectory(prefix="torchzoo-trials-", ignore_cleanup_errors=True) as folder:
        for number, turn in enumerate(turns_of(planned.case, planned.spec, repeats)):
            outcome: fresh.Outcome | None = not_taken.get(turn.variant) or not_taken.get(turn.needs)
            if outcome is None and turn.skip:
                outcome = Skipped(reason=turn.skip)
            if outcome is None:
                on_turn(planned.case, turn)
                ask = Ask(
                    function=turn.function,
                    case=planned.case,
                    spec=planned.spec,
                    settings=settings,
                    options=turn.options,
                    folder=folder,
                    caches=str(Path(folder) / "caches" / (turn.cache or f"turn-{number}")),
                    log=str(store.log_path(planned.case, turn)),
                )
                Path(ask.caches).mkdir(parents=True, exist_ok=True)
                outcome = fresh.outcome_of(ask, limit_s)
                if not turn.cache:
                    shutil.rmtree(ask.caches, ignore_errors=True)
            if not isinstance(outcome, Took):
                not_taken[turn.variant] = outcome
            yield TrialRecord(
                case=planned.case, variant=turn.variant, number=turn.number, outcome=outcome, finished_at=_now()
            )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
