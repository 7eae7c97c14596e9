"""The end of a run in the terminal: how many cases passed, geometric means of speedups, failures, use of time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchzoo.analysis.cases import case_results
from torchzoo.analysis.counts import failures_by_kind, run_counts
from torchzoo.analysis.noise import noise_of
from torchzoo.analysis.time_use import time_use
from torchzoo.analysis.totals import Total, speedups_by_group
from torchzoo.case import Mode
from torchzoo.record import Record
from torchzoo.report import terminal, units
from torchzoo.report.progress import MOST_LANES
from torchzoo.store import Run


def summary(run: Run) -> Any:
    """A few lines and a table for each group of speedups, for the terminal."""
    from rich.console import Group

    parts: list[Any] = [*terminal.texts(["", counts(run)])]
    for group, by_domain in speedups_by_group(case_results(run)).items():
        modes = [mode for mode in Mode if any(mode in totals for totals in by_domain.values())]
        parts.append(terminal.text(f"speedup of {group} over eager, geometric mean [95% interval] (cases)"))
        rows = [
            (domain, *(_geomean(totals[mode]) if mode in totals else "" for mode in modes))
            for domain, totals in by_domain.items()
        ]
        parts.append(terminal.indented(terminal.table(("", *modes), rows)))
    parts += terminal.texts([*failures(run.records), *what_compare_finds(run), *where_time_went(run)])
    return Group(*parts)


def counts(run: Run) -> str:
    """`36 cases: 30 measured, 4 skipped with a reason, 2 failed; 94% of those that could run passed`."""
    counted = run_counts(run)
    found, repeats = counted.found, counted.repeats
    wrong = f" ({found.incorrect} of them incorrect)" if found.incorrect else ""
    parts = [f"{found.measured} measured{wrong}", f"{found.skipped} skipped with a reason", f"{found.failed} failed"]
    if counted.missing:
        parts.append(f"{counted.missing} {'processes ' if repeats > 1 else ''}not run")
    rate = "" if found.pass_rate is None else f"; {100 * found.pass_rate:.0f}% of those that could run passed"
    several = f", each by {repeats} processes" if repeats > 1 else ""
    return f"{counted.cases} cases{several}: {', '.join(parts)}{rate}"


def _geomean(found: Total) -> str:
    assert found.passing is not None
    return f"{units.speedup(found.passing)} ({found.compared})"


def failures(records: Iterable[Record]) -> list[str]:
    """A line for each kind of failure: how many cases, and which."""
    return [
        f"failed, {kind} in {stage} ({len(cases)}): {', '.join(case.label() for case in cases)}"
        for (kind, stage), cases in failures_by_kind(records).items()
    ]


def what_compare_finds(run: Run) -> list[str]:
    """How small a difference a comparison with another such run would find; no line without repeats."""
    seen = [noise.sees for noise in noise_of(run) if noise.sees is not None]
    if not seen:
        return []
    found = units.least_differences(seen)
    return [f"`torchzoo compare` with another such run would find differences of {found}; `torchzoo noise` shows each"]


def where_time_went(run: Run) -> list[str]:
    """Wall time for each case, measuring windows of each lane, and CPU time by stage. No lines if nothing ran."""
    used = time_use(run.records)
    if used is None:
        return []
    hosts = {host.name: host.environment for host in run.manifest.hosts} or {"": run.manifest.environment}
    cores = sum(environment.get("cpu_usable") or 1 for environment in hosts.values())
    of_lanes = [f"{lane} {_share(spent_s, used.wall_s)}" for lane, spent_s in sorted(used.windows_s.items())]
    lanes = units.first_few(of_lanes, MOST_LANES, " lanes")
    by_cost = sorted(used.cpu_s.items(), key=lambda item: -item[1])
    stages = ", ".join(f"{stage} {units.seconds(spent_s)}" for stage, spent_s in by_cost if spent_s >= 1)
    has_repeats = any(record.case.repeat for record in run.records if record.lane is not None)
    what, plural = ("process", "es") if has_repeats else ("case", "s")
    lines = [
        f"time: {units.seconds(used.wall_s)} for {used.processes} {what}{plural} that ran, "
        f"{units.seconds(used.wall_s / used.processes)} a {what}",
        f"measuring windows: {lanes or 'none'}",
    ]
    if stages:
        cpu = _share(sum(used.cpu_s.values()), used.wall_s * cores)
        lines.append(f"CPU time of measured cases: {cpu} of {cores} cores ({stages})")
    return lines


def _share(part_s: float, whole_s: float) -> str:
    share = f"{100 * part_s / whole_s:.0f}%" if whole_s > 0 else "-"
    return f"{units.seconds(part_s)}, {share}"
