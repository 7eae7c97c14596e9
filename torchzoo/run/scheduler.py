"""Run a plan: prepare several cases together, measure one at a time per lane, and kill what hangs.

A worker builds, warms up and compiles beside others. Then it waits for its measuring window (`torchzoo.run.windows`).
While windows are open, no worker is started.

The turns of a case run one after the other, each in a fresh process, on the same lane. They have no windows. So do the
processes that come before the worker of a case.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from torchzoo.case import EAGER, Case, Mode
from torchzoo.record import CANDIDATE_VARIANT, Alone, Failed, FailureKind, Measured, Outcome, Record, Skipped, Took
from torchzoo.run.budget import LaneBudgets
from torchzoo.run.failures import died, garbled, late
from torchzoo.run.lanes import Lane
from torchzoo.run.lines import Garbled
from torchzoo.run.plan import Before, Plan, PlannedCase, processes_of, why_never_alone
from torchzoo.run.room import Room
from torchzoo.run.windows import ANSWER_TO_OPENING_S, Windows
from torchzoo.run.workers import Exited, Message, Running, Timed, Workers
from torchzoo.settings import Pass, Settings, Stage

ANSWER_TO_EXIT_S = 10.0
#: A worker whose time is over has so long to write into its log what it does.
STACKS_S = 1.0
STOPPED_S = 5.0  # a turn of the loop that takes so much longer than planned: this process was stopped meanwhile
READY_FACTOR = 2  # with those that wait for a window, so many times `jobs` workers may be alive
#: Cases with several ranks that prepare at once on the same devices. Each compiles in few threads, and has its weights
#: on the devices.
MULTI_RANK_AT_ONCE = 4


class Scheduler:
    """Runs the cases of one plan on lanes.

    Args:
        workers: starts and stops processes.
        lanes: where cases run; each case that runs must have one.
        settings: how many workers may prepare at once, on all lanes together (`jobs`), the time limit of each stage
            (`limits`), and what asks for a process before the worker of a case (`cache`, `passes`).
        log_path: the file for what the worker of a case prints.
        on_start: called when a worker starts.
        on_stage: called when a worker begins a stage.
        more: asked in each turn for cases that have come since; None means that no more will come.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        workers: Workers,
        lanes: Sequence[Lane],
        settings: Settings,
        *,
        log_path: Callable[[PlannedCase], Path],
        on_start: Callable[[PlannedCase], None] = lambda _: None,
        on_stage: Callable[[Case, Lane, Stage], None] = lambda *_: None,
        more: Callable[[], Plan | None] = lambda: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workers = workers
        self.lanes = lanes
        self.settings = settings
        self.log_path = log_path
        self.on_start = on_start
        self.on_stage = on_stage
        self.more = more
        self.now_s = now_s
        self.running: dict[int, Running] = {}
        self.room = Room(workers, self.running, settings.jobs)
        self.budgets = LaneBudgets(settings)
        self.windows = Windows(workers, self.running, now_s, self.budgets)
        self.tickets = 0
        self.lanes_of_turns: dict[Case, Lane] = {}
        self.alone: dict[tuple[Case, str], Alone | Skipped | Failed] = {}  # by case and environment
        self.did_not_work: dict[tuple[Case, str], Skipped | Failed] = {}  # by the role of a turn

    def run(self, plan: Plan) -> Iterator[Record]:
        """Yield the record of each case when its outcome is known. What a case does never raises here.

        At an interrupt the cases come that have been timed and were not done yet. Whatever ends it, all workers are
        killed.

        Raises:
            KeyboardInterrupt: the workers' `wait` did.
        """
        with contextlib.closing(self.run_planned(plan)) as finished:
            for _, record in finished:
                yield record

    def run_planned(self, plan: Plan) -> Generator[tuple[PlannedCase, Record]]:
        """The same, with what was planned."""
        queue = deque(self._processes(in_order(plan, jobs=self.settings.jobs)))
        yield from self._resolve(queue)
        seen_s = self.now_s()
        try:
            while (came := self.more()) is not None or queue or self.running:
                queue.extend(self._processes(came or ()))
                self.windows.update()
                if not self.windows.in_epoch:
                    self._let_check()
                    self._start(queue)
                wait_s = self._time_left_s() if self.running else STOPPED_S
                for ticket, message in self.workers.wait(wait_s):
                    self._hear(ticket, message)
                self.windows.update()  # who has been measured must not disturb the other lanes
                before_s, seen_s = seen_s, self.now_s()
                self._allow_for_a_stop(seen_s - before_s - wait_s)
                self._kill_late()
                yield from self._finish(queue)
                yield from self._resolve(queue)
        except KeyboardInterrupt:
            yield from self._timed_until_now()
            raise
        finally:
            for ticket in list(self.running):
                self.workers.kill(ticket)
            self.running.clear()

    def _processes(self, plan: Iterable[PlannedCase]) -> Iterator[tuple[PlannedCase, bool]]:
        return ((process, False) for planned in plan for process in processes_of(planned, self.settings))

    # --- what needs no process ---

    def _resolve(self, queue: deque[tuple[PlannedCase, bool]]) -> Iterator[tuple[PlannedCase, Record]]:
        """The records of what has its outcome already, which leaves the queue: a turn after those before it."""
        pending, in_turn = list(queue), self._cases_in_turn()
        queue.clear()
        for planned, is_retry in pending:
            if planned.before is Before.PRIME and isinstance(self.alone.get(_place_of(planned)), Alone):
                continue  # that process has filled the caches
            resolved = None if planned.case in in_turn else planned.resolved or self._why_not(planned)
            if resolved is None:
                queue.append((planned, is_retry))
                if planned.holds_others:
                    in_turn.add(planned.case)
            else:
                self._note_outcome(planned, resolved)
                yield planned, record_of_resolved(msgspec.structs.replace(planned, resolved=resolved))

    def _cases_in_turn(self) -> set[Case]:
        """The cases of which a process runs that others wait for."""
        return {worker.planned.case for worker in self.running.values() if worker.planned.holds_others}

    def _why_not(self, planned: PlannedCase) -> Skipped | Failed | None:
        """The outcome of an earlier turn of the same role, or of a needed one, that did not work."""
        if planned.turn is None:
            return None
        of_role, of_needed = ((planned.case, role) for role in (planned.turn.role, planned.turn.needs))
        return self.did_not_work.get(of_role) or self.did_not_work.get(of_needed)

    def _note_outcome(self, planned: PlannedCase, outcome: Outcome) -> None:
        if planned.before is Before.ALONE:
            found = msgspec.convert(outcome.result, Alone) if isinstance(outcome, Took) else outcome
            assert isinstance(found, Alone | Skipped | Failed)
            self.alone[_place_of(planned)] = found
        if planned.turn is not None and isinstance(outcome, Skipped | Failed):
            self.did_not_work[planned.case, planned.turn.role] = outcome

    # --- starting ---

    def _start(self, queue: deque[tuple[PlannedCase, bool]]) -> None:
        """Start the cases that may start now. Retries come last: each needs a lane for itself, which is empty then."""
        has_free_job = self._has_free_job()
        if not has_free_job:
            return
        pending = sorted(queue, key=lambda item: item[1])
        queue.clear()
        in_turn = self._cases_in_turn()
        for planned, is_retry in pending:
            may_start = has_free_job and planned.case not in in_turn and self._is_of_this_repeat(planned)
            if planned.holds_others:
                in_turn.add(planned.case)
            lane = self._lane_for(planned, alone=is_retry) if may_start else None
            if lane is None:
                queue.append((planned, is_retry))
            else:
                self._start_one(planned, lane, is_retry=is_retry)
                has_free_job = self._has_free_job()

    def _is_of_this_repeat(self, planned: PlannedCase) -> bool:
        """Whether the cases that run are of the same repeat: the processes of each repeat are new from the ground."""
        return all(worker.planned.case.repeat == planned.case.repeat for worker in self.running.values())

    def _has_free_job(self) -> bool:
        """Whether one more worker may prepare. Those that wait to be measured take no job, but there is a limit."""
        held = sum(worker.stage is Stage.HOLD for worker in self.running.values())
        preparing = len(self.running) - self.windows.ready_count - held
        most_alive = self.settings.jobs if self.settings.jobs == 1 else READY_FACTOR * self.settings.jobs
        return preparing < self.settings.jobs and len(self.running) < most_alive

    def _lane_for(self, planned: PlannedCase, *, alone: bool) -> Lane | None:
        """The least busy lane with room for the case, or None for now. With `alone`, the lane must be empty.

        A case of several environments or processes stays on one lane: two devices of one kind differ by some percent.
        """
        candidates = [lane for lane in self.lanes if lane.runs(planned.case)]
        if planned.case in self.lanes_of_turns:
            candidates = [self.lanes_of_turns[planned.case]]
        assert candidates, f"no lane for {planned.case.label()}"
        on_lanes = {lane: self.room.on(lane) for lane in candidates}
        for lane in sorted(candidates, key=lambda lane: len(on_lanes[lane])):
            on_lane = on_lanes[lane]
            if on_lane and (alone or any(worker.is_retry for worker in on_lane)):
                continue
            if lane.jobs is not None and len(on_lane) >= lane.jobs:
                continue
            if not self.room.on_device(planned, lane) or self._ranks_are_in_the_way(lane):
                continue
            return lane if not self.running or self.room.on_host(planned) else None
        return None

    def _let_check(self) -> None:
        """Let the checks begin that there is memory for. One that needs much waits until others have ended.

        A worker that waits has given its model up. New cases count what it will need, so that its turn comes.
        """
        for ticket, worker in self.running.items():
            if worker.stage is Stage.HOLD and worker.outcome is None and self.room.to_check(worker):
                worker.stage = Stage.CHECK
                worker.deadline_s = self.now_s() + self.settings.limits.of(Stage.CHECK)
                self.workers.proceed(ticket, Stage.CHECK)

    def _ranks_are_in_the_way(self, lane: Lane) -> bool:
        """Whether a case with several ranks keeps this one off the lane, or the other way round.

        Such cases of one lane prepare together, until the first of them is ready: then they are measured, and others
        come. Nothing else runs on their devices.
        """
        sharing = {t: worker for t, worker in self.running.items() if worker.lane.shares_devices(lane)}
        if not lane.devices:
            return any(worker.lane.devices for worker in sharing.values())
        if any(worker.lane != lane for worker in sharing.values()):
            return True
        preparing = [worker for worker in sharing.values() if worker.stage not in (Stage.EXAMINE, Stage.CHECK)]
        return len(preparing) >= MULTI_RANK_AT_ONCE or any(map(self.windows.is_at_rest, sharing))

    def _start_one(self, planned: PlannedCase, lane: Lane, *, is_retry: bool) -> None:
        self.tickets += 1
        if planned.environment or planned.holds_others:
            self.lanes_of_turns[planned.case] = lane
        worker = Running(
            planned=planned,
            lane=lane,
            log=self.log_path(planned),
            started_at=timestamp(),
            deadline_s=self.now_s()
            + (self.settings.limits.of(Stage.START) if planned.turn is None else self.settings.limits.turn_s),
            device_bytes=self.room.device_bytes_of(planned, lane),
            host_bytes=self.room.host_bytes_of(planned),
            is_retry=is_retry,
        )
        siblings = self.room.on(lane)
        worker.had_siblings = bool(siblings)
        for sibling in siblings:
            sibling.had_siblings = True
        self.running[self.tickets] = worker
        self.on_start(planned)
        self.workers.start(self.tickets, planned, lane, worker.log)

    # --- what workers say ---

    def _hear(self, ticket: int, message: Message) -> None:
        """Note a message, unless the worker is late: the signal that asks for its stacks may be the cause."""
        worker = self.running.get(ticket)
        if worker is not None and worker.is_late and worker.outcome is None:
            if isinstance(message, Exited):
                self._time_out(worker)
        elif worker is not None:
            self._note(ticket, message)

    def _note(self, ticket: int, message: Message) -> None:
        worker = self.running[ticket]
        match message:
            case Stage():
                worker.stage = message
                if worker.planned.turn is None:
                    worker.deadline_s = self.now_s() + self.settings.limits.of(message)
                if message is Stage.WAIT:
                    self.windows.ask(ticket)
                if message is Stage.EXAMINE:
                    self.windows.measured(ticket)
                self.on_stage(worker.planned.case, worker.lane, message)
            case Timed():
                worker.timed = message.measured
                self.budgets.spend(ticket, message.measured)
            case Garbled():
                worker.outcome = garbled(worker.name, message.what, worker.stage, worker.log)
                worker.deadline_s = -math.inf
            case Exited():
                worker.lost_server = message.with_server and worker.outcome is None
                worker.outcome = worker.outcome or died(message.code, worker.stage, worker.log, who=worker.name)
                worker.deadline_s = -math.inf
            case _:
                if isinstance(message, Measured):
                    self.budgets.spend(ticket, message)
                worker.outcome = message
                worker.deadline_s = self.now_s() + ANSWER_TO_EXIT_S
                self.windows.close(ticket)

    def _time_left_s(self) -> float:
        deadlines = [worker.deadline_s for worker in self.running.values() if worker.paused_at_s is None]
        if (wakes_at_s := self.windows.wakes_at_s()) is not None:
            deadlines.append(wakes_at_s)
        return min(STOPPED_S, max(0.0, min(deadlines, default=0.0) - self.now_s()))

    def _allow_for_a_stop(self, lost_s: float) -> None:
        """If this process itself was stopped (Ctrl-Z, a machine that sleeps), its workers get that time on top."""
        if lost_s > STOPPED_S:
            for worker in self.running.values():
                worker.deadline_s += lost_s

    def _kill_late(self) -> None:
        """End the workers whose time is over: what they did is in their logs then, and in the outcome."""
        for ticket, worker in self.running.items():
            if worker.paused_at_s is not None or worker.outcome is not None or self.now_s() < worker.deadline_s:
                continue
            if worker.is_late:
                self._time_out(worker)
            else:
                self.workers.write_stacks(ticket, worker.log)
                worker.is_late, worker.deadline_s = True, self.now_s() + STACKS_S

    def _time_out(self, worker: Running) -> None:
        what, limit_s = worker.stage.value, self.settings.limits.of(worker.stage)
        if worker.planned.turn is not None:
            what, limit_s = worker.name, self.settings.limits.turn_s
        elif worker.stage is Stage.WAIT:
            what, limit_s = "beginning when its window opened", ANSWER_TO_OPENING_S
        worker.outcome = late(what, limit_s, worker.stage, worker.log)
        worker.deadline_s = -math.inf

    def _finish(self, queue: deque[tuple[PlannedCase, bool]]) -> Iterator[tuple[PlannedCase, Record]]:
        """The records of the workers that have an outcome and have ended, or had their time to end."""
        for ticket, worker in list(self.running.items()):
            is_stopped = worker.paused_at_s is not None and worker.deadline_s > -math.inf
            if worker.outcome is None or is_stopped or self.now_s() < worker.deadline_s:
                continue
            self.workers.kill(ticket)
            del self.running[ticket]
            self.windows.close(ticket)
            if self._should_retry(worker):
                self.alone.pop(_place_of(worker.planned), None)  # its caches are gone, too
                queue.extend((process, True) for process in processes_of(worker.planned, self.settings))
                continue
            self.room.learn(worker)
            outcome = worker.final(worker.outcome)
            self._note_outcome(worker.planned, outcome)
            if worker.planned.before is None:
                yield worker.planned, self._record(worker, outcome)

    def _timed_until_now(self) -> Iterator[tuple[PlannedCase, Record]]:
        """The records of the cases that an interrupt ends after their timing."""
        text = "the run was interrupted; when it goes on, this case is measured once more"
        for worker in self.running.values():
            outcome = None if self._should_retry(worker) else worker.outcome
            if outcome is None:
                outcome = Failed(kind=FailureKind.INTERRUPTED, stage=worker.stage, message=text, log=str(worker.log))
            if worker.timed is not None:
                yield worker.planned, self._record(worker, worker.final(outcome))

    def _should_retry(self, worker: Running) -> bool:
        """A case that ran out of device memory beside siblings runs once more, alone, never with a smaller batch.

        So does a case that has lost its server, which another one may have ended.
        """
        if worker.is_retry or worker.planned.before is not None:
            return False
        is_oom = isinstance(worker.outcome, Failed) and worker.outcome.kind is FailureKind.OOM_DEVICE
        return (is_oom and worker.had_siblings) or (worker.lost_server and worker.planned.turn is None)

    def _record(self, worker: Running, outcome: Outcome) -> Record:
        case, role, number = worker.planned.key
        return Record(
            case=case,
            role=role,
            number=number,
            outcome=self._with_alone(worker.planned, outcome),
            started_at=worker.started_at,
            finished_at=timestamp(),
            lane=worker.lane.name,
            paused_s=worker.paused_s,
        )

    def _with_alone(self, planned: PlannedCase, outcome: Outcome) -> Outcome:
        """The outcome with what was found of the candidate without eager, or why that is not there, if it was asked."""
        is_asked = Pass.MEMORY_ALONE in self.settings.passes and planned.case.backend != EAGER
        if not is_asked or not isinstance(outcome, Measured):
            return outcome
        found = self.alone.get(_place_of(planned)) or Skipped(reason=str(why_never_alone(planned.case)))
        fields = {"alone": found} if isinstance(found, Alone) else {"why_not_alone": found}
        candidate = msgspec.structs.replace(outcome.variants[CANDIDATE_VARIANT], **fields)
        return msgspec.structs.replace(outcome, variants={**outcome.variants, CANDIDATE_VARIANT: candidate})


def _place_of(planned: PlannedCase) -> tuple[Case, str]:
    return planned.case, planned.environment


def record_of_resolved(planned: PlannedCase) -> Record:
    """The record of what has its outcome without a process."""
    assert planned.resolved is not None
    (case, role, number), now = planned.key, timestamp()
    return Record(case=case, role=role, number=number, outcome=planned.resolved, started_at=now, finished_at=now)


def in_order(plan: Plan, *, jobs: int) -> list[PlannedCase]:
    """The order in which cases start: first every case once, then every case again.

    So a drift in the course of the run lies between the repeats of a case, not within them. With one job, each repeat
    has the plan's order. With several jobs, long cases come first (compiling before eager, training before evaluation):
    a long case that starts last would run alone at the end.
    """

    def key(planned: PlannedCase) -> tuple[int, ...]:
        case = planned.case
        is_short = (case.backend == EAGER, case.mode is not Mode.TRAIN)
        return (case.repeat,) if jobs == 1 else (case.repeat, -case.world, *is_short)

    return sorted(plan, key=key)


def timestamp() -> str:
    """The time now, in UTC, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
