"""The stages of a case: the parent process is told which one begins, and how long each took is kept."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import psutil

from torchzoo.case import Stage

#: Tells the parent process that a stage begins.
Tell = Callable[[Stage], None]


class Stages:
    """Seconds of each stage, by the wall clock and in CPU time. Use `close` after the last one."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._current: Stage | None = None
        self._began = (0.0, 0.0)
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def enter(self, stage: Stage) -> None:
        """End the stage before, and begin this one."""
        self.close()
        self._current, self._began = stage, (time.perf_counter(), cpu_time_s())
        self._tell(stage)

    def close(self) -> None:
        """End the stage that is going on."""
        if self._current is not None:
            self.seconds[self._current] = time.perf_counter() - self._began[0]
            self.cpu_seconds[self._current] = cpu_time_s() - self._began[1]


def cpu_time_s() -> float:
    """CPU time of this process and of its children, those that are alive (compilers' pools) and those that ended."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
