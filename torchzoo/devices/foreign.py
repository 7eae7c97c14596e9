"""Count the processes on a device that do not belong to this run."""

from __future__ import annotations

import os
from collections.abc import Iterable

#: The environment variable with the process that has started the servers of a run.
RUNNER_VARIABLE = "TORCHZOO_RUNNER"


def run_ancestor() -> int:
    """The process from which all workers of this run descend: the one in `RUNNER_VARIABLE`, else its parent."""
    return int(os.environ.get(RUNNER_VARIABLE, os.getppid()))


def foreign_processes(pids: Iterable[int], *, own: int, ancestor: int) -> int | None:
    """The number of processes on a device that don't belong to this run.

    Args:
        pids: the processes on the device, as NVML lists them.
        own: this process, which uses the device too.
        ancestor: the process from which all processes of the run descend.

    Returns:
        None if `own` is not among `pids`, because NVML lists no processes, or those of another PID namespace.
    """
    others = set(pids)
    if own not in others:
        return None
    return sum(_is_foreign(pid, ancestor) for pid in others - {own})


def _is_foreign(pid: int, ancestor: int) -> bool:
    """Whether the process is alive and does not descend from `ancestor`.

    NVML lists a process for some seconds after its end.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        is_alive = process.status() != psutil.STATUS_ZOMBIE
        return is_alive and all(parent.pid != ancestor for parent in process.parents())
    except psutil.Error:  # it has ended, or /proc does not show it to this user
        return _exists(pid)


def _exists(pid: int) -> bool:
    """Whether the process exists, even if /proc hides it (where `psutil.pid_exists` is False)."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
