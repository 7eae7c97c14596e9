"""The process that workers are forked from. It has torch and the models' libraries loaded."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import msgspec
import psutil

import torchzoo
from torchzoo.errors import TorchzooError
from torchzoo.machine.facts import MachineInfo
from torchzoo.machine.limits import this_thread_on, usable_cores
from torchzoo.record import MeasuredPeaks
from torchzoo.run import bus, reaper, worker
from torchzoo.run.interrupts import Interrupts, sigint_blocked
from torchzoo.run.lanes import Lane

#: A library that is not imported in this time is left to the workers of its models.
IMPORT_LIMIT_S = 120.0
#: How often the server and the reaper are looked at: one that someone has stopped goes on.
LOOK_S = 2.0
#: A socket's path has at most 107 characters, of which multiprocessing adds some 32.
LONGEST_TMPDIR = 70
#: What multiprocessing raises where someone has killed the server, or kills it meanwhile.
SERVER_GONE = (EOFError, ConnectionError, FileNotFoundError)
#: In place of the id of a server that has ended.
NO_SERVER = 0
#: How often a process is started, if it or the server is killed each time.
STARTS = 3


class TorchUnusable(TorchzooError):
    """Torch can't be imported in a worker; the message says why."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the report that `torchzoo.run.preload` writes: a library is about to be imported, or has been."""

    library: str
    is_over: bool = False
    changed: tuple[str, ...] = ()  # what its import changed for everything that runs after it, and can't be put back


class ForkServer:
    """A process that has loaded torch and libraries. A worker forked from it starts in a fraction of a second.

    Each library is proved harmless while the server loads it. Settings that it changes are put back. If it ends the
    server, takes too long, replaces a function of PyTorch, uses a device, or changes a thread, a file or a process that
    others would inherit, the server is started anew without it, and the workers of its models import it themselves.

    The server never touches a device. PyTorch initialises CUDA when it counts devices, and then no forked child can use
    CUDA; `PYTORCH_NVML_BASED_CUDA_CHECK` prevents that. On a platform without forkserver, workers are spawned and
    import what they need themselves.

    The server and its processes may use `cores`: all that this process could use when the `ForkServer` was made. The
    runner keeps to one of them meanwhile, and torch in the server sets its number of threads by them.

    Args:
        preload: what the server imports beside torch, in the form that `torchzoo.run.preload` takes.
        import_limit_s: how long one of them may take.
    """

    def __init__(self, preload: Sequence[str], import_limit_s: float = IMPORT_LIMIT_S) -> None:
        self._can_fork = "forkserver" in multiprocessing.get_all_start_methods()
        self.context: Any = multiprocessing.get_context("forkserver" if self._can_fork else "spawn")
        self.import_limit_s = min(import_limit_s, IMPORT_LIMIT_S)
        self.preload = tuple(preload)
        self.cores = usable_cores()
        self.refused: dict[str, str] = {}  # what it does not load, and why

    def ensure_running(self) -> None:
        """Start the server if it does not run. Ctrl-C does not reach it before it ignores it. The reaper knows it."""
        if self._can_fork:
            with sigint_blocked(), this_thread_on(self.cores):
                forkserver.ensure_running()
            if (pid := _server()) is not None:
                keep_alive(pid)

    def renew(self) -> None:
        """End the server; no process of it may be alive. The next one draws its places in memory anew.

        A fork keeps them, so processes of one server are not independent (docs/how_it_measures.md has figures).
        """
        _end_server()

    def machine_info(self) -> MachineInfo:
        """Start the server, and ask one of its processes what the machine has.

        Raises:
            TorchUnusable: torch itself can't be imported, or the server has no place for its socket.
        """
        if self._can_fork and len(tempfile.gettempdir()) > LONGEST_TMPDIR:
            raise TorchUnusable(
                f"the path of the folder for temporary files is too long for a socket: set TMPDIR to one of at most "
                f"{LONGEST_TMPDIR} characters"
            )
        attempts_left = 2  # where no library is to blame: somebody killed the server
        while True:
            answer, culprit = self._start()
            if isinstance(answer, MachineInfo) and culprit is None:
                # libgomp may have bound the server to one core
                seen = msgspec.structs.replace(answer.environment, cpu_usable=len(self.cores))
                return msgspec.structs.replace(answer, environment=seen)
            if culprit is not None:
                name, reason = culprit
                self.refused[name] = reason
                self.preload = tuple(library for library in self.preload if not _is_in(library, name))
            elif isinstance(answer, str):
                raise TorchUnusable(answer)
            elif (attempts_left := attempts_left - 1) == 0:
                raise TorchUnusable(f"importing torch ends the process: see {sys.executable} -c 'import torch'")
            _end_server()

    def measured_peaks(self, device: str) -> tuple[str, int | None, MeasuredPeaks]:
        """Measure what matrix products and copies reach on `device`, in a process of the server.

        `machine_info` must have been called before: it starts the server.

        Returns:
            The device's name, its number of threads (of a CPU), and its measured peaks.

        Raises:
            TorchUnusable: the device can't be used, or the process died.
        """
        found: tuple[str, int | None, MeasuredPeaks] | str = self.told(worker.tell_measured_peaks, device)
        if isinstance(found, str):
            raise TorchUnusable(found)
        return found

    def bus_peaks(self, devices: Sequence[str]) -> dict[str, float]:
        """Measure the bus bandwidth between the devices in GB/s, by collective, in processes of the server.

        `machine_info` must have been called before.

        Raises:
            TorchUnusable: a device can't be used, or a process died.
        """
        found: dict[str, float] | str = self.told(bus.tell_bus_peaks, tuple(devices))
        if isinstance(found, str):
            raise TorchUnusable(found)
        return found

    def host_speed(self, lanes: Sequence[Lane]) -> float:
        """How long the host's loop of plain Python takes on the lanes' cores while nothing else runs, in seconds.

        `machine_info` must have been called before. Nothing of the run may be running.
        """
        all_cores = {lane.cores or self.cores for lane in lanes}
        return min(float(self.told(worker.tell_host_speed, cores)) for cores in all_cores)

    def told(self, tell: Callable[..., None], argument: Any) -> Any:
        """What a process of the server sends that runs `tell(connection, argument)`.

        Raises:
            TorchUnusable: the process died, again and again.
        """
        for _ in range(STARTS):
            with contextlib.suppress(*SERVER_GONE):
                return self._told_once(tell, argument)
            time.sleep(0.2)  # until the server, if it is gone, can be seen to have ended
        raise TorchUnusable(
            f"the process for {tell.__name__} {argument} died {STARTS} times; what it printed is on standard error"
        )

    def _told_once(self, tell: Callable[..., None], *arguments: Any) -> Any:
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=tell, args=(sender, *arguments), daemon=True)  # ended with this one
        self.ensure_running()
        with without_main():
            process.start()
        sender.close()
        while not receiver.poll(LOOK_S):
            wake(process.pid)
        told = receiver.recv()
        while process.is_alive():
            process.join(LOOK_S)
            wake(process.pid)
        return told

    def _start(self) -> tuple[MachineInfo | str | None, tuple[str, str] | None]:
        """What the machine has, why torch can't be used, or None if the server or its process died.

        With it the library that must not be loaded, and the reason; None: there is none.
        """
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
        os.environ[worker.PRELOAD_VARIABLE] = ",".join(self.preload)
        root = str(Path(torchzoo.__file__).resolve().parent.parent)
        if root not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        if self._can_fork:
            self.context.set_forkserver_preload(["torchzoo.run.preload"])
        with tempfile.NamedTemporaryFile(prefix="torchzoo-preload-") as report:
            os.environ[worker.REPORT_VARIABLE] = report.name
            is_late = threading.Event()
            with _guarded(Path(report.name), self.import_limit_s, is_late):
                answer = self._ask()
            return answer, _culprit(Path(report.name), is_late=is_late.is_set())

    def _ask(self) -> MachineInfo | str | None:
        try:
            machine: MachineInfo | str = self._told_once(worker.tell_machine_info)
        except SERVER_GONE:
            return None
        except KeyboardInterrupt:
            with Interrupts():  # a second one, too
                _end_server()
            raise
        return machine


def _is_in(library: str, other: str) -> bool:
    """Whether `a.b:c` is `other`, or is in it: in `a` or `a.b`."""
    return library == other or library.startswith((f"{other}.", f"{other}:"))


def _culprit(report: Path, *, is_late: bool) -> tuple[str, str] | None:
    """The library that changed something, or in whose import the server ended."""
    lines = [msgspec.json.decode(line, type=Loaded) for line in report.read_bytes().splitlines()]
    for line in lines:
        if line.changed:
            return line.library, f"its import changes {', '.join(line.changed)}"
    if lines and not lines[-1].is_over:
        return lines[-1].library, "its import takes too long" if is_late else "its import ends the process"
    return None


@contextlib.contextmanager
def _guarded(report: Path, limit_s: float, is_late: threading.Event) -> Iterator[None]:
    """Kill the server if a library that it has begun to import is not there `limit_s` later."""
    is_over = threading.Event()

    def watch() -> None:
        seen, since_s = 0, time.monotonic()
        while not is_over.wait(0.2):
            size = report.stat().st_size
            if size != seen or not size:
                seen, since_s = size, time.monotonic()
            elif time.monotonic() - since_s > limit_s and _culprit(report, is_late=True) is not None:
                is_late.set()
                _end_server()
                return

    thread = threading.Thread(target=watch, daemon=True, name="torchzoo-import-guard")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _server() -> int | None:
    """The id of the fork server, also of one that is ending: multiprocessing tells it nowhere else."""
    pid: int | None = getattr(forkserver._forkserver, "_forkserver_pid", None)
    return pid


def _end_server() -> None:
    """Kill the fork server if there is one, and return when it has ended, so that the next use starts another.

    It would end with this process, but only after it has imported all libraries. One that is ending by itself can still
    take a connection, so multiprocessing must not be asked for a process before it is gone.
    """
    server = _server()
    if server is None:
        return
    reaper.kill_all(server)
    with contextlib.suppress(FileNotFoundError):  # its socket, in a folder that someone has deleted
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
    REAPER.serve(NO_SERVER)


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """A process that is started inside does not run the caller's script.

    Multiprocessing would do so to find what was pickled from there. Torchzoo pickles nothing from there, and the script
    may call `torchzoo.run` in its first line.
    """
    names: dict[str, Any] = vars(sys.modules["__main__"])
    kept: dict[str, Any] = {name: names[name] for name in ("__spec__", "__file__") if name in names}
    names.update(dict.fromkeys(kept))
    try:
        yield
    finally:
        names.update(kept)


@contextlib.contextmanager
def server_ended() -> Iterator[None]:
    """A fork server that is started inside ends here. Multiprocessing would keep it, with all that it has loaded."""
    had_one = _server() is not None
    try:
        yield
    finally:
        if not had_one:
            with Interrupts():
                _end_server()


# --- the reaper, and who keeps the helpers awake ---


class Reaper:
    """The process of `torchzoo.run.reaper`, started when it is first told something, and anew if someone killed it."""

    def __init__(self) -> None:
        self.server: int | None = None
        self._alive: dict[int, str] = {}  # workers, and their scratch folders
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.RLock()  # the runner tells, and a thread looks after it

    def serve(self, server: int) -> None:
        """All processes of the runs descend from this one now."""
        if server != self.server:
            self.server = server
            self._tell(f"server {server}")

    def started(self, pid: int, scratch: str) -> None:
        with self._lock:
            self._alive[pid] = scratch
        self._tell(f"+ {pid} {scratch}")

    def ended(self, pid: int) -> None:
        with self._lock:
            self._alive.pop(pid, None)
        self._tell(f"- {pid}")

    def wake(self) -> None:
        """Let the server and the reaper go on if someone stopped them; start the reaper anew if someone killed it."""
        reaper_pid = self._process.pid if self._process is not None else None
        for pid in filter(None, (self.server, reaper_pid)):
            wake(pid)
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                self._start()

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.write(line + "\n")
                    self._process.stdin.flush()
                    return
            self._start()

    def _start(self) -> None:
        """Start a reaper, and tell it all that is known."""
        self._process = subprocess.Popen(  # noqa: S603  our own interpreter and file
            [sys.executable, "-I", reaper.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        known = [f"server {self.server}"] if self.server else []
        known += [f"+ {pid} {scratch}" for pid, scratch in self._alive.items()]
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("".join(f"{line}\n" for line in known))
            self._process.stdin.flush()


def wake(pid: int) -> None:
    """Let the process go on if someone stopped it."""
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
            os.kill(pid, signal.SIGCONT)


REAPER = Reaper()


def keep_alive(server: int) -> None:
    """Tell the reaper of the server, and let neither of them stay stopped."""
    is_first = REAPER.server is None
    REAPER.serve(server)
    if is_first:
        threading.Thread(target=_keep_awake, daemon=True, name="torchzoo-helpers").start()
        atexit.register(REAPER.wake)


def _keep_awake() -> None:
    while True:
        time.sleep(LOOK_S)
        REAPER.wake()
