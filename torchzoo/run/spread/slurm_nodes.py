"""Nodes that Slurm places: the tasks of an array job, one for each host. Lines go through a shared folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

import torchzoo
from torchzoo.errors import attempt, one_line
from torchzoo.machine.facts import VARIABLE_PREFIXES
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.spread import protocol
from torchzoo.run.spread.mailbox import CONTROLLER, Hello, Inbox, Outbox
from torchzoo.run.spread.nodes import EngineError, Event, Joined, Lost, Said
from torchzoo.run.spread.slurm_task import NodeTask
from torchzoo.store import write_whole

LOOK_EVERY_S = 5.0  # at the states of the tasks
SIGN_EVERY_S = 5.0
POLL_S = 0.5
END_S = 90.0  # so long Slurm may take to end the tasks
#: Options that `--sbatch` may replace.
DEFAULTS: dict[str, Any] = {"time": "4:00:00", "exclusive": True}

#: States of a task that will run, or run again; and of one that runs.
WAITS = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED"})
RUNS = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})


@dataclass
class _Box:
    """What is heard of a node, and told to it."""

    task: int
    heard: Inbox
    told: Outbox
    host: str = ""  # empty until it has said so
    is_lost: bool = False


class SlurmNodes:
    """See `torchzoo.run.spread.nodes.Nodes`. A node's name is the number of its task and how often that was requeued.

    Args:
        folder: that all hosts can write to.
        count: of tasks.
        options: of `sbatch`, beside `DEFAULTS`.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        folder: Path,
        count: int,
        options: Sequence[tuple[str, str]],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._options = {**DEFAULTS, **{name: value or True for name, value in options}}
        self._now_s = now_s
        self._folder = folder.resolve() / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"
        self._boxes: dict[str, _Box] = {}
        self._states = dict.fromkeys(range(count), "PENDING")
        self._looked_s = now_s()
        self._is_over = threading.Event()

    @property
    def expected(self) -> int:
        here = {box.task for box in self._boxes.values() if box.host and not box.is_lost}
        return sum(state in WAITS | RUNS and task not in here for task, state in self._states.items())

    def __enter__(self) -> SlurmNodes:
        try:
            import submitit
        except ImportError as error:
            raise EngineError("--executor slurm needs submitit: pip install submitit") from error
        if shutil.which("sbatch") is None:
            raise EngineError("--executor slurm: there is no sbatch here; run torchzoo on a login node of the cluster")
        self._folder.mkdir(parents=True)
        submitted = attempt(lambda: self._submit(submitit))
        if isinstance(submitted, Exception):
            raise EngineError(f"sbatch refuses the job: {one_line(submitted)}") from submitted
        self._job = submitted
        # When its standard input is closed, by this process or by its end, the job is cancelled.
        self._guard = subprocess.Popen(  # noqa: S603  a number, and the user's own scancel
            ["sh", "-c", f"cat > /dev/null; exec scancel {self._job}"],  # noqa: S607
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        threading.Thread(target=self._give_signs, daemon=True, name="torchzoo-signs").start()
        return self

    def _submit(self, submitit: Any) -> str:
        root = str(Path(torchzoo.__file__).resolve().parent.parent)
        executor = submitit.SlurmExecutor(folder=self._folder / "tasks")
        executor.update_parameters(
            job_name="torchzoo",
            nodes=1,
            ntasks_per_node=1,
            use_srun=False,
            setup=[f"export PYTHONPATH={root}${{PYTHONPATH:+:$PYTHONPATH}}"],
            additional_parameters={name: value for name, value in self._options.items() if value != "no"},
        )
        tasks = [
            NodeTask(self._folder, number, dict(os.environ), VARIABLE_PREFIXES, root) for number in range(self._count)
        ]
        jobs = executor.submit_array(tasks)
        return str(jobs[0].job_id).partition("_")[0]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with Interrupts():  # a second Ctrl-C, too, must not leave a job
            self._is_over.set()
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()
            until_s = self._now_s() + END_S
            while self._look() and self._now_s() < until_s:
                if not any(state in RUNS | WAITS or state == "COMPLETING" for state in self._states.values()):
                    return
                time.sleep(POLL_S)

    def tell(self, name: str, request: protocol.Request) -> None:
        self._boxes[name].told.write(protocol.line_of(request))

    def dismiss(self, name: str) -> None:
        box = self._boxes[name]
        box.is_lost = True
        self._states[box.task] = "CANCELLED"
        subprocess.run(  # noqa: S603  numbers, and the user's own scancel
            ["scancel", f"{self._job}_{box.task}"],  # noqa: S607
            check=False,
            capture_output=True,
        )

    def wait(self, timeout_s: float) -> list[tuple[str, Event]]:
        until_s = self._now_s() + timeout_s
        while True:
            events = self._heard()
            if self._now_s() - self._looked_s >= LOOK_EVERY_S:
                self._looked_s = self._now_s()
                if self._look():
                    events += self._lost()
            if events or self._now_s() >= until_s:
                return events
            time.sleep(POLL_S)

    def _heard(self) -> list[tuple[str, Event]]:
        """What nodes have said. A node that was lost is still heard: its outcomes may count."""
        for path in self._folder.glob("*.out"):
            if path.stem not in self._boxes:
                told = Outbox(path.with_suffix(".in"))
                self._boxes[path.stem] = _Box(int(path.stem.partition(".")[0]), Inbox(path), told)
        events: list[tuple[str, Event]] = []
        for name, box in sorted(self._boxes.items()):
            for line in box.heard.lines():
                if not box.host:
                    box.host = self._name_of(msgspec.json.decode(line, type=Hello).host)
                    events += self._replaced(box, name)
                    events.append((name, Joined(host=box.host)))
                    continue
                try:
                    events.append((name, Said(answer=protocol.answer_of(line))))
                except (msgspec.MsgspecError, ValueError):
                    events.append((name, Lost(why="it said what is no answer")))
        return events

    def _replaced(self, box: _Box, name: str) -> list[tuple[str, Event]]:
        """The nodes that the same task was before it was requeued are gone."""
        self._states[box.task] = "RUNNING"
        before = [old for old, other in self._boxes.items() if other.task == box.task and old != name]
        return [event for old in before for event in self._lose(old, "Slurm has requeued its task")]

    def _name_of(self, hostname: str) -> str:
        taken = {box.host for box in self._boxes.values() if not box.is_lost}
        number, name = 1, hostname
        while name in taken:
            number += 1
            name = f"{hostname}-{number}"
        return name

    def _look(self) -> bool:
        """Ask Slurm for the states of the tasks. Returns whether it answered."""
        asked = subprocess.run(  # noqa: S603  a number, and the user's own squeue
            ["squeue", "--noheader", "--array", "--states=all", f"--jobs={self._job}", "--format=%K|%T"],  # noqa: S607
            check=False,
            capture_output=True,
            text=True,
        )
        if asked.returncode != 0 and "Invalid job id" not in asked.stderr:
            return False
        known = dict(line.split("|", 1) for line in asked.stdout.split() if "|" in line)
        self._states = {task: known.get(str(task), "GONE") for task in self._states}
        return True

    def _lost(self) -> list[tuple[str, Event]]:
        """The nodes whose tasks do not run any more."""
        return [
            event
            for name, box in self._boxes.items()
            if box.host and (state := self._states[box.task]) not in RUNS
            for event in self._lose(name, f"Slurm says that its task is {state.lower()}")
        ]

    def _lose(self, name: str, why: str) -> list[tuple[str, Event]]:
        box = self._boxes[name]
        if box.is_lost:
            return []
        box.is_lost = True
        return [(name, Lost(why=why))]

    def _give_signs(self) -> None:
        """Show the nodes that somebody listens."""
        number = 0
        while not self._is_over.wait(SIGN_EVERY_S if number else 0):
            number += 1
            write_whole(self._folder / CONTROLLER, str(number).encode())
