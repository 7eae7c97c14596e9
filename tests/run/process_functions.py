"""Functions for the processes of tests, one for each fault, called with an argument and a connection."""

# ruff: noqa: ARG001  all have the same arguments

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from examples import measured
from torchzoo.files import to_json
from torchzoo.record import Took
from torchzoo.run.failures import STACKS_SIGNAL
from torchzoo.run.lines import write_line
from torchzoo.run.protocol import Proceed, Told, encode
from torchzoo.run.worker import Request
from torchzoo.settings import Stage


def _say(connection: Connection, *lines: bytes) -> None:
    write_line(connection.fileno(), b"".join(lines))


def tells(argument: bytes, connection: Connection) -> None:
    """Send the argument in an outcome, after two stages; what it prints does not disturb its messages."""
    print("x" * 1_000_000, flush=True)
    sys.stderr.write("y" * 1_000_000)
    _say(connection, encode(Stage.BUILD), encode(Stage.COMPILE), encode(measured()))


def waits(argument: bytes, connection: Connection) -> None:
    """Answer each permission with its stage, and with how long steps may be timed."""
    _say(connection, encode(Stage.WAIT))
    with os.fdopen(connection.fileno(), "rb", closefd=False) as lines:
        for line in lines:
            permission = msgspec.json.decode(line, type=Proceed)
            _say(connection, encode(permission.stage), encode(Took(result={"limit_s": permission.limit_s})))


def is_killed(argument: bytes, connection: Connection) -> None:
    _say(connection, encode(Stage.BUILD))
    os.kill(os.getpid(), signal.SIGKILL)


def crashes(argument: bytes, connection: Connection) -> None:
    _say(connection, encode(Stage.BUILD), encode(Stage.COMPILE)[:3])  # half a line is no message
    os.kill(os.getpid(), signal.SIGSEGV)


def exits(argument: bytes, connection: Connection) -> None:
    _say(connection, encode(Stage.BUILD))
    sys.exit(7)


def raises(argument: bytes, connection: Connection) -> None:
    raise ValueError("no such thing")


def garbles(argument: bytes, connection: Connection) -> None:
    _say(connection, encode(Stage.BUILD), b"\x80\x04\x95\xff\xff\n", encode(Stage.COMPILE))
    time.sleep(600)


def sends_another_message(argument: bytes, connection: Connection) -> None:
    _say(connection, encode(Stage.BUILD), b'{"type":"measured"}\n', encode(Stage.COMPILE))
    time.sleep(600)


def nests(argument: bytes, connection: Connection) -> None:
    _say(connection, encode(Stage.BUILD), b"[" * 100_000 + b"\n", encode(Stage.COMPILE))
    time.sleep(600)


def hangs(argument: bytes, connection: Connection) -> None:
    """Hang beside a child of its own and an orphan, both in sessions of their own. The argument is a file for pids."""
    path = Path(msgspec.json.decode(argument, type=str))
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    child = subprocess.Popen(sleeps, start_new_session=True)
    nowhere = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"
    shell = f"import subprocess; print(subprocess.Popen({sleeps!r}, start_new_session=True, {nowhere}).pid)"
    orphan = subprocess.run([sys.executable, "-c", shell], capture_output=True, check=True, text=True)
    path.with_suffix(".new").write_text(f"{os.getpid()} {child.pid} {orphan.stdout}")
    path.with_suffix(".new").rename(path)
    time.sleep(600)


def sleeps_with_the_lock(argument: bytes, connection: Connection) -> None:
    """Measure for ever in code that a signal ends early, while no other thread of Python runs. It is a worker."""
    log = Path(msgspec.json.decode(argument, type=Request).log).open("w")  # noqa: SIM115  it stays open
    faulthandler.register(STACKS_SIGNAL, log)
    _say(connection, encode(Stage.MEASURE))
    ctypes.PyDLL(None).usleep(600_000_000)
    _say(connection, encode(measured()))


# --- answers to questions ---


def tells_third(argument: bytes, connection: Connection) -> None:
    """Tell how many such processes there were before, except in the first two, which die."""
    folder = Path(msgspec.json.decode(argument, type=str))
    number = len(list(folder.iterdir()))
    (folder / str(number)).touch()
    if number < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    _say(connection, to_json(Told(result=number)), b"\n")


def tells_never(argument: bytes, connection: Connection) -> None:
    folder = Path(msgspec.json.decode(argument, type=str))
    (folder / str(len(list(folder.iterdir())))).touch()
    os.kill(os.getpid(), signal.SIGKILL)


def cores(argument: bytes, connection: Connection) -> None:
    import torch

    found = (os.getppid(), sorted(os.sched_getaffinity(0)), torch.get_num_threads(), os.getpgid(0) == os.getpid())
    _say(connection, to_json(Told(result=found)), b"\n")
