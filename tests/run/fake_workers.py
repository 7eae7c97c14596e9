"""Workers that follow a script on a fake clock, and a scheduler over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from examples import CASE, SPEC, measured
from torchzoo.case import Parallel
from torchzoo.record import Record
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import PlannedCase
from torchzoo.run.scheduler import Scheduler
from torchzoo.run.workers import Exited, Message
from torchzoo.settings import Settings, Stage, StageLimits

LANE = Lane(device="cpu")
LIMITS = StageLimits(build_s=60.0, compile_s=100.0, measure_s=30.0)
Script = list[tuple[float, Message]]
GOOD: Script = [
    (1, Stage.BUILD),
    (10, Stage.COMPILE),
    (20, Stage.WAIT),
    (0, Stage.MEASURE),
    (5, measured()),
    (1, Exited(0)),
]

CHECKED: Script = [*GOOD[:4], (5, Stage.EXAMINE), (1, Stage.HOLD), (0, Stage.CHECK), (20, measured()), (1, Exited(0))]


class FakeWorkers:
    """Workers that send scripted messages, each after its seconds of running; stopped ones make no headway."""

    def __init__(self, scripts: dict[str, list[Script]]) -> None:
        self.scripts = scripts
        self.now_s = 0.0
        self.left: dict[int, Script] = {}
        self.names: dict[int, str] = {}
        self.multi_rank: set[int] = set()
        self.paused: set[int] = set()
        self.waiting: set[int] = set()
        self.journal: list[tuple[float, str, str]] = []
        self.measuring: set[int] = set()
        self.limits_s: list[tuple[str, float | None]] = []  # of timing, by name, in the order of the windows
        self.most_alive = 0
        self.asked_for_stacks: list[int] = []
        self.available_bytes = 100 * 2**30

    def say(self, what: str, ticket: int) -> None:
        self.journal.append((self.now_s, what, self.names[ticket]))

    def start(self, ticket: int, planned: PlannedCase, lane: Lane, log: Path) -> None:
        assert not self.measuring, "nothing is started while a window is open"
        self.names[ticket] = f"{planned.case.model}@{lane.device}"
        if lane.devices:
            self.multi_rank.add(ticket)
        scripts = self.scripts[planned.case.model]
        self.left[ticket] = list(scripts.pop(0) if len(scripts) > 1 else scripts[0])
        self.say("start", ticket)
        self.most_alive = max(self.most_alive, len(self.left))

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        moving = {t: s for t, s in self.left.items() if s and t not in self.paused | self.waiting}
        until_s = min([s[0][0] for s in moving.values()], default=float("inf"))
        spent_s = min(until_s, timeout_s)
        assert spent_s < float("inf"), "nobody moves and nobody will: a deadlock"
        self.now_s += spent_s
        messages = []
        for ticket, script in moving.items():
            after_s, message = script[0]
            if after_s > spent_s:
                script[0] = (after_s - spent_s, message)
                continue
            script.pop(0)
            messages.append((ticket, message))
            if message in (Stage.WAIT, Stage.HOLD) or (message is Stage.EXAMINE and ticket in self.multi_rank):
                self.waiting.add(ticket)
            if message in (Stage.HOLD, Stage.CHECK):
                self.say(message, ticket)
            if message is Stage.MEASURE:
                self.measuring.add(ticket)
                others = set(self.left) - self.paused - {ticket}
                self.say(f"measure beside {sorted(self.names[t] for t in others)}", ticket)
            else:
                self.measuring.discard(ticket)
        return messages

    def proceed(self, ticket: int, stage: Stage, limit_s: float | None = None) -> None:
        assert stage is not Stage.MEASURE or ticket not in self.paused, "a window is open for a worker that is stopped"
        if stage is Stage.MEASURE:
            self.limits_s.append((self.names[ticket], limit_s))
        self.waiting.discard(ticket)

    def pause(self, ticket: int) -> None:
        self.paused.add(ticket)

    def resume(self, ticket: int) -> None:
        self.paused.discard(ticket)

    def write_stacks(self, ticket: int, log: Path) -> None:
        self.asked_for_stacks.append(ticket)

    def kill(self, ticket: int) -> None:
        self.say("kill", ticket)
        del self.left[ticket]
        self.paused.discard(ticket)
        self.waiting.discard(ticket)
        self.measuring.discard(ticket)

    def host_available_bytes(self) -> int:
        return self.available_bytes

    def did(self, what: str) -> list[tuple[float, str]]:
        return [(when, name) for when, done, name in self.journal if done.startswith(what)]


def entries(*models: str, device: str = "cpu") -> tuple[PlannedCase, ...]:
    return tuple(
        PlannedCase(case=msgspec.structs.replace(CASE, model=model, device=device), spec=SPEC) for model in models
    )


def scheduler(
    workers: FakeWorkers,
    jobs: int = 3,
    lanes: tuple[Lane, ...] = (LANE,),
    settings: Settings = Settings(),  # noqa: B008
    **options: Any,
) -> Scheduler:
    def log_path(planned: PlannedCase) -> Path:
        return Path(f"{planned.case.model}.log")

    settings = msgspec.structs.replace(settings, jobs=jobs, limits=LIMITS)
    return Scheduler(workers, lanes, settings, log_path=log_path, now_s=lambda: workers.now_s, **options)


def multi_rank(*models: str, world: int = 2) -> tuple[PlannedCase, ...]:
    """Cases with several ranks."""
    return tuple(
        msgspec.structs.replace(one, case=msgspec.structs.replace(one.case, world=world, parallel=Parallel.DDP))
        for one in entries(*models, device="cuda")
    )


def outcomes(records: list[Record]) -> dict[str, Any]:
    return {record.case.model: record.outcome for record in records}


def two_lanes() -> tuple[Lane, Lane]:
    return Lane(device="cuda:0", cores=(0, 1)), Lane(device="cuda:1", cores=(2, 3))
