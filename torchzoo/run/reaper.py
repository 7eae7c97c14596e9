"""A process that kills the workers of a runner that was itself killed with SIGKILL.

A worker notices that its runner is gone, but not while the worker is stopped. This process reads a line from standard
input for each worker that starts (`+`, its process group, its scratch folder) or has ended (`-`, its group). The end of
standard input means that the runner is gone. The file is run by its path and uses the standard library alone, so that
it starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Keep count of the workers; when the runner is gone, kill those it left and remove their folders."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    alive: dict[int, str] = {}
    for line in sys.stdin:
        sign, pid, *folder = line.rstrip("\n").split(" ", 2)
        if sign == "+":
            alive[int(pid)] = folder[0]
        else:
            alive.pop(int(pid), None)
    for pid, folder in alive.items():
        kill_tree(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def kill_tree(pid: int, number: signal.Signals) -> None:
    """Signal a worker, which may not have made its process group yet, and then the group."""
    for send in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)


if __name__ == "__main__":
    main()
