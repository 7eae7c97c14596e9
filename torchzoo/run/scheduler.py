"""Run a plan: prepare several cases together, measure one at a time per lane, kill what hangs, say what became of each.

A worker builds, warms up and compiles beside others. Then it waits for its lane's measuring window; while that is open,
every other worker on the same cores is stopped (SIGSTOP) and nothing is started, so that the case is measured alone.
"""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from torchzoo.case import EAGER, Case, Mode, Stage, StageLimits
from torchzoo.record import Failed, FailureKind, Measured, Outcome, Record
from torchzoo.run.lanes import CPU, Lane
from torchzoo.run.plan import Plan, PlannedCase

HOST_RESERVE_BYTES = 2 * 2**30  # of the host's memory, promised to no worker
WORKER_BYTES = 1.5 * 2**30  # of the host's memory, for a worker without its model
DEVICE_SHARE = 0.9  # of a device's memory, to be promised to workers
TRAIN_BYTES, EVAL_BYTES = 16, 4  # per parameter at least: weights; in training gradients and Adam's two moments too
ANSWER_TO_EXIT_S = 10.0


class Exited(msgspec.Struct, frozen=True):
    """A worker's process is gone; `code` as `multiprocessing` gives it: negative for a signal."""

    code: int


Message = Stage | Outcome | Exited


class Workers(Protocol):
    """Processes by ticket; `torchzoo.processes` has the real ones, tests fake them."""

    def start(self, ticket: int, entry: PlannedCase, lane: Lane, log: Path) -> None: ...

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        """Messages that have come, by ticket; none when `timeout_s` is over. `Exited` is a ticket's last."""
        ...

    def open_window(self, ticket: int) -> None:
        """Tell a worker that waits to measure now."""
        ...

    def pause(self, ticket: int) -> None:
        """Stop a worker's whole process tree."""
        ...

    def resume(self, ticket: int) -> None: ...

    def kill(self, ticket: int) -> None:
        """End a worker's whole process tree, at once, and forget it."""
        ...

    def host_available_bytes(self) -> int: ...


@dataclass
class _Running:
    """A worker's state, as the scheduler knows it."""

    entry: PlannedCase
    lane: Lane
    log: Path
    started_at: str
    deadline_s: float
    device_bytes: float  # what it is expected to need of the device's memory
    host_bytes: float  # and of the host's
    stage: Stage = Stage.START
    outcome: Outcome | None = None
    paused_at_s: float | None = None  # since when it has been stopped
    paused_s: float = 0.0  # how long it was, before
    had_siblings: bool = False
    is_retry: bool = False


class Scheduler:
    """Runs the entries of one plan over lanes.

    Args:
        workers: what starts and stops processes.
        lanes: where cases run; each entry to run must have one.
        jobs: how many workers may be alive at once, over all lanes.
        limits: of each stage.
        log_path: where the worker of a case writes what it prints.
        on_stage: called when a worker reports a stage.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        workers: Workers,
        lanes: Sequence[Lane],
        *,
        jobs: int,
        limits: StageLimits,
        log_path: Callable[[Case], Path],
        on_stage: Callable[[Case, Lane, Stage], None] = lambda *_: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workers = workers
        self.lanes = lanes
        self.jobs = jobs
        self.limits = limits
        self.log_path = log_path
        self.on_stage = on_stage
        self.now_s = now_s
        self.running: dict[int, _Running] = {}
        self.windows: dict[Lane, int] = {}  # ticket of the worker that is measuring
        self.waiting: deque[int] = deque()  # tickets, in the order they asked for a window
        self.learned_bytes: dict[tuple[str, str], float] = {}  # device memory by model and mode
        self.learned_host_bytes: dict[tuple[str, str], float] = {}
        self.host_bytes: int | None = None  # available when the second worker was to be started
        self.tickets = 0

    def run(self, plan: Plan) -> Iterator[Record]:
        """Yield each case's record when it is settled; never raise for what a case does.

        On leaving early (an interrupt), all workers are killed.
        """
        queue: deque[tuple[PlannedCase, bool]] = deque()
        for entry in self._in_order(plan):
            if entry.resolved is None:
                queue.append((entry, False))
            else:
                now = timestamp()
                yield Record(case=entry.case, outcome=entry.resolved, started_at=now, finished_at=now)
        try:
            while queue or self.running:
                self._start(queue)
                self._open_windows()
                for ticket, message in self.workers.wait(self._time_left_s()):
                    if ticket in self.running:
                        self._note(ticket, message)
                self._kill_late()
                yield from self._settle(queue)
        finally:
            for ticket in list(self.running):
                self.workers.kill(ticket)
            self.running.clear()

    def _in_order(self, plan: Plan) -> list[PlannedCase]:
        """All cases once, then all again: what drifts in the course of a run is to be between the repeats of a case.

        Within that the plan's order one at a time; else what takes long first, compiling before eager, training before
        evaluation: a long one started last would run alone in the end.
        """

        def key(entry: PlannedCase) -> tuple[int, ...]:
            case = entry.case
            is_short = (case.backend == EAGER, case.mode is not Mode.TRAIN)
            return (case.repeat,) if self.jobs == 1 else (case.repeat, *is_short)

        return sorted(plan, key=key)

    # --- starting ---

    def _start(self, queue: deque[tuple[PlannedCase, bool]]) -> None:
        """Start what may start now, retries first. What waits for its lane holds up no other lane, but a retry does."""
        pending = sorted(queue, key=lambda item: not item[1])
        queue.clear()
        is_held_up = False
        for entry, is_retry in pending:
            may_start = len(self.running) < self.jobs and not is_held_up
            lane = self._lane_for(entry, alone=is_retry) if may_start else None
            if lane is None:
                queue.append((entry, is_retry))
                is_held_up = is_held_up or is_retry
            else:
                self._start_one(entry, lane, is_retry=is_retry)

    def _lane_for(self, entry: PlannedCase, *, alone: bool) -> Lane | None:
        """The least busy lane with room for `entry`, or None for now. One that runs `alone` gets a lane to itself."""
        candidates = [lane for lane in self.lanes if lane.runs(entry.case.device)]
        assert candidates, f"no lane for {entry.case.device}"
        if self.running and not self._host_has_room(entry):
            return None
        for lane in sorted(candidates, key=lambda lane: len(self._on(lane))):
            on_lane = self._on(lane)
            if any(lane.shares_cores(open_lane) for open_lane in self.windows):
                continue
            if on_lane and (alone or any(worker.is_retry for worker in on_lane)):
                continue
            if lane.jobs is not None and len(on_lane) >= lane.jobs:
                continue
            if on_lane and lane.memory_bytes is not None:
                promised = sum(worker.device_bytes for worker in on_lane) + self._expected_bytes(entry, lane)
                if promised > DEVICE_SHARE * lane.memory_bytes:
                    continue
            return lane
        return None

    def _host_has_room(self, entry: PlannedCase) -> bool:
        """Whether the host has memory for one more, now and when all that run have grown as expected."""
        if self.host_bytes is None:
            self.host_bytes = self.workers.host_available_bytes()
        promised = sum(worker.host_bytes for worker in self.running.values()) + self._expected_host_bytes(entry)
        is_promised = promised > self.host_bytes - HOST_RESERVE_BYTES
        return not is_promised and self.workers.host_available_bytes() > HOST_RESERVE_BYTES + WORKER_BYTES

    def _on(self, lane: Lane) -> list[_Running]:
        return [worker for worker in self.running.values() if worker.lane == lane]

    def _expected_bytes(self, entry: PlannedCase, lane: Lane) -> float:
        """What earlier cases of the model and mode took; else what metadata declares; else an even share at least."""
        if lane.memory_bytes is None:
            return 0.0
        learned = self.learned_bytes.get((entry.case.model, entry.case.mode))
        if learned is not None:
            return 1.2 * learned
        assert entry.spec is not None
        declared = entry.spec.device_memory_gib.get(entry.case.mode)
        if declared is not None:
            return declared * 2**30
        return max(_weights_bytes(entry), DEVICE_SHARE * lane.memory_bytes / self.jobs)

    def _expected_host_bytes(self, entry: PlannedCase) -> float:
        learned = self.learned_host_bytes.get((entry.case.model, entry.case.mode))
        if learned is not None:
            return 1.2 * learned
        return WORKER_BYTES + (_weights_bytes(entry) if entry.case.device == CPU else 0.0)

    def _start_one(self, entry: PlannedCase, lane: Lane, *, is_retry: bool) -> None:
        self.tickets += 1
        worker = _Running(
            entry=entry,
            lane=lane,
            log=self.log_path(entry.case),
            started_at=timestamp(),
            deadline_s=self.now_s() + self.limits.of(Stage.START),
            device_bytes=self._expected_bytes(entry, lane),
            host_bytes=self._expected_host_bytes(entry),
            is_retry=is_retry,
        )
        siblings = self._on(lane)
        worker.had_siblings = bool(siblings)
        for sibling in siblings:
            sibling.had_siblings = True
        self.running[self.tickets] = worker
        self.workers.start(self.tickets, entry, lane, worker.log)

    # --- windows ---

    def _open_windows(self) -> None:
        """Let the first that waits measure, on each lane whose cores no open window uses; stop the others there."""
        for ticket in list(self.waiting):
            lane = self.running[ticket].lane
            if any(lane.shares_cores(open_lane) for open_lane in self.windows):
                continue
            self.waiting.remove(ticket)
            self.windows[lane] = ticket
            for other, worker in self.running.items():
                if other != ticket and lane.shares_cores(worker.lane) and worker.paused_at_s is None:
                    self.workers.pause(other)
                    worker.paused_at_s = self.now_s()
            self.workers.open_window(ticket)

    def _close_window(self, ticket: int) -> None:
        """The worker is done measuring, or gone: let go on whom no other window keeps stopped."""
        self.windows = {lane: holder for lane, holder in self.windows.items() if holder != ticket}
        for other, worker in self.running.items():
            if worker.paused_at_s is None or any(lane.shares_cores(worker.lane) for lane in self.windows):
                continue
            stopped_s = self.now_s() - worker.paused_at_s
            worker.deadline_s += stopped_s
            worker.paused_s += stopped_s
            worker.paused_at_s = None
            self.workers.resume(other)

    # --- what workers say ---

    def _note(self, ticket: int, message: Message) -> None:
        worker = self.running[ticket]
        match message:
            case Stage():
                worker.stage = message
                worker.deadline_s = self.now_s() + self.limits.of(message)
                if message is Stage.WAIT:
                    self.waiting.append(ticket)
                if message is Stage.EXAMINE:
                    self._close_window(ticket)
                self.on_stage(worker.entry.case, worker.lane, message)
            case Exited():
                worker.outcome = worker.outcome or died(message.code, worker.stage, worker.log)
                worker.deadline_s = -math.inf
            case _:
                worker.outcome = message
                worker.deadline_s = self.now_s() + ANSWER_TO_EXIT_S
                self._close_window(ticket)

    def _time_left_s(self) -> float:
        deadlines = [worker.deadline_s for worker in self.running.values() if worker.paused_at_s is None]
        return min(60.0, max(0.0, min(deadlines, default=0.0) - self.now_s()))

    def _kill_late(self) -> None:
        for worker in self.running.values():
            if worker.paused_at_s is None and worker.outcome is None and self.now_s() >= worker.deadline_s:
                limit_s = self.limits.of(worker.stage)
                text = f"{worker.stage} took longer than {limit_s:g} s and was killed"
                worker.outcome = Failed(kind=FailureKind.TIMEOUT, stage=worker.stage, message=text, log=str(worker.log))
                worker.deadline_s = -math.inf

    def _settle(self, queue: deque[tuple[PlannedCase, bool]]) -> Iterator[Record]:
        """Records of those that have an outcome and have ended, or had their time to end."""
        for ticket, worker in list(self.running.items()):
            if worker.outcome is None or self.now_s() < worker.deadline_s:
                continue
            self.workers.kill(ticket)
            del self.running[ticket]
            if ticket in self.waiting:
                self.waiting.remove(ticket)
            self._close_window(ticket)
            if self._should_retry(worker):
                queue.appendleft((worker.entry, True))
                continue
            self._learn(worker)
            yield Record(
                case=worker.entry.case,
                outcome=worker.outcome,
                started_at=worker.started_at,
                finished_at=timestamp(),
                lane=worker.lane.device,
                paused_s=worker.paused_s,
            )

    def _should_retry(self, worker: _Running) -> bool:
        """Out of device memory beside siblings may be their doing: once more, alone. Never with a smaller batch."""
        is_oom = isinstance(worker.outcome, Failed) and worker.outcome.kind is FailureKind.OOM_DEVICE
        return is_oom and worker.had_siblings and not worker.is_retry

    def _learn(self, worker: _Running) -> None:
        if isinstance(worker.outcome, Measured):
            key = (worker.entry.case.model, worker.entry.case.mode)
            memories = [variant.memory for variant in worker.outcome.variants.values()]
            taken = max(m.device_process_bytes or m.device_peak_reserved_bytes or 0 for m in memories)
            self.learned_bytes[key] = max(float(taken), self.learned_bytes.get(key, 0.0))
            resident = max(m.host_uss_bytes or 0 for m in memories)
            self.learned_host_bytes[key] = max(float(resident), self.learned_host_bytes.get(key, 0.0))


def _weights_bytes(entry: PlannedCase) -> float:
    assert entry.spec is not None
    return entry.spec.parameters * (TRAIN_BYTES if entry.case.mode is Mode.TRAIN else EVAL_BYTES)


def died(code: int, stage: Stage, log: Path) -> Failed:
    """A worker that ended without an outcome."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        hint = "; the kernel does so when the host's memory is full" if -code == signal.SIGKILL else ""
        message = f"the worker was ended by {name} in {stage}{hint}"
    else:
        message = f"the worker exited with status {code} in {stage} without a result"
    return Failed(kind=FailureKind.CRASHED, stage=stage, message=message, traceback=_tail(log), log=str(log))


def _tail(log: Path, characters: int = 4000) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")[-characters:]
    except OSError:
        return ""


def timestamp() -> str:
    """Now, in UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
