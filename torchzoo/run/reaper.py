"""A process that ends what a runner leaves behind when it is killed with SIGKILL.

It reads lines from standard input: `server PID` (all processes of the run descend from the fork server), `+ PID
FOLDER` for each worker that starts (its process group, its scratch folder), and `- PID` for each that has ended. The
end of standard input means that the runner is gone. The file is run by its path and uses the standard library alone, so
that it starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path


def main() -> None:
    """Keep count of the workers; when the runner is gone, kill all that it left and remove their folders."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    alive: dict[int, str] = {}
    server = None
    for line in sys.stdin:
        what, pid, *folder = line.rstrip("\n").split(" ", 2)
        if what == "server":
            server = int(pid)
        elif what == "+":
            alive[int(pid)] = folder[0]
        else:
            alive.pop(int(pid), None)
    for root in filter(None, [server, *alive]):
        kill_all(root)
    for folder_left in alive.values():
        shutil.rmtree(folder_left, ignore_errors=True)


def kill_all(pid: int) -> None:
    """Kill a process, its process group and all its descendants, also those in sessions of their own.

    The process is the last one, since it may be this one. It is stopped first, so that it starts no more of them.
    """
    if pid != os.getpid():
        kill_tree(pid, signal.SIGSTOP)
    for one in set(descendants(pid)) - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, signal.SIGKILL)
    kill_tree(pid, signal.SIGKILL)


def kill_tree(pid: int, number: signal.Signals) -> None:
    """Signal a worker, which may not have made its process group yet, and then the group."""
    for send in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)


def descendants(pid: int) -> list[int]:
    """All processes below a process, on Linux; elsewhere none."""
    of = children()
    found, todo = [], [pid]
    while todo:
        below = of.get(todo.pop(), [])
        found += below
        todo += below
    return found


def children() -> dict[int, list[int]]:
    """The children of every process that has some."""
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir() if Path("/proc/self").is_dir() else ():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
                found.setdefault(parent, []).append(int(folder.name))
    return found


if __name__ == "__main__":
    main()
