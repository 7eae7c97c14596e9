"""Room for one more case: what memory cases need, and whether the devices and the host have it.

From its start a worker counts with all the memory that its case will need. A worker that waits for its check
(`Stage.HOLD`) has given its model up, and counts with the memory of the check, so that its turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from torchzoo.backends import makes_updates
from torchzoo.case import Case, Mode
from torchzoo.record import Measured
from torchzoo.run.lanes import CPU, Lane
from torchzoo.run.plan import PlannedCase
from torchzoo.run.workers import Running, Workers
from torchzoo.settings import Stage

HOST_RESERVE_BYTES = 2 * 2**30  # host memory that no worker is planned to use
WORKER_BYTES = 1.5 * 2**30  # host memory of a worker without its model
DEVICE_SHARE = 0.9  # the part of a device's memory that workers are planned to use together
CHECK_FACTOR = 2.0  # so much more device memory does the check need than what is timed: it computes in fp64, too
CONTEXT_BYTES = 2**30  # device memory of a worker that has given its model up
CHECK_HOST_BYTES = 48  # host memory of a check in training, per parameter: what four runs leave behind
OPTIMIZER_HOST_BYTES = 32  # likewise, where what optimizers keep is compared, too: two moments
USUAL_DEVICE_BYTES = 6 * 2**30  # device memory of a case whose metadata declares none: it takes 8 GiB at most
MOST_ON_DEVICE = 16  # so many cases of unknown size share a device at most: a host's cores say nothing of its memory
TRAIN_BYTES, EVAL_BYTES = 16, 4  # least bytes per parameter: the weights; in training gradients and Adam's moments too


#: What cases must share so that one of them tells the memory of another: model, mode, kind of device, precision, batch.
Kind = tuple[str, str, str, str, int | None]


def kind_of(case: Case) -> Kind:
    """The kind of a case: all of one kind need about the same memory."""
    return case.model, case.mode, case.device_type, case.precision, case.batch_size


@dataclass
class Room:
    """Says whether the workers in `running`, which the scheduler adds and removes, leave memory for one more.

    `jobs` is how many of them may prepare at once.
    """

    workers: Workers
    running: dict[int, Running]
    jobs: int
    learned_bytes: dict[Kind, float] = field(default_factory=dict)  # on the device
    learned_host_bytes: dict[Kind, float] = field(default_factory=dict)
    host_bytes: int | None = None  # host memory that was available when the second worker was to start

    def on(self, lane: Lane) -> list[Running]:
        """The workers of a lane."""
        return [worker for worker in self.running.values() if worker.lane == lane]

    def on_device(self, planned: PlannedCase, lane: Lane) -> bool:
        """Whether the lane's device has memory for one more worker. One that is alone there may start in any case."""
        on_lane = self.on(lane)
        return not on_lane or _fits(sum(map(_needed_bytes, on_lane)) + self.device_bytes_of(planned, lane), lane)

    def on_host(self, planned: PlannedCase) -> bool:
        """Whether the host has memory for one more worker, now and once all workers have grown as expected."""
        if self.host_bytes is None:
            self.host_bytes = self.workers.host_available_bytes()
        has_room = self._host_holds(self.running.values(), self.host_bytes_of(planned))
        return has_room and self.workers.host_available_bytes() > HOST_RESERVE_BYTES + WORKER_BYTES

    def to_check(self, worker: Running) -> bool:
        """Whether there is memory for the check of a worker that waits for it. Others that wait hold no model."""
        others = [other for other in self.running.values() if other.stage is not Stage.HOLD]
        if others and not self._host_holds((worker, *others)):
            return False
        on_lane = [other for other in self.on(worker.lane) if other is not worker]
        beside = [other for other in on_lane if other.stage is not Stage.HOLD]
        held = sum(map(_needed_bytes, beside)) + CONTEXT_BYTES * (len(on_lane) - len(beside))
        return not beside or _fits(held + _needed_bytes(worker), worker.lane)

    def _host_holds(self, workers: Iterable[Running], more: float = 0.0) -> bool:
        return self.host_bytes is None or sum(map(_host_bytes, workers)) + more <= self.host_bytes - HOST_RESERVE_BYTES

    def device_bytes_of(self, planned: PlannedCase, lane: Lane) -> float:
        """Device memory that a case will need: as earlier cases took, else as metadata says, else the usual."""
        if lane.memory_bytes is None:
            return 0.0
        learned = self.learned_bytes.get(kind_of(planned.case))
        if learned is not None:
            return 1.2 * learned
        assert planned.spec is not None
        declared = planned.spec.device_memory_gib.get(planned.case.mode)
        if declared is not None:
            return declared * 2**30
        even_share = DEVICE_SHARE * lane.memory_bytes / min(self.jobs, MOST_ON_DEVICE)
        return max(_weights_bytes(planned) + CONTEXT_BYTES, min(USUAL_DEVICE_BYTES, even_share))

    def host_bytes_of(self, planned: PlannedCase) -> float:
        """Host memory that a case will need: as the processes of earlier cases took, else by its weights."""
        learned = self.learned_host_bytes.get(kind_of(planned.case))
        if learned is not None:
            return planned.case.world * 1.2 * learned
        return planned.case.world * (WORKER_BYTES + (_weights_bytes(planned) if planned.case.device == CPU else 0.0))

    def learn(self, worker: Running) -> None:
        """Keep what memory the case took, for the next of its kind."""
        if isinstance(worker.outcome, Measured):
            key = kind_of(worker.planned.case)
            memories = [variant.memory for variant in worker.outcome.variants.values()]
            taken = [m.device_process_bytes or m.device_peak_reserved_bytes for m in memories]
            _learn(self.learned_bytes, key, taken)
            _learn(self.learned_host_bytes, key, [m.host_uss_bytes for m in memories])


def _learn(learned: dict[Kind, float], key: Kind, taken: Iterable[int | None]) -> None:
    """Keep the most of these bytes. Where none is known, nothing is learned: not that the case needs no memory."""
    if known := [float(one) for one in taken if one]:
        learned[key] = max(*known, learned.get(key, 0.0))


def _fits(expected: float, lane: Lane) -> bool:
    return lane.memory_bytes is None or expected <= DEVICE_SHARE * lane.memory_bytes


def _needed_bytes(worker: Running) -> float:
    """Device memory that a worker needs at most in this stage, or, if it waits for its check, will need then."""
    return worker.device_bytes * (CHECK_FACTOR if worker.stage in (Stage.HOLD, Stage.CHECK) else 1.0)


def _host_bytes(worker: Running) -> float:
    """Host memory that a worker needs in this stage."""
    case, spec = worker.planned.case, worker.planned.spec
    assert spec is not None
    keeps_results = worker.stage in (Stage.HOLD, Stage.CHECK) and case.mode is Mode.TRAIN and case.device != CPU
    per_parameter = CHECK_HOST_BYTES + (OPTIMIZER_HOST_BYTES if makes_updates(case) else 0)
    return worker.host_bytes + (spec.parameters * per_parameter if keeps_results else 0.0)


def _weights_bytes(planned: PlannedCase) -> float:
    assert planned.spec is not None
    return planned.spec.parameters * (TRAIN_BYTES if planned.case.mode is Mode.TRAIN else EVAL_BYTES)
