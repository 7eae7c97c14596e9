"""A process that runs workers for a runner whose own Python or whose own libraries are others.

    PYTHON -P -m torchzoo.run.agent

It reads requests, a line of JSON each, from standard input, and answers on standard output. What libraries print goes
to standard error. When standard input ends, the runner is gone: then the agent ends its workers and itself.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from torchzoo.case import Backend
from torchzoo.errors import TorchzooError, one_line
from torchzoo.files import to_json
from torchzoo.machine.facts import MachineInfo
from torchzoo.run.fork_server import ForkServer
from torchzoo.run.lanes import Lane
from torchzoo.run.messages import LineReader, write_line
from torchzoo.run.plan import PlannedCase
from torchzoo.run.processes import ForkedWorkers
from torchzoo.run.resources import missing, own_cores, to_preload
from torchzoo.run.workers import Garbled, Message
from torchzoo.settings import Settings
from torchzoo.zoo.spec import ModelSpec

WAIT_S = 60.0  # at most: a request or a message of a worker ends the waiting

# --- what the runner asks for ---


class Prepare(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Load torch and the libraries of these models and backends. The answer is `Prepared`."""

    models: tuple[ModelSpec, ...]
    backends: tuple[Backend, ...]
    import_limit_s: float


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From now on workers may be started. Nothing of the run may be running: the host's speed is looked at.

    The answer is `Begun`.
    """

    settings: Settings
    lanes: tuple[Lane, ...]
    undisturbed_loop_s: float | None  # what earlier looks at this host found; None: there were none


class Start(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    ticket: int
    planned: PlannedCase
    lane: Lane
    log: str


class GoOn(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    ticket: int


class Pause(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer is `Done`, when the worker is stopped."""

    ticket: int


class Resume(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer is `Done`."""

    ticket: int


class TellStacks(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Let the worker write into its log what it does."""

    ticket: int


class Kill(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer is `Done`, when nothing is left of the worker."""

    ticket: int


Request = Prepare | Begin | Start | GoOn | Pause | Resume | TellStacks | Kill

# --- what the agent answers ---


class Prepared(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    machine: MachineInfo
    missing: dict[str, str]  # as `resources.missing` gives it


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    undisturbed_loop_s: float


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The request can't be carried out: one line that says why."""

    message: str


class Said(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker's message. It comes without a request."""

    ticket: int
    message: Message


Answer = Prepared | Begun | Done | Refused | Said

_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Request)


class Agent:
    """Carries out requests, and passes on what workers say.

    Args:
        requests: the file descriptor that requests come from.
        answer: sends an answer.
    """

    def __init__(self, requests: int, answer: Callable[[Answer], None]) -> None:
        self._requests = requests
        self._reader = LineReader(requests, _decoder)
        self._answer = answer
        self._open = contextlib.ExitStack()
        self._server: ForkServer | None = None
        self._workers: ForkedWorkers | None = None

    def serve(self) -> None:
        """Return when the runner is gone."""
        with self._open:
            while self._reader.is_open:
                if self._workers is None:
                    select.select([self._requests], [], [])
                else:
                    for ticket, message in self._workers.wait(WAIT_S):
                        self._answer(Said(ticket=ticket, message=message))
                for request in self._reader.read():
                    self._carry_out(request)

    def _carry_out(self, request: Request | Garbled) -> None:
        try:
            answer = self._answer_to(request)
        except (TorchzooError, OSError) as error:
            answer = Refused(message=one_line(error))
        if answer is not None:
            self._answer(answer)

    def _answer_to(self, request: Request | Garbled) -> Answer | None:
        match request:
            case Garbled():
                return Refused(message=request.what)
            case Prepare():
                self._server = ForkServer(to_preload(request.models, request.backends), request.import_limit_s)
                machine = self._server.machine_info()
                return Prepared(machine=machine, missing=missing(request.models, request.backends))
            case Begin():
                return self._begin(request)
        assert self._workers is not None, "Begin comes first"
        match request:
            case Start():
                self._workers.start(request.ticket, request.planned, request.lane, Path(request.log))
                return None
            case GoOn():
                self._workers.go_on(request.ticket)
                return None
            case TellStacks():
                self._workers.tell_stacks(request.ticket)
                return None
            case Pause():
                self._workers.pause(request.ticket)
            case Resume():
                self._workers.resume(request.ticket)
            case Kill():
                self._workers.kill(request.ticket)
        return Done()

    def _begin(self, request: Begin) -> Begun:
        assert self._server is not None, "Prepare comes first"
        looks_s = (request.undisturbed_loop_s, self._server.host_speed(request.lanes))
        undisturbed_loop_s = min(filter(None, looks_s))
        workers = ForkedWorkers(
            self._server,
            request.settings,
            own_cores=own_cores(),
            undisturbed_loop_s=undisturbed_loop_s,
            woken_by=(self._requests,),
        )
        self._workers = self._open.enter_context(workers)
        return Begun(undisturbed_loop_s=undisturbed_loop_s)


def main() -> None:
    """Serve the runner at the other end of standard input and output."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    agent = Agent(0, lambda answer: write_line(answers, to_json(answer) + b"\n"))
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        agent.serve()


if __name__ == "__main__":
    main()
