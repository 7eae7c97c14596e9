"""What is going on, on standard error: a status line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from torchzoo.lanes import Lane
from torchzoo.record import Case, Record, Stage
from torchzoo.report.rows import in_a_line


class Progress:
    """Shows the stage of the running case and, where a run has several cases, a line for each that is done."""

    def __init__(self, *, total: int, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._done = 0
        self._is_live = not quiet and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._clear()

    def stage(self, case: Case, lane: Lane, stage: Stage) -> None:
        if self._is_live:
            self._clear()
            sys.stderr.write(f"[{self._done}/{self._total} done] {lane.device} {case.label()}: {stage} ..."[:100])
            sys.stderr.flush()

    def done(self, record: Record) -> None:
        self._done += 1
        self._clear()
        if not self._quiet and self._total > 1:
            print(
                f"[{self._done}/{self._total}] {record.case.label()}: {in_a_line(record)}", file=sys.stderr, flush=True
            )

    def _clear(self) -> None:
        if self._is_live:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
