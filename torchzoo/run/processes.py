"""The real worker processes. They are forked from a server that has torch and the models' libraries loaded."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import psutil

import torchzoo
from torchzoo.case import Settings
from torchzoo.environment import MachineInfo, pin, usable_cores
from torchzoo.errors import TorchzooError
from torchzoo.record import MeasuredPeaks
from torchzoo.run import reaper, worker
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import PlannedCase
from torchzoo.run.workers import Exited, Message


class TorchUnusable(TorchzooError):
    """Torch can't be imported in a worker; the message says why."""


@dataclass
class _Process:
    process: Any
    connection: Connection
    scratch: str
    is_open: bool = True


class ForkServer:
    """A process that has loaded torch and libraries. A worker forked from it starts in a fraction of a second.

    The server never touches a device. PyTorch initialises CUDA when it counts devices, and then no forked child can use
    CUDA; `PYTORCH_NVML_BASED_CUDA_CHECK` prevents that. On a platform without forkserver, workers are spawned and
    import what they need themselves.

    Args:
        preload: what the server imports beside torch, in the form that `torchzoo.run.preload` takes.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self._can_fork = "forkserver" in multiprocessing.get_all_start_methods()
        self.context: Any = multiprocessing.get_context("forkserver" if self._can_fork else "spawn")
        self._preload = preload

    def machine_info(self) -> MachineInfo:
        """Start the server, and ask one of its processes what the machine has.

        Raises:
            TorchUnusable: torch itself can't be imported.
        """
        machine = self._ask(self._preload)
        if machine is None and self._preload:  # a library ended the server: try without libraries
            time.sleep(1)  # until multiprocessing notices that the server is gone
            machine = self._ask(())
        if machine is None:
            raise TorchUnusable("the process that imports torch died; see above")
        if isinstance(machine, str):
            raise TorchUnusable(machine)
        return machine

    def measured_peaks(self, device: str) -> tuple[str, int | None, MeasuredPeaks]:
        """Measure what matrix products and copies reach on `device`, in a process of the server.

        `machine_info` must have been called before: it starts the server.

        Returns:
            The device's name, its number of threads (of a CPU), and its measured peaks.

        Raises:
            TorchUnusable: the device can't be used, or the process died.
        """
        found: tuple[str, int | None, MeasuredPeaks] | str = self._told(worker.tell_measured_peaks, device)
        if isinstance(found, str):
            raise TorchUnusable(found)
        return found

    def host_speed(self, lanes: Sequence[Lane]) -> float:
        """How long the host's loop of plain Python takes on the lanes' cores while nothing else runs, in seconds.

        `machine_info` must have been called before. Nothing of the run may be running.
        """
        return min(float(self._told(worker.tell_host_speed, cores)) for cores in {lane.cores for lane in lanes})

    def _told(self, tell: Callable[..., None], argument: Any) -> Any:
        """What a process of the server sends that runs `tell(connection, argument)`."""
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=tell, args=(sender, argument), daemon=True)
        process.start()
        sender.close()
        try:
            told = receiver.recv()
        except EOFError as error:
            raise TorchUnusable(f"the process for {tell.__name__} {argument} died; see above") from error
        process.join()
        return told

    def _ask(self, preload: Sequence[str]) -> MachineInfo | str | None:
        """What the machine has, or why torch can't be used. None if the server or its process died."""
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        os.environ[worker.PRELOAD_VARIABLE] = ",".join(preload)
        root = str(Path(torchzoo.__file__).resolve().parent.parent)
        if root not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        if self._can_fork:
            self.context.set_forkserver_preload(["torchzoo.run.preload"])
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(
            target=worker.tell_machine_info, args=(sender,), daemon=True
        )  # ended with this one
        try:
            process.start()
            sender.close()
            machine: MachineInfo | str = receiver.recv()
            process.join()
        except (EOFError, ConnectionError):
            return None
        except KeyboardInterrupt:
            with _Interrupts():  # a second one, too
                _kill_server()
            raise
        return machine


def _kill_server() -> None:
    """Kill the fork server. It would end with this process, but only after it has imported all libraries."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "multiprocessing.forkserver" in " ".join(child.cmdline()):
                child.kill()


class ForkedWorkers:
    """The processes of a run, each forked from `server`. Use as a context: on leaving, nothing is left.

    Within it, SIGINT and SIGTERM are raised as `KeyboardInterrupt` by `wait` only: in the middle of starting or killing
    a worker they would leave one that nobody knows of, and that multiprocessing waits for at exit, for ever.

    Args:
        server: where the processes come from.
        settings: of the run.
        own_cores: the cores that this process keeps to within the context; None: it may use all.
        undisturbed_loop_s: what `ForkServer.host_speed` found.
    """

    def __init__(
        self,
        server: ForkServer,
        settings: Settings,
        *,
        own_cores: tuple[int, ...] | None = None,
        undisturbed_loop_s: float | None = None,
    ) -> None:
        self._context = server.context
        self._settings = settings
        self._own_cores = own_cores
        self._all_cores = usable_cores()
        self._undisturbed_loop_s = undisturbed_loop_s
        self._processes: dict[int, _Process] = {}
        self._reaper: subprocess.Popen[str] | None = None
        self._interrupts = _Interrupts()

    def start(self, ticket: int, planned: PlannedCase, lane: Lane, log: Path) -> None:
        assert planned.spec is not None
        scratch = tempfile.mkdtemp(prefix="torchzoo-scratch-")
        request = worker.Request(
            case=planned.case,
            spec=planned.spec,
            settings=self._settings,
            lane=lane,
            undisturbed_loop_s=self._undisturbed_loop_s,
            log=str(log),
            scratch=scratch,
        )
        ours, theirs = self._context.Pipe(duplex=True)
        process = self._context.Process(target=worker.work, args=(request, theirs))
        process.start()
        theirs.close()
        self._processes[ticket] = _Process(process, ours, scratch)
        self._tell_reaper(f"+ {process.pid} {scratch}")

    def _tell_reaper(self, line: str) -> None:
        if self._reaper is None:
            self._reaper = subprocess.Popen(  # noqa: S603  our own interpreter and file
                [sys.executable, "-I", reaper.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        assert self._reaper.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # someone killed it: the workers still watch for themselves
            self._reaper.stdin.write(line + "\n")
            self._reaper.stdin.flush()

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        """See `torchzoo.run.scheduler.Workers`. All messages of a worker are read before its end is reported.

        Raises:
            KeyboardInterrupt: SIGINT or SIGTERM came, during this call or since the last one.
        """
        waited: dict[Any, int] = {}
        for ticket, started in self._processes.items():
            waited[started.connection if started.is_open else started.process.sentinel] = ticket
        messages: list[tuple[int, Message]] = []
        ready_ones = wait([*waited, self._interrupts.noted], timeout_s)
        if self._interrupts.noted in ready_ones:
            raise KeyboardInterrupt
        for ready in ready_ones:
            started = self._processes[waited[ready]]
            if started.is_open:
                try:
                    messages.append((waited[ready], started.connection.recv()))
                except (EOFError, OSError):  # closed: the process is ending
                    started.is_open = False
            else:
                started.process.join()
                code = started.process.exitcode
                messages.append((waited[ready], Exited(-signal.SIGKILL if code is None else code)))
        return messages

    def open_window(self, ticket: int) -> None:
        with contextlib.suppress(OSError):  # the worker has just ended: `wait` will report that
            self._processes[ticket].connection.send(worker.GO)

    def pause(self, ticket: int) -> None:
        self._signal(ticket, signal.SIGSTOP)

    def resume(self, ticket: int) -> None:
        self._signal(ticket, signal.SIGCONT)

    def kill(self, ticket: int) -> None:
        if ticket not in self._processes:  # `start` failed: there was no space, or no process
            return
        self._signal(ticket, signal.SIGKILL)
        started = self._processes.pop(ticket)
        started.process.kill()  # in case it has not made its process group yet
        started.process.join()
        started.connection.close()
        shutil.rmtree(started.scratch, ignore_errors=True)
        self._tell_reaper(f"- {started.process.pid}")

    def _signal(self, ticket: int, number: signal.Signals) -> None:
        """Signal the worker and its process group, which also holds the compilers' processes."""
        reaper.kill_tree(self._processes[ticket].process.pid, number)

    def host_available_bytes(self) -> int:
        return psutil.virtual_memory().available

    def __enter__(self) -> ForkedWorkers:
        self._interrupts.__enter__()
        if self._own_cores is not None:
            pin(self._own_cores)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for ticket in list(self._processes):
            self.kill(ticket)
        if self._reaper is not None:
            with contextlib.suppress(BrokenPipeError):
                self._reaper.communicate()
            self._reaper = None
        if self._own_cores is not None:
            pin(self._all_cores)
        self._interrupts.__exit__()
        if self._interrupts.came and kind is None:
            raise KeyboardInterrupt


class _Interrupts:
    """SIGINT and SIGTERM do not raise inside this context. From then on, there is something to read from `noted`."""

    def __init__(self) -> None:
        self.noted, self._note = multiprocessing.Pipe(duplex=False)
        self._before: dict[signal.Signals, Any] = {}

    @property
    def came(self) -> bool:
        return self.noted.poll()

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        if not self.came:  # one byte is enough, and a full pipe would block
            self._note.send_bytes(b"")

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: workers are killed, records are kept, temporary folders are removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
