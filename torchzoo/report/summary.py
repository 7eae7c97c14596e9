"""What a run comes to: how many cases passed, geometric means of speedups, failures by kind, where the time went."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from torchzoo import stats
from torchzoo.record import EAGER, Case, Failed, Manifest, Measured, Record, Skipped, Stage
from torchzoo.report import units
from torchzoo.report.rows import by_case, measured_of
from torchzoo.spec import CompileScope, Domain, MemoryFormat, Mode, Precision
from torchzoo.stats import Resampled

ALL = "all"


def summary(manifest: Manifest, records: Sequence[Record]) -> Any:
    """A few lines and a table for the terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = [Text("\n" + counts(manifest, records))]
    for label, cells in speedups(manifest, records).items():
        modes = [mode for mode in Mode if any(mode in row for row in cells.values())]
        parts.append(Text(f"speedup of {label} over eager, geometric mean [95% interval] (cases)"))
        table = Table(box=None)
        for heading in ("", *modes):
            table.add_column(heading)
        for domain, row in cells.items():
            table.add_row(domain, *(_geomean(row[mode]) if mode in row else "" for mode in modes))
        parts.append(table)
    parts += [Text(line) for line in (*failures(records), *where_time_went(manifest, records))]
    return Group(*parts)


def counts(manifest: Manifest, records: Sequence[Record]) -> str:
    """`36 cases: 30 measured, 4 skipped with a reason, 2 failed; 94% of those that could run passed`.

    A case that several processes measure counts once, as failed where one of them failed.
    """
    kinds: Counter[type] = Counter()
    incorrect = 0
    for group in by_case(records).values():
        outcomes = {type(record.outcome) for record in group}
        kind = next(kind for kind in (Failed, Measured, Skipped) if kind in outcomes)
        kinds[kind] += 1
        incorrect += kind is Measured and any(measured.is_incorrect for measured in measured_of(group))
    could_run = kinds[Measured] + kinds[Failed]
    repeats = max((case.repeat for case in manifest.cases), default=0) + 1
    missing = len(manifest.cases) - len(records)
    wrong = f" ({incorrect} of them incorrect)" if incorrect else ""
    parts = [f"{kinds[Measured]} measured{wrong}", f"{kinds[Skipped]} skipped with a reason", f"{kinds[Failed]} failed"]
    if missing:
        parts.append(f"{missing} {'processes ' if repeats > 1 else ''}not run")
    passed = kinds[Measured] - incorrect
    rate = f"; {100 * passed / could_run:.0f}% of those that could run passed" if could_run else ""
    cases = sum(case.repeat == 0 for case in manifest.cases)
    several = f", each by {repeats} processes" if repeats > 1 else ""
    return f"{cases} cases{several}: {', '.join(parts)}{rate}"


#: A case, and the paired ratios of each process that measured it.
Ratios = tuple[Case, list[list[float]]]
Speedups = dict[str, dict[str, dict[Mode, list[Ratios]]]]


def speedups(manifest: Manifest, records: Sequence[Record]) -> Speedups:
    """Paired ratios of each measured case's processes: by backend (and precision, device, ...), domain and mode.

    A case whose results are wrong is left out.
    """
    found: Speedups = {}
    for case, group in by_case(records).items():
        measured = measured_of(group)
        if any(outcome.is_incorrect for outcome in measured):
            continue
        processes = [stats.quad_ratios(outcome.blocks) for outcome in measured]
        if case.backend == EAGER or not processes:
            continue
        by_domain = found.setdefault(alike(case), {})
        for domain in (manifest.domains.get(case.model), ALL):
            if domain is not None:
                by_domain.setdefault(domain, {}).setdefault(case.mode, []).append((case, processes))
    order = [*Domain, ALL]
    return {
        label: {domain: by_domain[domain] for domain in order if domain in by_domain}
        for label, by_domain in found.items()
    }


def alike(case: Case) -> str:
    """What a case has in common with those it may be averaged with."""
    label = f"{case.backend} on {case.device}"
    if case.precision is not Precision.DEFAULT:
        label += f" at {case.precision}"
    if case.memory_format is not MemoryFormat.CONTIGUOUS:
        label += f" in {case.memory_format}"
    if case.compile_scope is not CompileScope.NETWORK:
        label += f" (scope {case.compile_scope})"
    return label


def resampled_speedup(case: Case, processes: Sequence[Sequence[float]]) -> Resampled:
    """A case's speedup as every geometric mean over cases takes it, so that the same cases have the same interval."""
    return stats.resampled_processes(processes, cluster=case.model, generator=stats.generator_for(case.label()))


def _geomean(cases: Sequence[Ratios]) -> str:
    return f"{units.speedup(stats.geomean_of([resampled_speedup(*one) for one in cases]))} ({len(cases)})"


def failures(records: Iterable[Record]) -> list[str]:
    """A line for each kind of failure: how many, and which."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if isinstance(record.outcome, Failed):
            kinds[f"{record.outcome.kind} in {record.outcome.stage}"].append(record.case.label())
    return [f"failed, {kind} ({len(labels)}): {', '.join(labels)}" for kind, labels in kinds.items()]


def where_time_went(manifest: Manifest, records: Sequence[Record]) -> list[str]:
    """Wall time from the first worker's start to the last one's end; windows by lane; the workers' CPU time by stage.

    A run that was interrupted and gone on with counts the pause in between.
    """
    ran = [record for record in records if record.lane is not None]
    if not ran:
        return []
    wall_s = (max(_time(r.finished_at) for r in ran) - min(_time(r.started_at) for r in ran)).total_seconds()
    windows_s: dict[str, float] = defaultdict(float)
    cpu_s: dict[str, float] = defaultdict(float)
    for record in ran:
        assert record.lane is not None
        if isinstance(record.outcome, Measured):
            windows_s[record.lane] += record.outcome.stage_seconds.get(Stage.MEASURE, 0.0)
            for stage, spent_s in record.outcome.stage_cpu_seconds.items():
                cpu_s[stage] += spent_s
    cores = manifest.environment.get("cpu_usable") or 1
    lanes = ", ".join(f"{lane} {_share(spent_s, wall_s)}" for lane, spent_s in sorted(windows_s.items()))
    by_cost = sorted(cpu_s.items(), key=lambda item: -item[1])
    stages = ", ".join(f"{stage} {units.seconds(spent_s)}" for stage, spent_s in by_cost if spent_s >= 1)
    what, plural = ("process", "es") if any(record.case.repeat for record in ran) else ("case", "s")
    lines = [
        f"time: {units.seconds(wall_s)} for {len(ran)} {what}{plural} that ran, "
        f"{units.seconds(wall_s / len(ran))} a {what}",
        f"measuring windows: {lanes or 'none'}",
    ]
    if stages:
        lines.append(
            f"CPU time of measured cases: {_share(sum(cpu_s.values()), wall_s * cores)} of {cores} cores ({stages})"
        )
    return lines


def _share(part_s: float, whole_s: float) -> str:
    share = f"{100 * part_s / whole_s:.0f}%" if whole_s > 0 else "-"
    return f"{units.seconds(part_s)}, {share}"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
