"""Agents: workers of another Python. Whatever becomes of an agent is one line, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from examples import CASE, ROOT, SPEC, measured
from torchzoo.devices.cuda import foreign_processes, run_ancestor
from torchzoo.files import to_json
from torchzoo.run import agent as protocol
from torchzoo.run.agents import AgentError, AgentProcess, AgentWorkers
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import PlannedCase
from torchzoo.run.workers import Exited
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.spec import read_spec
from user_models import make_waiting
from waiting import until

PREPARE = protocol.Prepare(models=(), backends=(), import_limit_s=60)
BEGIN = protocol.Begin(settings=Settings(), lanes=(), undisturbed_loop_s=None)
PLANNED = PlannedCase(case=CASE, spec=SPEC, agent="one")


def scripted(path: Path, *answers: protocol.Answer | str, end: str = "cat > /dev/null") -> str:
    """An interpreter that answers so, whatever it is asked, then waits until its standard input is closed."""
    lines = [answer if isinstance(answer, str) else to_json(answer).decode() for answer in answers]
    (path / "answers").write_text("".join(f"{line}\n" for line in lines))
    script = path / "python"
    script.write_text(f"#!/bin/sh\ncat {path / 'answers'}\n{end}\n")
    script.chmod(0o755)
    return str(script)


def test_what_workers_say_while_an_answer_is_awaited_is_not_lost(tmp_path: Path) -> None:
    sent = (Stage.BUILD, measured(), Exited(-9))
    said = [protocol.Said(ticket=3, message=message) for message in sent]
    begun = protocol.Begun(undisturbed_loop_s=0.5)
    python = scripted(tmp_path, *said[:2], begun, *said[2:])
    with AgentProcess("one", python, {}) as agent, AgentWorkers({"one": agent}) as workers:
        assert agent.ask(BEGIN, protocol.Begun) == begun
        came = []
        while len(came) < len(said):
            came += workers.wait(10)
        assert came == [(one.ticket, one.message) for one in said]


@pytest.mark.parametrize(
    ("answers", "end", "message"),
    [
        ([protocol.Refused(message="torch can't be used here: no libfoo")], "cat", "one: torch can't be used here"),
        (["Fatal: [1, 2"], "cat > /dev/null", "one: its agent can't be understood"),
        ([], "exit 3", "one: its agent ended with status 3"),
        ([], "kill -9 $$", "one: its agent ended by signal 9"),
    ],
    ids=["refused", "garbage", "exited", "killed"],
)
def test_an_agent_that_can_not_answer_is_one_line(
    tmp_path: Path, answers: list[protocol.Answer | str], end: str, message: str
) -> None:
    python = scripted(tmp_path, *answers, end=end)
    with AgentProcess("one", python, {}) as agent, pytest.raises(AgentError) as error:
        agent.ask(PREPARE, protocol.Prepared)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_an_agent_that_ends_while_its_workers_run_is_an_error_and_their_end_is_quiet(tmp_path: Path) -> None:
    python = scripted(tmp_path, end="sleep 0.3; exit 1")
    with AgentProcess("one", python, {}) as agent, AgentWorkers({"one": agent}) as workers:
        workers.start(1, PLANNED, Lane(device="cpu"), tmp_path / "log")
        with pytest.raises(AgentError, match="ended with status 1"):
            workers.wait(10)


def test_a_python_that_is_not_there_is_one_line() -> None:
    with pytest.raises(AgentError) as error, AgentProcess("one", "/no/python", {}):
        pass
    assert str(error.value) == "one: can't start /no/python: No such file or directory"


def test_a_process_of_another_agent_on_the_same_device_is_not_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of an A/B asks, while a worker of the other side has the device open."""
    python = scripted(tmp_path)
    with AgentProcess("one", python, {}) as one, AgentProcess("two", python, {}) as two:
        for name, value in psutil.Process(one.pid).environ().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(os, "getppid", lambda: one.pid)  # that agent's fork server
        on_device = [one.pid, two.pid, 1]
        assert foreign_processes(on_device, own=one.pid, ancestor=run_ancestor()) == 1


@pytest.fixture
def real() -> Iterator[AgentProcess]:
    """A real agent of this environment, without workers yet."""
    with AgentProcess("one", sys.executable, {"PYTHONPATH": str(ROOT)}) as agent:
        yield agent


@pytest.mark.xdist_group("run")
def test_a_real_agent_prepares_runs_and_stops_workers_and_leaves_none(real: AgentProcess, tmp_path: Path) -> None:
    spec = read_spec(make_waiting(tmp_path, "waits", tmp_path / "flag"))
    waits = PlannedCase(case=msgspec.structs.replace(CASE, model="waits", batch_size=2), spec=spec, agent="one")
    prepared = real.ask(PREPARE, protocol.Prepared)
    assert prepared.machine.devices["cpu"] == 1
    assert prepared.machine.environment.torch
    lane = Lane(device="cpu")
    real.ask(protocol.Begin(settings=Settings(), lanes=(lane,), undisturbed_loop_s=None), protocol.Begun)
    process = psutil.Process(real.pid)
    with AgentWorkers({"one": real}) as workers:
        workers.start(7, waits, lane, tmp_path / "log")
        came = []
        while Stage.BUILD not in [message for _, message in came]:
            came += workers.wait(30)
        assert {ticket for ticket, _ in came} == {7}
        workers.pause(7)
        until(lambda: stopped(process))
        workers.resume(7)
        until(lambda: not stopped(process))
        workers.kill(7)
        below = process.children(recursive=True)
        os.kill(real.pid, signal.SIGKILL)
        with pytest.raises(AgentError, match="by signal 9"):
            workers.wait(30)
    _, alive = psutil.wait_procs(below, timeout=20)
    assert alive == []


def stopped(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children(recursive=True) if child.status() == psutil.STATUS_STOPPED]


def test_an_agent_that_is_sent_garbage_refuses() -> None:
    reader, writer = os.pipe()
    answers: list[protocol.Answer] = []
    os.write(writer, b"nonsense\n")
    os.close(writer)
    protocol.Agent(reader, answers.append).serve()
    os.close(reader)
    (refused,) = answers
    assert isinstance(refused, protocol.Refused)
    assert "no message" in refused.message
