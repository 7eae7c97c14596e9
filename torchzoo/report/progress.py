"""The progress of a run: a live display in a terminal or a notebook, else a line on standard error for each case."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

from torchzoo.case import Case
from torchzoo.record import Checked, Failed, Measured, Record, Skipped
from torchzoo.report import terminal, units
from torchzoo.report.remarks import one_line
from torchzoo.run.lanes import Lane
from torchzoo.settings import Stage

#: Of more lanes than this, the display shows no line, and the summary no windows.
MOST_LANES = 24
NOTEBOOK_WIDTH = 120  # columns


class NotebookDisplay:
    """Text below a notebook's cell that is replaced when it changes. It needs no widgets."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, renderable: Any) -> None:
        display = import_module("IPython.display").display  # without types

        bundle = {"text/plain": "\n".join(terminal.lines(renderable, width=NOTEBOOK_WIDTH))}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def in_notebook() -> bool:
    """Whether a kernel runs this: then IPython is there, and its shell has a kernel."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


class Progress:
    """Shows each lane with what runs there, counts, failures when they happen, and about how long the rest will take.

    The display changes only when a stage begins or a case ends. It has no thread that could disturb a measurement.
    `total` counts all cases of the run, `done` those that were finished before.
    """

    def __init__(
        self,
        *,
        total: int,
        lanes: Sequence[Lane],
        quiet: bool,
        done: int = 0,
        is_terminal: bool | None = None,
        notebook: NotebookDisplay | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._before = done
        self._done = done
        self._counts = {Measured: 0, Checked: 0, Skipped: 0, Failed: 0}
        self._quiet = quiet
        self._is_live = not quiet and (sys.stderr.isatty() if is_terminal is None else is_terminal)
        self._notebook = notebook or (NotebookDisplay() if in_notebook() else None)
        if quiet or self._is_live:
            self._notebook = None
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
        self._refresh()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        if self._notebook is not None:
            self._notebook.show(terminal.text(self._counted()))

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
            has_failed = record.failure is not None
            if self._live is not None and has_failed:
                self._live.console.print(terminal.text(line))
            elif self._live is None and (self._notebook is None or has_failed):
                terminal.say(line)
        self._refresh()

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self.render(), refresh=True)
        if self._notebook is not None:
            self._notebook.show(self.render())

    def render(self) -> Any:
        """The display as it is now: a line with counts, then a line for each lane."""
        from rich.console import Group

        lines = [f"{self._counted()}{self._rest()}"]
        shown = sorted(self._stages.items(), key=lambda item: not item[1])[:MOST_LANES]  # those that work come first
        lines += [f"{lane.name}: {self._lane(cases)}" for lane, cases in shown]
        if len(self._stages) > len(shown):
            lines.append(f"and {len(self._stages) - len(shown)} more lanes")
        return Group(*(terminal.text(line, no_wrap=True, overflow="ellipsis") for line in lines))

    def _counted(self) -> str:
        words = {Measured: "measured", Checked: "checked", Skipped: "skipped", Failed: "failed"}
        shown = [kind for kind in words if self._counts[kind] or kind is not Checked]
        counts = ", ".join(f"{self._counts[kind]} {words[kind]}" for kind in shown)
        return f"{self._done}/{self._total} cases: {counts}"

    def _rest(self) -> str:
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
