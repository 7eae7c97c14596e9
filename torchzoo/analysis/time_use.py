"""Where the time of a run went: wall time, measuring windows by lane, and the workers' CPU time by stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec

from torchzoo.record import Checked, Measured, Record
from torchzoo.settings import Stage

#: Where no worker ran for longer than this, the run was interrupted, and resumed later.
PAUSE_S = 30.0


class TimeUse(msgspec.Struct, frozen=True, kw_only=True):
    """Of the processes that ran."""

    processes: int
    wall_s: float  # from the first worker's start to the last worker's end, without pauses
    windows_s: dict[str, float]  # time inside measuring windows, by lane
    cpu_s: dict[str, float]  # CPU time of the cases that were measured or checked, by stage


def time_use(records: Sequence[Record]) -> TimeUse | None:
    """None where nothing ran."""
    ran = [record for record in records if record.lane is not None]
    if not ran:
        return None
    windows_s: dict[str, float] = defaultdict(float)
    cpu_s: dict[str, float] = defaultdict(float)
    for record in ran:
        assert record.lane is not None
        if isinstance(record.outcome, Measured):
            windows_s[record.lane] += record.outcome.stage_seconds.get(Stage.MEASURE, 0.0)
        if isinstance(record.outcome, Measured | Checked):
            for stage, spent_s in record.outcome.stage_cpu_seconds.items():
                cpu_s[stage] += spent_s
    return TimeUse(processes=len(ran), wall_s=_wall_s(ran), windows_s=windows_s, cpu_s=cpu_s)


def _wall_s(ran: Sequence[Record]) -> float:
    """The time from the first start to the last end, without pauses in which no worker ran."""
    spans = sorted((datetime.fromisoformat(one.started_at), datetime.fromisoformat(one.finished_at)) for one in ran)
    until = spans[0][0]
    wall_s = 0.0
    for began, ended in spans:
        gap_s = (began - until).total_seconds()
        wall_s += gap_s if 0 < gap_s <= PAUSE_S else 0.0
        wall_s += max(0.0, (ended - max(began, until)).total_seconds())
        until = max(until, ended)
    return wall_s
