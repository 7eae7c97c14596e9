"""Where the time of a run went: wall time, measuring windows by lane, and the workers' CPU time by stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec

from torchzoo.record import Checked, Measured, Record
from torchzoo.settings import Stage


class TimeUse(msgspec.Struct, frozen=True, kw_only=True):
    """Of the processes that ran. A run that was interrupted and resumed counts the pause in between."""

    processes: int
    wall_s: float  # from the first worker's start to the last worker's end
    windows_s: dict[str, float]  # time inside measuring windows, by lane
    cpu_s: dict[str, float]  # CPU time of the cases that were measured or checked, by stage


def time_use(records: Sequence[Record]) -> TimeUse | None:
    """None where nothing ran."""
    ran = [record for record in records if record.lane is not None]
    if not ran:
        return None
    began = min(datetime.fromisoformat(record.started_at) for record in ran)
    ended = max(datetime.fromisoformat(record.finished_at) for record in ran)
    windows_s: dict[str, float] = defaultdict(float)
    cpu_s: dict[str, float] = defaultdict(float)
    for record in ran:
        assert record.lane is not None
        if isinstance(record.outcome, Measured):
            windows_s[record.lane] += record.outcome.stage_seconds.get(Stage.MEASURE, 0.0)
        if isinstance(record.outcome, Measured | Checked):
            for stage, spent_s in record.outcome.stage_cpu_seconds.items():
                cpu_s[stage] += spent_s
    return TimeUse(processes=len(ran), wall_s=(ended - began).total_seconds(), windows_s=windows_s, cpu_s=cpu_s)
