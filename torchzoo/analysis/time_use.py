"""Compute the time of a run: wall time, measuring windows by lane, the workers' CPU time by stage, and its speed."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import msgspec

from torchzoo.record import Checked, Manifest, Measured, Record
from torchzoo.settings import Settings, Stage
from torchzoo.store import Run

#: Where no worker ran for longer than this, the run was interrupted, and resumed later.
PAUSE_S = 30.0


class TimeUse(msgspec.Struct, frozen=True, kw_only=True):
    """The time of the processes that ran."""

    processes: int
    counted: int  # the processes that measured or checked their case
    wall_s: float  # from the first worker's start to the last worker's end, without pauses
    windows_s: dict[str, float]  # time inside measuring windows, by lane
    cpu_s: dict[str, float]  # CPU time of the processes that count, by stage


def time_use(records: Sequence[Record]) -> TimeUse | None:
    """None where nothing ran."""
    ran = [record for record in records if record.lane is not None]
    if not ran:
        return None
    counted = 0
    windows_s: dict[str, float] = defaultdict(float)
    cpu_s: dict[str, float] = defaultdict(float)
    for record in ran:
        outcome = record.outcome
        if isinstance(outcome, Measured):
            windows_s[str(record.lane)] += outcome.stage_seconds.get(Stage.MEASURE, 0.0)
        if isinstance(outcome, Measured | Checked):
            counted += 1
            for stage, spent_s in outcome.stage_cpu_seconds.items():
                cpu_s[stage] += spent_s
    return TimeUse(processes=len(ran), counted=counted, wall_s=_wall_s(ran), windows_s=windows_s, cpu_s=cpu_s)


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


def cores_of(manifest: Manifest) -> int:
    """Return the number of cores that the processes of a run may use, on all its hosts."""
    hosts = {host.name: host.environment for host in manifest.hosts} or {"": manifest.environment}
    return sum(environment.cpu_usable for environment in hosts.values())


#: The fields of `RunSpeed` that are figures.
SPEED_FIGURES = ("cases_per_minute", "window_share", "cpu_s_per_case")


class RunConditions(msgspec.Struct, frozen=True, kw_only=True):
    """The plan, settings and resources of a run. Speeds are compared between runs that share them and the machine."""

    plan: str  # a digest of the cases
    cases: int
    settings: Settings
    lanes: int
    cores: int


class RunSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """The speed of a whole run."""

    conditions: RunConditions
    cases_per_minute: float  # processes that measured or checked their case, by the wall time of all
    window_share: float | None  # of the wall time, inside measuring windows: the mean of the lanes; None: no windows
    cpu_s_per_case: float  # of the workers and their compilers' processes


def run_speed(run: Run) -> RunSpeed | None:
    """Return the speed of a run; None if cases are missing or nothing was measured."""
    used = time_use(run.records)
    if used is None or not used.counted or not used.wall_s or not run.is_whole:
        return None
    manifest = run.manifest
    labels = sorted(case.label() for case in manifest.cases)
    lanes = len({record.lane for record in run.records if record.lane is not None})
    return RunSpeed(
        conditions=RunConditions(
            plan=hashlib.sha1("\n".join(labels).encode(), usedforsecurity=False).hexdigest()[:8],
            cases=len(labels),
            settings=manifest.settings,
            lanes=lanes,
            cores=cores_of(manifest),
        ),
        cases_per_minute=60 * used.counted / used.wall_s,
        window_share=sum(used.windows_s.values()) / (used.wall_s * lanes) or None,
        cpu_s_per_case=sum(used.cpu_s.values()) / used.counted,
    )
