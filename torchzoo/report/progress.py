"""The progress of a run, on standard error: a live display in a terminal, else a line for each finished case."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from torchzoo.case import Case
from torchzoo.record import Failed, Measured, Record, Skipped
from torchzoo.report import terminal, units
from torchzoo.report.remarks import one_line
from torchzoo.run.lanes import Lane
from torchzoo.settings import Stage

#: Of more lanes than this, the display shows no line, and the summary no windows.
MOST_LANES = 24


class Progress:
    """Shows each lane with what runs there, counts, failures when they happen, and about how long the rest will take.

    The display changes only when a stage begins or a case ends. It has no thread that could disturb a measurement.

    Args:
        total: the number of cases in the run.
        done: how many of them were finished before.
        lanes: where the other cases run.
        quiet: show nothing.
        is_terminal: whether standard error is a terminal; None to find out.
        now_s: a monotonic clock.
    """

    def __init__(
        self,
        *,
        total: int,
        lanes: Sequence[Lane],
        quiet: bool,
        done: int = 0,
        is_terminal: bool | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._before = done
        self._done = done
        self._counts = {Measured: 0, Skipped: 0, Failed: 0}
        self._quiet = quiet
        self._is_live = not quiet and (sys.stderr.isatty() if is_terminal is None else is_terminal)
        self._now_s = now_s
        self._began_s = now_s()
        self._stages: dict[Lane, dict[Case, tuple[Stage, float]]] = {lane: {} for lane in lanes}
        self._live: Any = None

    def __enter__(self) -> Progress:
        if self._is_live:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False, markup=False, force_terminal=True)
            self._live = Live(self.render(), console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def stage(self, case: Case, lane: Lane, stage: Stage) -> None:
        """A worker began a stage."""
        self._stages.setdefault(lane, {})[case] = (stage, self._now_s())  # a host may join later
        self._refresh()

    def done(self, record: Record) -> None:
        """A case is finished."""
        self._done += 1
        self._counts[type(record.outcome)] += 1
        for cases in self._stages.values():
            cases.pop(record.case, None)
        if self._total > 1 and not self._quiet:
            line = f"[{self._done}/{self._total}] {record.case.label()}: {one_line(record)}"
            if self._live is None:
                terminal.say(line)
            elif isinstance(record.outcome, Failed):
                self._live.console.print(terminal.text(line))
        self._refresh()

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self.render(), refresh=True)

    def render(self) -> Any:
        """The display as it is now: a line with counts, then a line for each lane."""
        from rich.console import Group

        lines = [
            f"{self._done}/{self._total} cases: {self._counts[Measured]} measured, {self._counts[Skipped]} skipped, "
            f"{self._counts[Failed]} failed{self._rest()}"
        ]
        shown = sorted(self._stages.items(), key=lambda item: not item[1])[:MOST_LANES]  # those that work come first
        lines += [f"{lane.name}: {self._lane(cases)}" for lane, cases in shown]
        if len(self._stages) > len(shown):
            lines.append(f"and {len(self._stages) - len(shown)} more lanes")
        return Group(*(terminal.text(line, no_wrap=True, overflow="ellipsis") for line in lines))

    def _rest(self) -> str:
        """About how long the other cases will take, if they take as long as those that are finished."""
        finished = self._done - self._before
        left = self._total - self._done
        if finished == 0 or left == 0:
            return ""
        return f"; about {units.seconds((self._now_s() - self._began_s) / finished * left)} left"

    def _lane(self, cases: dict[Case, tuple[Stage, float]]) -> str:
        measuring = [case.label() for case, (stage, _) in cases.items() if stage is Stage.MEASURE]
        others = [f"{case.label()} ({stage})" for case, (stage, _) in cases.items() if stage is not Stage.MEASURE]
        parts = [f"measuring {', '.join(measuring)}"] if measuring else []
        if others:
            parts.append(f"preparing {len(others)}: {', '.join(others)}")
        return "; ".join(parts) or "idle"
