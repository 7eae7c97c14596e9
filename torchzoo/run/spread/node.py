"""A node of a run that is spread over several hosts: it does there what a run on one machine does.

    PYTHON -P -m torchzoo.run.spread.node

It reads requests, a line of JSON each, from standard input, and answers on standard output. What libraries print goes
to standard error. When standard input ends, the controller is gone: then the node ends its workers and itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from torchzoo.case import Case
from torchzoo.errors import TorchzooError, one_line
from torchzoo.files import safe_name
from torchzoo.record import Failed, FailureKind, Record
from torchzoo.run.fork_server import ForkServer
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.lanes import Lane
from torchzoo.run.messages import LineReader, write_line
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.processes import ForkedWorkers
from torchzoo.run.resources import lanes_for, missing, own_cores, to_preload, with_jobs
from torchzoo.run.scheduler import READY_FACTOR, Scheduler
from torchzoo.run.spread import protocol
from torchzoo.run.workers import Garbled
from torchzoo.settings import Stage
from torchzoo.zoo.folders import bundled
from torchzoo.zoo.spec import ModelSpec

#: A crash is told so much later. Where the node is ended from outside (`scancel`), its workers may die before it does,
#: and that is no outcome of their cases.
DOUBT_S = 2.0
LOG_BYTES = 2**18  # of a worker's log that the controller gets


class ControllerGone(TorchzooError):
    """There is nobody to work for."""


class Node:
    """Carries out requests.

    Args:
        requests: the file descriptor that requests come from.
        answer: sends an answer.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        requests: int,
        answer: Callable[[protocol.Answer], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = requests
        self._reader = LineReader(requests, protocol.request_decoder())
        self._unread: deque[protocol.Request] = deque()
        self._answer = answer
        self._now_s = now_s
        self._said_s = now_s()
        self._doubted: deque[tuple[float, Record]] = deque()  # crashes, and when each is told
        self._root = ""

    def serve(self) -> None:
        """Return when the controller is gone, or when the node can't go on."""
        try:
            self._serve()
        except ControllerGone:
            return
        except (TorchzooError, OSError) as error:
            self._say(protocol.Refused(message=one_line(error)))

    def _serve(self) -> None:
        prepare = self._next()
        assert isinstance(prepare, protocol.Prepare), prepare
        self._root = prepare.models_root
        models = [self._here(model) for model in prepare.models]
        server = ForkServer(to_preload(models, prepare.backends), prepare.import_limit_s)
        machine = server.machine_info()
        self._say(protocol.Prepared(machine=machine, missing=missing(models, prepare.backends)))
        begin = self._next()
        assert isinstance(begin, protocol.Begin), begin
        devices = [device for device in begin.devices if machine.devices.get(device.partition(":")[0])]
        if not devices:
            raise TorchzooError(f"it has none of the devices {', '.join(begin.devices)}")
        settings = with_jobs(begin.settings, begin.jobs, devices, begin.cases)
        accelerators = tuple(range(machine.devices[machine.default_device]))
        indices = begin.device_indices or (None if machine.default_device == "cpu" else accelerators)
        found = lanes_for(devices, indices, settings, machine, begin.worlds)
        lanes = tuple(msgspec.structs.replace(lane, host=begin.host) for lane in found)
        speed_s = server.host_speed(lanes)
        workers = ForkedWorkers(
            server,
            settings,
            own_cores=own_cores(),
            undisturbed_loop_s=speed_s,
            woken_by=(self._requests,),
        )
        most_alive = settings.jobs if settings.jobs == 1 else READY_FACTOR * settings.jobs
        self._say(protocol.Begun(lanes=lanes, most_alive=most_alive, settings=settings, undisturbed_loop_s=speed_s))
        with tempfile.TemporaryDirectory(prefix="torchzoo-node-") as logs, workers:
            scheduler = Scheduler(
                workers,
                lanes,
                settings,
                log_path=lambda planned: Path(logs) / f"{safe_name(planned.case.label())}.log",
                on_stage=self._entered,
                more=self._more,
                now_s=self._now_s,
            )
            for record in scheduler.run(()):
                if isinstance(record.outcome, Failed) and record.outcome.kind is FailureKind.CRASHED:
                    self._doubted.append((self._now_s() + DOUBT_S, record))
                else:
                    self._finished(record)

    def _next(self) -> protocol.Request:
        """The next request, waited for."""
        while not self._unread:
            select.select([self._requests], [], [])
            self._read()
        return self._unread.popleft()

    def _read(self) -> None:
        """Read what has come.

        Raises:
            ControllerGone: nothing more will come.
        """
        for request in self._reader.read():
            if isinstance(request, Garbled):
                raise TorchzooError(f"a request can't be understood: {request.what}")
            self._unread.append(request)
        if not self._reader.is_open:
            raise ControllerGone

    def _more(self) -> Plan:
        """The cases that have been leased since the last call. Also tells what is due."""
        self._read()
        while self._doubted and self._doubted[0][0] <= self._now_s():
            self._finished(self._doubted.popleft()[1])
        if self._now_s() >= self._said_s + protocol.ALIVE_EVERY_S:
            self._say(protocol.Alive())
        leased: list[PlannedCase] = []
        while self._unread:
            request = self._unread.popleft()
            assert isinstance(request, protocol.Lease), request
            leased += (msgspec.structs.replace(one, spec=one.spec and self._here(one.spec)) for one in request.cases)
        return tuple(leased)

    def _here(self, spec: ModelSpec) -> ModelSpec:
        """The spec with the folder that one of the zoo's own models has on this host."""
        folder, root = Path(spec.folder), Path(self._root)
        if not folder.is_relative_to(root):
            return spec
        return msgspec.structs.replace(spec, folder=str(bundled("models") / folder.relative_to(root)))

    def _entered(self, case: Case, lane: Lane, stage: Stage) -> None:
        self._say(protocol.Entered(case=case, lane=lane, stage=stage))

    def _finished(self, record: Record) -> None:
        log = ""
        if isinstance(record.outcome, Failed) and record.outcome.log:
            with contextlib.suppress(OSError):
                log = Path(record.outcome.log).read_bytes()[-LOG_BYTES:].decode("utf-8", errors="replace")
        self._say(protocol.Finished(record=record, log=log))

    def _say(self, answer: protocol.Answer) -> None:
        self._answer(answer)
        self._said_s = self._now_s()


def _end_with_controller(requests: int) -> None:
    """Interrupt this process when its standard input is closed, whatever it does just then."""
    poll = select.poll()
    poll.register(requests, 0)  # whether there is something to read does not matter
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Serve the controller at the other end of standard input and output."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError), terminated_as_interrupted():
        threading.Thread(target=_end_with_controller, args=(0,), daemon=True).start()
        Node(0, lambda answer: write_line(answers, protocol.line_of(answer))).serve()


if __name__ == "__main__":
    main()
