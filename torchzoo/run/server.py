"""The process that starts workers: it loads torch and the models' libraries once, and forks each worker.

    PYTHON -P -c "from torchzoo.run.server import main; main()"

The server runs in the Python of the environment that is measured. Requests of the runner come on standard input, a line
of JSON each, and answers go to standard output (`torchzoo.run.protocol`). What libraries print goes to standard error.

A process can also be fresh: a new interpreter, for which nothing is loaded (`torchzoo.run.fresh`). A server whose
processes are all fresh never imports torch.

The server passes on what its processes say, and waits for them, so that the runner learns each exit code. When standard
input ends, the runner is gone, in whatever way: then the server kills all that it has started, removes the scratch
folders, and ends. It never uses a device: a fork of a process that has used CUDA can't use it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

import msgspec
import psutil

from torchzoo.errors import attempt, one_line
from torchzoo.files import to_json
from torchzoo.run import protocol
from torchzoo.run.failures import STACKS_SIGNAL
from torchzoo.run.lines import Garbled, LineReader, function_named
from torchzoo.run.process_tree import (
    adopt_orphans,
    children,
    descendants,
    end_with_parent,
    kill_all,
    kill_each,
    kill_tree,
)
from torchzoo.run.ranks import RANK_NAME

#: A process that was told to write its stack has so long until the next one is told.
STACK_S = 0.1


@dataclass
class _Process:
    ticket: int
    pid: int
    channel: socket.socket
    reader: LineReader[msgspec.Raw]
    scratch: str
    has_ended: bool = False


class Server:
    """Carries out requests.

    Args:
        requests: the file descriptor that requests come from.
        answers: the file descriptor for answers.
    """

    def __init__(self, requests: int, answers: int) -> None:
        self._requests = LineReader(requests, protocol.requests)
        self._answers = answers
        self._unsent = bytearray()
        self._processes: dict[int, _Process] = {}  # by ticket
        self._child_ended, self._wake_up = socket.socketpair()
        self._child_ended.setblocking(False)  # noqa: FBT003
        self._wake_up.setblocking(False)  # noqa: FBT003
        signal.set_wakeup_fd(self._wake_up.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the wake-up alone counts
        self._selector = selectors.DefaultSelector()
        self._selector.register(requests, selectors.EVENT_READ, self._carry_out_all)
        self._selector.register(self._child_ended, selectors.EVENT_READ, self._reap)

    def serve(self) -> None:
        """Serve until the runner is gone, then leave nothing behind."""
        with contextlib.suppress(BrokenPipeError):
            while self._requests.is_open:
                for key, _ in self._selector.select():
                    key.data()
        for process in self._processes.values():
            self._end(process)
        kill_each(descendants(os.getpid()))
        for process in self._processes.values():
            shutil.rmtree(process.scratch, ignore_errors=True)

    # --- requests ---

    def _carry_out_all(self) -> None:
        for request in self._requests.read():
            try:
                self._carry_out(request)
            except BrokenPipeError:
                raise
            except OSError as error:  # there is no process or no file to be had
                self._answer(protocol.Refused(message=one_line(error)))

    def _carry_out(self, request: protocol.Request | Garbled) -> None:
        match request:
            case Garbled():
                self._answer(protocol.Refused(message=request.what))
            case protocol.Load():
                self._load(request)
            case protocol.Start():
                self._start(request)
            case protocol.Proceed():
                with contextlib.suppress(OSError):  # the process has just ended
                    self._processes[request.ticket].channel.send(to_json(request) + b"\n")
            case protocol.Pause():
                self._signal(request.ticket, signal.SIGSTOP)
                self._answer(protocol.Done())
            case protocol.Resume():
                self._signal(request.ticket, signal.SIGCONT)
            case protocol.WriteStacks():
                with contextlib.suppress(psutil.Error, OSError):  # the process has just ended, or there is no log
                    self._write_stacks(self._processes[request.ticket].pid, Path(request.log))
            case protocol.Kill():
                self._kill(request.ticket)
                self._answer(protocol.Done())

    def _load(self, request: protocol.Load) -> None:
        sys.path[:] = request.paths or sys.path
        end_with_parent()  # during an import, the server does not see that the runner is gone
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else counting devices initialises CUDA
        self._answer(protocol.Loading(library="torch"))
        preload = attempt(partial(import_module, "torchzoo.run.preload"))
        if isinstance(preload, Exception):
            why = f"{type(preload).__name__}: {one_line(preload)}"
            self._answer(protocol.Refused(message=f"torch can't be used here: {why}"))
            return
        self._answer(protocol.Loaded(library="torch"))
        if preload.load(request.libraries, self._answer):
            end_with_parent(ends=False)
            self._answer(protocol.Ready())

    def _start(self, request: protocol.Start) -> None:
        ours, theirs = socket.socketpair()
        pid = _spawn(request, theirs) if request.fresh_log else os.fork()
        if not pid:
            _live(request, theirs, ours, self._close_all)
        theirs.close()
        if request.fresh_log:
            with contextlib.suppress(OSError):  # the process has ended before it read its argument
                ours.sendall(bytes(request.argument) + b"\n")
        process = _Process(request.ticket, pid, ours, LineReader(ours.fileno(), protocol.any_line), request.scratch)
        self._processes[request.ticket] = process
        self._selector.register(ours, selectors.EVENT_READ, partial(self._pass_on, process))
        self._answer(protocol.Started(ticket=request.ticket, pid=pid))

    def _close_all(self) -> None:
        """Close in a new process what is the server's. Each process must see when the server closes its channel."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for one in (self._child_ended, self._wake_up, *(process.channel for process in self._processes.values())):
            one.close()
        with open(os.devnull) as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), 0)
        os.close(self._answers)

    def _signal(self, ticket: int, number: signal.Signals) -> None:
        """Signal the process and its process group, which also holds the compilers' processes."""
        if not self._processes[ticket].has_ended:
            kill_tree(self._processes[ticket].pid, number)

    def _write_stacks(self, pid: int, log: Path) -> None:
        own = psutil.Process(pid)
        ranks = [child for child in own.children() if child.name().startswith(RANK_NAME)]
        for number, one in enumerate([own, *ranks]):
            if ranks:
                with log.open("a") as file:
                    file.write(f"\n{one.name() if number else f'{RANK_NAME}0'}:\n")
            one.send_signal(STACKS_SIGNAL)
            time.sleep(STACK_S)

    def _kill(self, ticket: int) -> None:
        process = self._processes.pop(ticket)
        self._end(process)
        known = {one.pid for one in self._processes.values()}
        for pid in set(children().get(os.getpid(), ())) - known:  # their own parents have ended
            kill_all(pid)
        shutil.rmtree(process.scratch, ignore_errors=True)

    def _end(self, process: _Process) -> None:
        if not process.has_ended:
            kill_all(process.pid)
            os.waitpid(process.pid, 0)
            self._close(process)

    # --- what processes say, and their ends ---

    def _pass_on(self, process: _Process) -> None:
        if process.has_ended:
            return
        for line in process.reader.read():
            if isinstance(line, Garbled):
                self._answer(protocol.Unreadable(ticket=process.ticket, what=line.what))
            else:
                self._answer(protocol.Said(ticket=process.ticket, line=line))
        if not process.reader.is_open and process.channel.fileno() in self._selector.get_map():
            self._selector.unregister(process.channel)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._child_ended.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                for process in self._processes.values():
                    if process.pid == pid and not process.has_ended:
                        self._pass_on(process)
                        self._close(process)
                        code = os.waitstatus_to_exitcode(status)
                        self._answer(protocol.Ended(ticket=process.ticket, code=code))

    def _close(self, process: _Process) -> None:
        process.has_ended = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what the process has left behind
        if process.channel.fileno() in self._selector.get_map():
            self._selector.unregister(process.channel)
        process.channel.close()

    # --- answers ---

    def _answer(self, answer: protocol.Answer) -> None:
        self._unsent += to_json(answer) + b"\n"
        self._send()

    def _send(self) -> None:
        """Send what the runner takes now. A runner that sends a request meanwhile must not wait for this process."""
        is_waiting = self._answers in self._selector.get_map()
        try:
            while self._unsent:
                del self._unsent[: os.write(self._answers, self._unsent)]
        except BlockingIOError:
            if not is_waiting:
                self._selector.register(self._answers, selectors.EVENT_WRITE, self._send)
        else:
            if is_waiting:
                self._selector.unregister(self._answers)


def _spawn(request: protocol.Start, channel: socket.socket) -> int:
    """Start a new interpreter in a session of its own, and return its id. The time until it works counts from here."""
    channel.set_inheritable(True)
    arguments = [request.function, str(channel.fileno()), str(time.monotonic_ns())]
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", "from torchzoo.run.fresh import main; main()", *arguments],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, request.fresh_log, append, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGINT],
    )


def _live(
    request: protocol.Start, channel: socket.socket, servers: socket.socket, close: Callable[[], None]
) -> NoReturn:
    """Live as a process of the server, and end."""
    code = 1
    try:
        end_with_parent()
        os.setsid()  # a process group of its own, to be stopped and killed whole
        close()
        servers.close()
        argument, connection = bytes(request.argument), Connection(channel.detach())
        error = attempt(lambda: function_named(request.function)(argument, connection))
        if error is None:
            code = 0
        else:
            traceback.print_exception(error)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:  # the copy of the server must not run on, whatever happens in it
        for stream in (sys.stdout, sys.stderr):
            attempt(stream.flush)
        os._exit(code)


def main() -> None:
    """Serve the runner at the other end of standard input and output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner ends the server
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    os.set_blocking(answers, False)
    adopt_orphans()
    Server(0, answers).serve()
    os._exit(0)  # without the handlers of libraries
