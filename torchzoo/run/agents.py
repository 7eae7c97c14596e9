"""The runner's side of `torchzoo.run.agent`: starts agents, asks them, and lets the scheduler use their workers."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from torchzoo.devices.cuda import RUNNER_VARIABLE
from torchzoo.errors import TorchzooError
from torchzoo.files import to_json
from torchzoo.machine.limits import available_bytes
from torchzoo.run import agent as protocol
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.lanes import Lane
from torchzoo.run.messages import LineReader, write_line
from torchzoo.run.plan import PlannedCase
from torchzoo.run.workers import Garbled, Message

#: An agent that has been told to end has so long to end its workers.
END_S = 20.0

_Answer = TypeVar("_Answer", protocol.Prepared, protocol.Begun, protocol.Done)
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(protocol.Answer)


class AgentError(TorchzooError):
    """An agent can't do what it was asked, or is gone. The message is one line that begins with its name.

    Args:
        agent: the name of the agent.
        what: what is wrong.
    """

    def __init__(self, agent: str, what: str) -> None:
        super().__init__(f"{agent}: {what}")
        self.agent = agent


class AgentRefused(AgentError):
    """An agent says why it can't do what it was asked: its torch, for example, can't be imported."""


class AgentProcess:
    """An agent on this machine. Use as a context: on leaving, the agent and its workers are gone.

    Args:
        name: of its software environment, for messages.
        python: the interpreter that it runs in.
        variables: added to the environment variables of this process. `PYTHONPATH` must lead to torchzoo.
    """

    def __init__(self, name: str, python: str, variables: Mapping[str, str]) -> None:
        self.name = name
        self._python = python
        self._variables = variables
        self._unread: list[protocol.Said] = []  # came while something else was awaited

    def __enter__(self) -> AgentProcess:
        try:
            self._process = subprocess.Popen(  # noqa: S603  the interpreter that the user named or torchzoo made
                [self._python, "-P", "-m", "torchzoo.run.agent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **self._variables, RUNNER_VARIABLE: str(os.getpid())},
                start_new_session=True,  # Ctrl-C is for the runner, which ends its agents
            )
        except OSError as error:
            raise AgentError(self.name, f"can't start {self._python}: {error.strerror}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin.fileno()
        self.answers = self._process.stdout.fileno()
        self._reader = LineReader(self.answers, _decoder)
        return self

    def __exit__(self, *_: object) -> None:
        with Interrupts():  # a second Ctrl-C, too, must not leave an agent
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(psutil.Error):
                    psutil.Process(self._process.pid).kill()  # its reaper ends its workers
                self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, request: protocol.Request) -> None:
        """Send a request that has no answer.

        Raises:
            AgentError: the agent is gone.
        """
        try:
            write_line(self._requests, to_json(request) + b"\n")
        except OSError as error:
            raise self._gone() from error

    def ask(self, request: protocol.Request, kind: type[_Answer]) -> _Answer:
        """Send a request and wait for its answer. What workers say meanwhile is kept for `said`.

        Raises:
            AgentError: the agent refuses, or is gone.
        """
        self.tell(request)
        found: _Answer | None = None
        while found is None:
            wait([self.answers])
            for answer in self._read():
                if isinstance(answer, kind):
                    found = answer
                else:
                    assert isinstance(answer, protocol.Said), answer
                    self._unread.append(answer)
        return found

    def said(self) -> list[protocol.Said]:
        """What workers have said since the last call."""
        came, self._unread = self._unread, []
        for answer in self._read():
            assert isinstance(answer, protocol.Said), answer
            came.append(answer)
        return came

    @property
    def has_unread(self) -> bool:
        return bool(self._unread)

    def _read(self) -> list[protocol.Answer]:
        answers: list[protocol.Answer] = []
        for answer in self._reader.read():
            if isinstance(answer, Garbled):
                raise AgentError(self.name, f"its agent can't be understood: {answer.what}")
            if isinstance(answer, protocol.Refused):
                raise AgentRefused(self.name, answer.message)
            answers.append(answer)
        if not answers and not self._reader.is_open:
            raise self._gone()
        return answers

    def _gone(self) -> AgentError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.returncode
        how = "" if code is None else f" with status {code}" if code >= 0 else f" by signal {-code}"
        return AgentError(self.name, f"its agent ended{how}; what it printed is on standard error")


class AgentWorkers:
    """The workers of several agents, as the scheduler uses them. `PlannedCase.agent` says whose worker runs a case.

    Use as a context, like `torchzoo.run.processes.ForkedWorkers`, within that of the agents.
    """

    def __init__(self, agents: Mapping[str, AgentProcess]) -> None:
        self._agents = agents
        self._of: dict[int, AgentProcess] = {}  # by ticket
        self._interrupts = Interrupts()

    def start(self, ticket: int, planned: PlannedCase, lane: Lane, log: Path) -> None:
        self._of[ticket] = self._agents[planned.agent]
        self._of[ticket].tell(protocol.Start(ticket=ticket, planned=planned, lane=lane, log=str(log)))

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        """See `torchzoo.run.workers.Workers`.

        Raises:
            KeyboardInterrupt: SIGINT or SIGTERM came, during this call or since the last one.
            AgentError: an agent is gone.
        """
        agents = {agent.answers: agent for agent in self._agents.values()}
        is_behind = any(agent.has_unread for agent in agents.values())
        ready = wait([*agents, self._interrupts.noted], 0 if is_behind else timeout_s)
        if self._interrupts.noted in ready:
            raise KeyboardInterrupt
        readable = [agent for file, agent in agents.items() if file in ready or agent.has_unread]
        return [(said.ticket, said.message) for agent in readable for said in agent.said()]

    def go_on(self, ticket: int) -> None:
        self._of[ticket].tell(protocol.GoOn(ticket=ticket))

    def pause(self, ticket: int) -> None:
        self._of[ticket].ask(protocol.Pause(ticket=ticket), protocol.Done)

    def resume(self, ticket: int) -> None:
        self._of[ticket].ask(protocol.Resume(ticket=ticket), protocol.Done)

    def tell_stacks(self, ticket: int) -> None:
        self._of[ticket].tell(protocol.TellStacks(ticket=ticket))

    def kill(self, ticket: int) -> None:
        if (agent := self._of.pop(ticket, None)) is not None:
            with contextlib.suppress(AgentError):  # the agent is gone, and its reaper has killed the worker
                agent.ask(protocol.Kill(ticket=ticket), protocol.Done)

    def host_available_bytes(self) -> int:
        return available_bytes()

    def __enter__(self) -> AgentWorkers:
        self._interrupts.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for ticket in list(self._of):
            self.kill(ticket)
        self._interrupts.__exit__()
        if self._interrupts.came and kind is None:
            raise KeyboardInterrupt
