"""Search for batch sizes: cases are run at doubled batches until throughput stops rising."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from torchzoo import stats
from torchzoo.case import Case
from torchzoo.files import safe_name
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import EAGER_VARIANT, Measured, Outcome, Record
from torchzoo.run import batches
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.pool import Pool, PoolRun, PoolWorkers
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import lanes_for, with_jobs
from torchzoo.run.scheduler import Scheduler

#: Called for each case that was tried, with its outcome and its samples per second (None where it did not run).
OnTried = Callable[[Case, Outcome, float | None], None]


def ignore_tried(case: Case, outcome: Outcome, samples_per_s: float | None) -> None:
    """An `OnTried` that does nothing."""


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
