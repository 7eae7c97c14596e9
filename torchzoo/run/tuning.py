"""Search for batch sizes: cases are run at doubled batches until throughput stops rising."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from torchzoo import stats
from torchzoo.case import Case, Mode
from torchzoo.files import safe_name
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import EAGER_VARIANT, Measured, Outcome, Record
from torchzoo.run import batches, plan
from torchzoo.run.batches import best_batch
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.pool import Pool, PoolRun, PoolWorkers
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import lanes_for, missing, read_models, to_preload, with_jobs
from torchzoo.run.scheduler import Scheduler
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec

#: Called for each case that was tried, with its outcome and its samples per second (None where it did not run).
OnTried = Callable[[Case, Outcome, float | None], None]


def ignore_tried(case: Case, outcome: Outcome, samples_per_s: float | None) -> None:
    """An `OnTried` that does nothing."""


def tune_batches(
    request: RunRequest, path: Path, *, logs: Path, on_tried: OnTried = ignore_tried
) -> dict[str, batches.TunedBatch]:
    """Find the evaluation batches of models on one device and precision, in eager, and keep them in the file `path`.

    All models are doubled together. A model that does not run at its default batch is left out.

    Raises:
        BatchFileError: the file can't be read or written.
        UsageError, CatalogError, ServerError: as for a new run.
    """
    tuned = batches.read_tuned(path)
    catalog = find_models(map(Path, request.models_dirs))
    models = [
        model
        for model in read_models(catalog, catalog.select(request.patterns, request.suites))
        if isinstance(model, ModelSpec) and Mode.EVAL in model.batch_size
    ]
    with Pool(to_preload(models, request.axes.backends), request.settings.limits.build_s) as pool:
        machine = pool.machine_info()
        device = request.axes.devices[0] if request.axes.devices else machine.default_device
        axes = msgspec.structs.replace(request.axes, devices=(device,))
        plan.check_axes(axes, machine)
        planned = plan.make_plan(models, axes, missing(models, axes.backends))
        for one in planned:
            if one.resolved is not None:
                on_tried(one.case, one.resolved, None)
        runnable = tuple(one for one in planned if one.resolved is None)
        curves = {
            case.model: curve
            for case, curve in throughput_curves(runnable, request, pool, machine, logs, on_tried).items()
        }
    found = {
        name: batches.TunedBatch(
            batch_size=best_batch(curve),
            precision=axes.precisions[0],
            torch=machine.environment.torch,
            date=f"{datetime.now(UTC):%Y-%m-%d}",
            samples_per_s={size: float(f"{rate:.4g}") for size, rate in curve.items()},
        )
        for name, curve in curves.items()
    }
    tuned.setdefault(machine.device_class(device), {}).update(found)
    batches.write_tuned(path, tuned)
    return found


def throughput_curves(
    cases: Plan, request: RunRequest, pool: Pool, machine: MachineInfo, logs: Path, on_tried: OnTried
) -> dict[Case, dict[int, float]]:
    """Samples per second of each case by batch size, doubled from its own. A case that does not run is left out."""
    if not cases:
        return {}
    devices = list(dict.fromkeys(one.case.device for one in cases))
    settings = with_jobs(request.settings, request.jobs, devices, cases=len(cases))
    lanes = lanes_for(devices, request.device_indices, settings, machine)
    specs = {one.case: one.spec for one in cases}

    def throughputs(batch_sizes: dict[Case, int]) -> dict[Case, float | None]:
        tried = {at_batch(case, size): case for case, size in batch_sizes.items()}
        scheduler = Scheduler(
            workers,
            lanes,
            settings,
            log_path=lambda planned: logs / f"tune-{safe_name(planned.case.label())}.log",
        )
        found: dict[Case, float | None] = {}
        for record in scheduler.run(tuple(PlannedCase(case=case, spec=specs[first]) for case, first in tried.items())):
            found[tried[record.case]] = _samples_per_s(record)
            on_tried(record.case, record.outcome, found[tried[record.case]])
        return found

    with PoolWorkers({"": PoolRun(pool=pool, settings=settings)}) as workers:
        curves = batches.tune({one.case: one.case.batch_size or 1 for one in cases}, throughputs)
    return {case: curve for case, curve in curves.items() if curve}


def quick(request: RunRequest) -> RunRequest:
    """The request with no more timing than the choice of a batch needs, and without passes."""
    time_limit_s = min(request.settings.time_limit_s, batches.TIME_LIMIT_S)
    settings = msgspec.structs.replace(request.settings, time_limit_s=time_limit_s, passes=())
    return msgspec.structs.replace(request, settings=settings)


def at_batch(case: Case, batch_size: int) -> Case:
    """The same case at another batch size."""
    return msgspec.structs.replace(case, batch_size=batch_size)


def _samples_per_s(record: Record) -> float | None:
    if not isinstance(record.outcome, Measured):
        return None
    runs = record.outcome.variants[EAGER_VARIANT].back_to_back
    return stats.steps_per_s(runs).value * record.outcome.samples_per_step
