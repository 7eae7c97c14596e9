"""Signals to a process with all that it has started, and what Linux lets a process ask for itself by prctl(2)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PDEATHSIG, _NAME, _CHILD_SUBREAPER = 1, 15, 36  # of linux/prctl.h


def kill_all(pid: int) -> None:
    """Kill a process, its process group and all its descendants, also those in sessions of their own.

    The process is stopped first, so that it starts no more of them.
    """
    kill_tree(pid, signal.SIGSTOP)
    kill_each(descendants(pid))
    kill_tree(pid, signal.SIGKILL)


def kill_each(pids: list[int]) -> None:
    """Kill processes of which some may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_tree(pid: int, number: signal.Signals) -> None:
    """Signal a process, which may not have made its process group yet, and then the group."""
    for send in (os.kill, os.killpg):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(pid, number)


def descendants(pid: int) -> list[int]:
    """Return all processes below a process, on Linux; elsewhere none."""
    of = children()
    found, todo = [], [pid]
    while todo:
        below = of.get(todo.pop(), [])
        found += below
        todo += below
    return found


def children() -> dict[int, list[int]]:
    """Return the children of every process that has some, on Linux; elsewhere none."""
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir() if Path("/proc/self").is_dir() else ():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # the process has ended meanwhile
                parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
                found.setdefault(parent, []).append(int(folder.name))
    return found


# --- prctl, on Linux; elsewhere nothing happens ---


def end_with_parent(*, ends: bool = True) -> None:
    """Let the kernel kill this process when its parent ends; with `ends` false, no longer."""
    _prctl(_PDEATHSIG, signal.SIGKILL if ends else 0)


def adopt_orphans() -> None:
    """Become the parent of processes below this one whose own parent ends."""
    _prctl(_CHILD_SUBREAPER, 1)


def name_process(name: str) -> None:
    """Set the name of this process in lists of processes, of at most 15 characters."""
    _prctl(_NAME, name.encode())


def _prctl(option: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
