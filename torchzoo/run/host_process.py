"""The process on a host of a cluster that runs cases as a run on one machine does, and tells the runner their records.

    PYTHON -P -m torchzoo.run.host_process

Standard input has lines of JSON: a `HostStart`, and then `Given` cases, which are added to those that run. Standard
output has a line for each `Answer`; what libraries print goes to standard error. When standard input ends, the runner
is gone: then the process ends its workers and itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from torchzoo.bounds import LimitSeconds
from torchzoo.case import Backend, Case
from torchzoo.errors import TorchzooError, one_line
from torchzoo.files import safe_name, to_json
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import Failed, FailureKind, Record
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.lanes import Lane
from torchzoo.run.lines import write_line
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.pool import Pool, PoolRun, PoolWorkers
from torchzoo.run.resources import lanes_for, missing, own_cores, to_preload, with_jobs
from torchzoo.run.scheduler import READY_FACTOR, Scheduler
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.folders import bundled
from torchzoo.zoo.spec import ModelSpec

#: A crash is told after this time, if the runner is still there. Where a whole host is ended from outside, its workers
#: may die first, and that is no outcome of their cases.
CRASH_DELAY_S = 2.0
LOG_BYTES = 2**18  # the end of a worker's log that the runner gets


class HostStart(msgspec.Struct, frozen=True, kw_only=True):
    """The first line from the runner. The answer is `HostReady` or `HostRefused`.

    `settings.jobs` and `settings.compile_threads` are not used: they follow from `jobs` and from the host's cores.
    """

    host: str = ""  # the host's name in the run
    models: tuple[ModelSpec, ...] = ()
    models_root: str = ""  # where the runner has the zoo's own folders; the host may have them elsewhere
    backends: tuple[Backend, ...] = ()
    devices: tuple[str, ...] = ()  # empty: the host's accelerator, or its CPU
    device_indices: tuple[int, ...] | None = None
    worlds: tuple[int, ...] = (1,)
    settings: Settings
    jobs: int | None = None


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """Cases for a host, and what each has of the run's budget: `Settings.share_s`, known once all hosts are ready."""

    cases: tuple[Case, ...]
    share_s: LimitSeconds | None = None


class HostReady(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The host has loaded the libraries of the models, and can run cases."""

    machine: MachineInfo
    missing: dict[str, str]  # as `resources.missing` gives it
    lanes: tuple[Lane, ...]
    most_alive: int  # the most cases that the host works on at once
    settings: Settings  # with the host's jobs
    undisturbed_loop_s: float


class Entered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker begins a stage."""

    case: Case
    lane: Lane
    stage: Stage


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    record: Record
    log: str = ""  # the end of what the worker of a failed case printed


class HostRefused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The host can't go on; the message is one line that says why."""

    message: str


Answer = HostReady | Entered | Finished | HostRefused


class _Connection:
    """The runner at the other end of standard input, whose lines a thread reads, and of the file `answers`.

    `woken` is a file descriptor that can be read when there are new cases.
    """

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._is_gone = threading.Event()
        self.woken, self._wake = os.pipe()
        os.set_blocking(self.woken, False)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._lines.put(line)
            os.write(self._wake, b"\n")
        self._is_gone.set()
        os.kill(os.getpid(), signal.SIGTERM)

    def start(self) -> HostStart:
        return msgspec.json.decode(self._lines.get(), type=HostStart)

    def first_cases(self) -> Given:
        """Wait for the first cases."""
        return msgspec.json.decode(self._lines.get(), type=Given)

    def new_cases(self) -> tuple[Case, ...]:
        """The cases that have come since the last call."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 2**16)
        found: tuple[Case, ...] = ()
        with contextlib.suppress(Empty):
            while True:
                found += msgspec.json.decode(self._lines.get_nowait(), type=Given).cases
        return found

    def tell(self, answer: Answer) -> None:
        write_line(self._answers, to_json(answer) + b"\n")

    def tell_record(self, record: Record) -> None:
        """Tell a record, and the log of a failed case."""
        log = ""
        if isinstance(record.outcome, Failed):
            with contextlib.suppress(OSError):
                log = Path(record.outcome.log).read_bytes()[-LOG_BYTES:].decode("utf-8", errors="replace")
            if record.outcome.kind is FailureKind.CRASHED and self._is_gone.wait(CRASH_DELAY_S):
                return
        self.tell(Finished(record=record, log=log))


def _serve(runner: _Connection) -> None:
    """Run the cases that come, until an interrupt."""
    start = runner.start()
    specs = {spec.name: _here(spec, start.models_root) for spec in start.models}
    server = Pool(to_preload([*specs.values()], start.backends), start.settings.limits.build_s)
    machine = server.machine_info()
    devices = [
        name for name in start.devices or [machine.default_device] if machine.devices.get(name.partition(":")[0])
    ]
    if not devices:
        raise TorchzooError(f"it has none of the devices {', '.join(start.devices)}")
    settings = with_jobs(start.settings, start.jobs, devices, cases=sys.maxsize)
    accelerators = None if machine.default_device == "cpu" else tuple(range(machine.devices[machine.default_device]))
    found = lanes_for(devices, start.device_indices or accelerators, settings, machine, start.worlds)
    lanes = tuple(msgspec.structs.replace(lane, host=start.host) for lane in found)
    speed_s = server.host_speed(lanes)
    runner.tell(
        HostReady(
            machine=machine,
            missing=missing([*specs.values()], start.backends),
            lanes=lanes,
            most_alive=settings.jobs if settings.jobs == 1 else READY_FACTOR * settings.jobs,
            settings=settings,
            undisturbed_loop_s=speed_s,
        )
    )
    with contextlib.ExitStack() as until_given:
        until_given.callback(server.close)
        first = runner.first_cases()
        until_given.pop_all()  # the workers' context closes the server
    settings = msgspec.structs.replace(settings, share_s=first.share_s)
    run = PoolRun(pool=server, settings=settings, undisturbed_loop_s=speed_s)
    workers = PoolWorkers({"": run}, own_cores=own_cores(), woken_by=(runner.woken,))

    def plan_of(cases: Iterable[Case]) -> Plan:
        return tuple(PlannedCase(case=case, spec=specs[case.model]) for case in cases)

    with tempfile.TemporaryDirectory(prefix="torchzoo-host-") as logs, workers:
        scheduler = Scheduler(
            workers,
            lanes,
            settings,
            log_path=lambda planned: Path(logs) / f"{safe_name(planned.case.label())}.log",
            on_stage=lambda case, lane, stage: runner.tell(Entered(case=case, lane=lane, stage=stage)),
            more=lambda: plan_of(runner.new_cases()),
        )
        for record in scheduler.run(plan_of(first.cases)):
            runner.tell_record(record)


def _here(spec: ModelSpec, models_root: str) -> ModelSpec:
    """The spec with the folder that one of the zoo's own models has on this host."""
    folder = Path(spec.folder)
    if not folder.is_relative_to(models_root):
        return spec
    return msgspec.structs.replace(spec, folder=str(bundled("models") / folder.relative_to(models_root)))


def main() -> None:
    """Serve the runner at the other end of standard input and output."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError), terminated_as_interrupted():
        runner = _Connection(answers)
        try:
            _serve(runner)
        except (TorchzooError, OSError) as error:
            runner.tell(HostRefused(message=one_line(error)))


if __name__ == "__main__":
    main()
