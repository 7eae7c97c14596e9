"""Read the limits of this process: its CPU cores, and the CPU time and memory of its control group.

`docker run --cpus 8 -m 64g` limits time and memory without changing the number of cores or the host's free memory. Only
control groups of version 2 are read (https://docs.kernel.org/admin-guide/cgroup-v2.html): in a container, the process's
own group is at the root.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def usable_cores() -> tuple[int, ...]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def physical_cores(cores: Iterable[int], folder: Path = Path("/sys/devices/system/cpu")) -> tuple[tuple[int, ...], ...]:
    """The physical cores among `cores`, each as a tuple of its logical cores (hyperthreads).

    If the system does not tell which logical cores share a physical one, each counts as one.
    """
    groups: dict[object, list[int]] = {}
    for core in cores:
        siblings = folder / f"cpu{core}" / "topology" / "thread_siblings_list"
        try:
            key: object = siblings.read_text().strip()
        except OSError:
            key = core
        groups.setdefault(key, []).append(core)
    return tuple(tuple(sorted(group)) for group in groups.values())


def pin_this_thread(core: int) -> None:
    """Pin this thread to one core, if the system supports and allows it."""
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {core})


@contextlib.contextmanager
def this_thread_on(cores: Iterable[int]) -> Iterator[None]:
    """Pin this thread to these cores in the context. Processes started in it stay on them."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, set(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pin(cores: Iterable[int]) -> None:
    """Pin all threads of this process to these cores, if the system supports it."""
    if not hasattr(os, "sched_setaffinity"):
        return
    chosen = set(cores)
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has just ended
            os.sched_setaffinity(int(thread.name), chosen)


GROUP = Path("/sys/fs/cgroup")


def cpu_limit(group: Path | None = None) -> float | None:
    """The number of cores whose time the processes may use together; None if there is no limit."""
    match _words(group, "cpu.max"):
        case [quota, period] if quota.isdigit() and period.isdigit() and int(period):
            return int(quota) / int(period)
    return None


def available_bytes(group: Path | None = None) -> int:
    """The host memory that is free or can be freed at once, or the rest of the limit if that is less."""
    import psutil

    on_host = int(psutil.virtual_memory().available)
    limit, used = _words(group, "memory.max"), _words(group, "memory.current")
    if not (limit and used and limit[0].isdigit() and used[0].isdigit()):
        return on_host
    statistics = _words(group, "memory.stat")
    cached = int(dict(zip(statistics[::2], statistics[1::2], strict=False)).get("inactive_file", 0))
    return max(0, min(on_host, int(limit[0]) - int(used[0]) + cached))


def whole_cores(count: int, group: Path | None = None) -> int:
    """The number of cores, at most `count`, that the limit allows to be busy all the time, rounded up."""
    limit = cpu_limit(group)
    return count if limit is None else max(1, min(count, math.ceil(limit)))


def _words(group: Path | None, name: str) -> list[str]:
    """The words of a file of the group, by default this process's."""
    try:
        return ((group or GROUP) / name).read_text().split()
    except OSError:
        return []
