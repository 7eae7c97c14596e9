"""What Linux lets a process ask for itself, by prctl(2). Elsewhere nothing happens."""

from __future__ import annotations

import ctypes
import signal
import sys

_PDEATHSIG, _NAME, _CHILD_SUBREAPER = 1, 15, 36  # of linux/prctl.h


def end_with_parent(*, ends: bool = True) -> None:
    """Be killed when the parent ends; with `ends` false, no longer."""
    _prctl(_PDEATHSIG, signal.SIGKILL if ends else 0)


def adopt_orphans() -> None:
    """Become the parent of processes below this one whose own parent ends."""
    _prctl(_CHILD_SUBREAPER, 1)


def name_process(name: str) -> None:
    """Have a name in lists of processes, of at most 15 characters."""
    _prctl(_NAME, name.encode())


def _prctl(option: int, value: int | bytes) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
