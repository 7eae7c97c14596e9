"""The end of a report in the terminal, for one screen: counts, means, failures, time, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.command_lines import again, shell_line
from torchzoo.analysis.time_use import cores_of, time_use
from torchzoo.analysis.totals import ALL, CaseRatios, Total, speedups_by_group, total
from torchzoo.case import Mode
from torchzoo.record import Measured, Record
from torchzoo.report import terminal, units
from torchzoo.report.noise import needed_time, noise_of
from torchzoo.report.overview import percent
from torchzoo.report.progress import MOST_LANES
from torchzoo.store import Run

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

#: So that the summary fits 24 lines of 80 columns.
MOST_GROUPS, MOST_KINDS, MOST_LABELS, MOST_RUNS = 6, 3, 2, 3
SPEEDUPS = "over eager, geometric mean [95% interval] (cases)"


def summary(runs: Sequence[Run], results: Sequence[CaseResult]) -> Any:
    """Return the summary of one or more runs."""
    from rich.console import Group

    named = [f"{run.path}: {counts(run)}" if len(runs) > 1 else counts(run) for run in runs]
    records = [record for result in results for record in result.records]
    return Group(
        terminal.text(""),
        *map(terminal.Hanging, few(named, MOST_RUNS, "runs")),
        *map(terminal.Hanging, slow_hosts(results)),
        *_speedups(results),
        *map(terminal.Hanging, few(failures(records), MOST_KINDS, "kinds of failures")),
        *(terminal.Hanging(line) for run in runs for line in where_time_went(run)[:1] if len(runs) == 1),
    )


def few(lines: Sequence[str], most: int, what: str) -> list[str]:
    """The first lines, then how many more there are."""
    return [*lines[:most], *([f"and {len(lines) - most} more {what}"] if len(lines) > most else [])]


def _speedups(results: Sequence[CaseResult]) -> Iterator[Any]:
    """A table of one kind of speedup by domain; of several kinds, the mean of each."""
    groups = speedups_by_group(results)
    if len(groups) == 1:
        ((group, by_domain),) = groups.items()
        yield terminal.Hanging(f"speedup of {group} {SPEEDUPS}")
        yield Speedups(by_domain)
    elif groups:
        yield terminal.Hanging(f"speedup {SPEEDUPS}")
        yield Speedups({group: groups[group][ALL] for group in list(groups)[:MOST_GROUPS]})
        if len(groups) > MOST_GROUPS:
            yield terminal.text(f"  and {len(groups) - MOST_GROUPS} more groups: torchzoo report has them all")


class Speedups:
    """A table of means: rows by name, a column for each mode. Where it does not fit, the intervals are left out."""

    def __init__(self, totals: Mapping[str, Mapping[Mode, Total]]) -> None:
        self.totals = totals

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        whole = self._table(has_intervals=True)
        fits = console.measure(whole, options=options.update(max_width=terminal.ANY_WIDTH)).maximum <= options.max_width
        yield terminal.indented(whole if fits else self._table(has_intervals=False))

    def _table(self, *, has_intervals: bool) -> Any:
        def cell(total: Total | None) -> str:
            if total is None or total.passing is None:
                return ""
            mean = units.speedup(total.passing) if has_intervals else f"{total.passing.value:.2f}x"
            return f"{mean} ({total.compared})"

        modes = [mode for mode in Mode if any(mode in by_mode for by_mode in self.totals.values())]
        rows = [(name, *(cell(by_mode.get(mode)) for mode in modes)) for name, by_mode in self.totals.items()]
        return terminal.table(("", *modes), rows)


def next_steps(results: Sequence[CaseResult]) -> list[str]:
    """Where more is, as commands that can be copied."""
    if not results:
        return []
    shown = next((result for result in results if result.could_run), results[0])
    runs = dict.fromkeys(str(result.run) for result in results)
    failed_in = dict.fromkeys(str(result.run) for result in results if result.all_failures)
    again = (shell_line(["torchzoo", "run", "--resume", run, "--retry-failed"]) for run in failed_in)
    return [
        f"one case in full: {shell_line(['torchzoo', 'show', str(shown.run), *shown.case.label().split()])}",
        f"all in a browser: {shell_line(['torchzoo', 'report', *runs, '--format', 'html', '-o', 'report.html'])}",
        *(f"what failed, again: {line}" for line in again),
    ]


#: A case that needs longer than this for its interval is out of reach, and a time limit has so much to spare: the time
#: that a few rounds let expect is often too short.
MOST_NEEDED_S, SPARE = 60.0, 1.5


def more_time_for(run: Run, results: Sequence[CaseResult]) -> list[str]:
    """Return a line on the cases with wide intervals: the time that they need, and the command; none for one case."""
    half_width = run.manifest.settings.target_half_width
    needed = {
        result.case: [needed_time(one, half_width) for one in result.measured] for result in results if result.measured
    }
    wide = {case: times for case, times in needed.items() if any(one.is_wide for one in times)}
    if len(results) < 2 or not wide:
        return []
    longest_s = {case: max(one.needed_s for one in times) for case, times in wide.items()}
    far = [case for case, needed_s in longest_s.items() if needed_s > MOST_NEEDED_S]
    near = [case for case in wide if case not in far]
    parts = [f"{len(wide)} of {len(needed)} cases have intervals wider than ±{100 * half_width:g}%"]
    if far:
        labels = units.first_few([case.label() for case in far], MOST_LABELS)
        parts.append(f"out of reach on this host with {MOST_NEEDED_S:g} s each: {labels}")
    if near:
        whole_s = sum(one.needed_s for case in near for one in wide[case])
        limit_s = math.ceil(SPARE * max(longest_s[case] for case in near))
        line = again(near, run.manifest, time_limit_s=limit_s)
        which = f"the other {units.counted(len(near), 'case')}" if far else units.counted(len(near), "case")
        parts.append(f"about {units.duration(whole_s)} of timing for {which}: {line}")
    return ["; ".join(parts)]


def before_the_summary(run: Run) -> list[str]:
    """Return lines on the noise and the time of a run, which its summary leaves out."""
    return [*what_compare_finds(run), *where_time_went(run)[1:]]


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of cases. A case with several processes counts once, as failed if any process failed."""

    cases: int  # planned
    repeats: int  # processes for each case
    missing: int  # planned processes without a record
    found: Total  # counts of the cases that have a record; without means


def run_counts(run: Run) -> RunCounts:
    """The counts of a run, finished or not."""
    planned = set(run.manifest.cases)
    return RunCounts(
        cases=sum(case.repeat == 0 for case in planned),
        repeats=max((case.repeat for case in planned), default=0) + 1,
        missing=len(planned - {record.case for record in run.records}),
        found=total(ALL, ALL, case_results(run), CaseRatios(())),
    )


def counts(run: Run) -> str:
    """`36 cases: 30 measured, 4 skipped with a reason, 2 failed; 94% of those that could run passed`."""
    counted = run_counts(run)
    found, repeats = counted.found, counted.repeats
    wrong = f" ({found.incorrect} of them incorrect)" if found.incorrect else ""
    ran = f"{found.checked} checked" if found.checked else f"{found.measured} measured"  # a run does one of both
    parts = [f"{ran}{wrong}", f"{found.skipped} skipped with a reason", f"{found.failed} failed"]
    if counted.missing:
        parts.append(f"{counted.missing} {'processes ' if repeats > 1 else ''}not run")
    rate = "" if found.pass_rate is None else f"; {percent(found.pass_rate)} of those that could run passed"
    several = f", each by {repeats} processes" if repeats > 1 else ""
    return f"{counted.cases} cases{several}: {', '.join(parts)}{rate}"


def slow_hosts(results: Sequence[CaseResult]) -> list[str]:
    """How many cases were measured while the host stayed slow; no line where none was."""
    slow = [result for result in results if result.host_was_slow]
    if not slow:
        return []
    measured = sum(bool(result.measured) for result in results)
    return [f"the host stayed slow while {len(slow)} of {measured} cases were measured: such steps count"]


def failures(records: Iterable[Record]) -> list[str]:
    """A line for each kind of failure: how many cases, and the first few of them."""
    found: dict[str, list[str]] = {}
    for record in records:
        if (failed := record.failure) is not None:
            when = "cut short after the timing" if isinstance(record.outcome, Measured) else "failed"
            found.setdefault(f"{when}, {failed.kind} in {failed.stage}", []).append(record.case.label())
    return [f"{kind} ({len(labels)}): {units.first_few(labels, MOST_LABELS)}" for kind, labels in found.items()]


def what_compare_finds(run: Run) -> list[str]:
    """How small a difference a comparison with another such run would find; no line without repeats."""
    noises = noise_of(run)
    seen = [noise.sees for noise in noises if noise.sees is not None]
    if not seen:
        return []
    over_eager = [noise.sees_over_eager for noise in noises if noise.sees_over_eager is not None]
    lines = [
        f"`torchzoo compare` with another such run would find differences of {units.least_differences(seen)}; "
        "`report --noise` shows each"
    ]
    if over_eager:
        lines.append(f"and of the time over eager's, where the host matters: {units.least_differences(over_eager)}")
    return lines


def where_time_went(run: Run) -> list[str]:
    """Wall time for each case, measuring windows of each lane, and CPU time by stage. No lines if nothing ran."""
    used = time_use(run.records)
    if used is None:
        return []
    cores = cores_of(run.manifest)
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
        which = "measured" if lanes else "checked"
        lines.append(f"CPU time of {which} cases: {cpu} of {cores} cores ({stages})")
    return lines


def _share(part_s: float, whole_s: float) -> str:
    share = f"{100 * part_s / whole_s:.0f}%" if whole_s > 0 else "-"
    return f"{units.seconds(part_s)}, {share}"
