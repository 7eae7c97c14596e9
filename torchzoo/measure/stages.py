"""Report the stages of a case to the parent process, and keep the time of each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import psutil

from torchzoo.settings import Stage

#: Reports to the parent process that a stage begins.
Tell = Callable[[Stage], None]


class Stages:
    """The seconds of each stage, as wall time and as CPU time. Call `close` after the last stage."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._current: Stage | None = None
        self._began = (0.0, 0.0)
        self.seconds: dict[str, float] = {}
        self.cpu_seconds: dict[str, float] = {}

    def enter(self, stage: Stage) -> None:
        """End the current stage, and begin this one."""
        self.close()
        self._current, self._began = stage, (time.perf_counter(), cpu_time_s())
        self._tell(stage)

    def close(self) -> None:
        """End the current stage."""
        if self._current is not None:
            self.seconds[self._current] = time.perf_counter() - self._began[0]
            self.cpu_seconds[self._current] = cpu_time_s() - self._began[1]


def cpu_time_s() -> float:
    """Return the CPU time of this process and of its children, both alive (pools of compilers) and ended."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
