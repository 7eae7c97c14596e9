"""Worker processes at bad moments: whatever interrupts the runner, no process and no folder is left."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from examples import CASE, ROOT, SPEC, measured
from torchzoo.machine.limits import usable_cores
from torchzoo.record import Failed, FailureKind, Record
from torchzoo.run import processes
from torchzoo.run.fork_server import TorchUnusable
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.lanes import Lane
from torchzoo.run.messages import encode
from torchzoo.run.plan import PlannedCase
from torchzoo.run.processes import ForkedWorkers
from torchzoo.run.scheduler import Scheduler
from torchzoo.run.worker import import_error
from torchzoo.settings import Settings, Stage, StageLimits
from user_models import TINY, make_folder


class FakeProcess:
    """Stands for multiprocessing's: `sleep` behind it, and signals to this process at the moments named."""

    moments: tuple[str, ...] = ()

    def __init__(self, target: Any, args: Any) -> None:
        self.ours = os.dup(args[1].fileno())  # as the real child has it

    def start(self) -> None:
        self.process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.pid = self.process.pid
        self.sentinel = os.pidfd_open(self.pid)
        self._interrupt("start")

    def kill(self) -> None:
        self._interrupt("kill")
        self.process.kill()

    def join(self) -> None:
        self._interrupt("join")
        self.process.wait()
        os.close(self.ours)
        os.close(self.sentinel)

    def _interrupt(self, moment: str) -> None:
        if moment in self.moments:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tz-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def run_one_case(process: Callable[..., Any], scratch: Path, settings: Settings = Settings()) -> list[Record]:  # noqa: B008  it is frozen
    """A run of one case whose worker is `process`."""
    context = SimpleNamespace(Pipe=multiprocessing.Pipe, Process=process)
    server = SimpleNamespace(context=context, ensure_running=lambda: None, cores=usable_cores())
    with ForkedWorkers(server, settings) as workers:  # type: ignore[arg-type]
        scheduler = Scheduler(workers, [Lane(device="cpu")], settings, log_path=lambda _: scratch / "log")
        return list(scheduler.run((PlannedCase(case=CASE, spec=SPEC),)))


@pytest.mark.parametrize("moments", [("start",), ("start", "kill"), ("start", "kill", "join")], ids="+".join)
def test_an_interrupt_while_a_worker_starts_or_is_killed_leaves_nothing(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, moments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(FakeProcess, "moments", moments)
    started: list[FakeProcess] = []

    def process(**arguments: Any) -> FakeProcess:
        started.append(FakeProcess(**arguments))
        return started[-1]

    with pytest.raises(KeyboardInterrupt):
        run_one_case(process, scratch)
    assert [fake.process.poll() for fake in started] == [-signal.SIGKILL]
    assert list(scratch.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_after_the_last_wait_is_not_lost() -> None:
    workers = ForkedWorkers(SimpleNamespace(context=None, ensure_running=None), Settings())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt), workers:
        os.kill(os.getpid(), signal.SIGTERM)


def test_any_number_of_interrupts_fits_in() -> None:
    interrupts = Interrupts()
    with interrupts:
        for _ in range(100_000):
            interrupts._on_signal()
    assert interrupts.came


def test_a_worker_that_could_not_be_started_does_not_hide_why(scratch: Path) -> None:
    def process(**_: Any) -> Any:
        raise OSError("no process to be had")

    with pytest.raises(OSError, match="no process to be had"):
        run_one_case(process, scratch)


class Refusing(FakeProcess):
    """The server is killed while it starts the first workers."""

    times = 0

    def start(self) -> None:
        type(self).times -= 1
        if self.times >= 0:
            os.close(self.ours)
            raise EOFError("unexpected EOF")
        super().start()


def test_a_worker_is_started_again_if_the_server_is_killed_meanwhile(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Refusing, "times", processes.STARTS - 1)
    monkeypatch.setattr(Refusing, "moments", ("start",))  # it has started: that is enough
    with pytest.raises(KeyboardInterrupt):
        run_one_case(Refusing, scratch)
    assert Refusing.times == -1
    monkeypatch.setattr(Refusing, "times", processes.STARTS)
    with pytest.raises(TorchUnusable, match="was killed 3 times"):
        run_one_case(Refusing, scratch)
    assert list(scratch.iterdir()) == []


SLEEPS_WITH_THE_LOCK = """
import ctypes, faulthandler, os, signal, sys
faulthandler.register(signal.SIGUSR2)
connection, outcome = int(sys.argv[1]), sys.argv[2].encode()
os.write(connection, b'"measure"\\n')
ctypes.PyDLL(None).usleep(600_000_000)  # a signal ends it early, and no other thread of Python runs meanwhile
os.write(connection, outcome)
"""


def test_a_case_that_the_signal_for_its_stacks_wakes_is_a_timeout(scratch: Path) -> None:
    class Sleeping(FakeProcess):
        def start(self) -> None:
            words = [sys.executable, "-c", SLEEPS_WITH_THE_LOCK, str(self.ours), encode(measured()).decode()]
            self.process = subprocess.Popen(
                words, stderr=(scratch / "log").open("w"), pass_fds=[self.ours], start_new_session=True
            )
            self.pid = self.process.pid
            self.sentinel = os.pidfd_open(self.pid)
            os.close(self.ours)

        def join(self) -> None:  # where it ends by itself, its end is noted before it is killed
            self.exitcode = self.process.wait()

    settings = Settings(limits=StageLimits(build_s=60, compile_s=60, measure_s=0.3))
    (record,) = run_one_case(Sleeping, scratch, settings)
    assert isinstance(record.outcome, Failed)
    assert (record.outcome.kind, record.outcome.stage) == (FailureKind.TIMEOUT, Stage.MEASURE)
    assert "Current thread" in record.outcome.traceback


@pytest.mark.parametrize(("number", "whole_terminal"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_an_interrupt_while_libraries_are_imported_ends_all_at_once(
    tmp_path: Path, temporary: Path, *, number: signal.Signals, whole_terminal: bool
) -> None:
    """The fork server is in an import that takes for ever; Ctrl-C reaches it too, `kill` only its runner."""
    flag = tmp_path / "flag"
    (tmp_path / "slowlibrary.py").write_text(f"import time\nopen({str(flag)!r}, 'w').close()\ntime.sleep(600)\n")
    make_folder(tmp_path / "zoo", "tiny", code="import slowlibrary\n" + TINY)
    command = [sys.executable, str(ROOT / "run.py"), "tiny", "--models-dir", str(tmp_path / "zoo"), "-d", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(temporary)}
    runner = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not flag.exists():
        assert runner.poll() is None, runner.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = psutil.Process(runner.pid).children(recursive=True)
    if whole_terminal and number is signal.SIGINT:
        os.killpg(runner.pid, number)
    else:
        os.kill(runner.pid, number)
    output = runner.communicate(timeout=60)
    assert (runner.returncode, *output) == (130, "", "torchzoo: interrupted\n")
    assert psutil.wait_procs(children, timeout=20)[1] == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith("torchzoo-")] == []


def test_why_a_module_cannot_be_imported_is_asked_of_a_new_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "breaks.py").write_text("raise ImportError('no libfoo')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert import_error("breaks") == "ImportError: no libfoo"
    assert not import_error("json")
