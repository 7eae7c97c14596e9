"""The CPU cores of this machine, and keeping threads and processes to some of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def usable_cores() -> tuple[int, ...]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def physical_cores(cores: Iterable[int], folder: Path = Path("/sys/devices/system/cpu")) -> tuple[tuple[int, ...], ...]:
    """The physical cores among `cores`: for each, its logical cores (hyperthreads).

    Where the system does not tell which logical cores share a physical one, each counts as one.
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
    """Keep this thread on one core. Does nothing where the system can't do it or does not allow it."""
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {core})


@contextlib.contextmanager
def this_thread_on(cores: Iterable[int]) -> Iterator[None]:
    """Let this thread use these cores for a while; a process that it starts meanwhile keeps them."""
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
    """Keep all threads of this process on these cores. Does nothing where the system can't do it."""
    if not hasattr(os, "sched_setaffinity"):
        return
    chosen = set(cores)
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has just ended
            os.sched_setaffinity(int(thread.name), chosen)
