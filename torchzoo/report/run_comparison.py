"""A comparison of two runs: the document that people read, its title, and JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from torchzoo.analysis.command_lines import command
from torchzoo.analysis.compare import (
    Change,
    RunComparison,
    StatusChange,
    cases_of_single_processes,
    cases_to_measure_again,
)
from torchzoo.analysis.judge import CASES_FROM, LEAST_THRESHOLD, PAIRS_FROM, THRESHOLD, Finding, Verdict
from torchzoo.analysis.run_figures import COUNTS, Metric
from torchzoo.record import Manifest
from torchzoo.report import markdown, terminal, units
from torchzoo.report.document import Block, Cell, Code, Column, Fold, Heading, Items, Style, Table, Text, table
from torchzoo.report.json_report import plain
from torchzoo.report.text import json_text

NAMES = {
    Metric.LATENCY: "latency",
    Metric.OVER_EAGER: "time over eager's",
    Metric.DEVICE_TIME: "device time",
    Metric.HOST_TIME: "host time",
    Metric.DEVICE_MEMORY: "device memory",
    Metric.HOST_MEMORY: "host memory",
    Metric.COMPILE_TIME: "compile time (CPU)",
    **{metric: metric.value.replace("_", " ") for metric in COUNTS},
}
_URGENCY = [Verdict.SLOWER, Verdict.MORE, Verdict.FASTER, Verdict.LESS, Verdict.INCONCLUSIVE, Verdict.SAME]
_STYLES = {
    Verdict.SLOWER: Style.BAD,
    Verdict.MORE: Style.BAD,
    Verdict.FASTER: Style.GOOD,
    Verdict.LESS: Style.GOOD,
    Verdict.SAME: Style.FAINT,
}
_FINDINGS = (
    Column("case"),
    Column("metric", is_detail=True),
    Column("verdict"),
    Column("base", is_number=True),
    Column("candidate", is_number=True),
    Column("ratio"),
    Column("sees", is_number=True),
    Column("note", is_note=True),
)
_CHANGES = ("case", "status", "base", "candidate")
_MEANS = ("backend and axes", "mode", "domain", Column("ratio"), Column("cases", is_number=True))
_MOST_PACKAGES = 30  # in a cell


def title(comparison: RunComparison) -> str:
    """`Regression: 3 slower, 1 newly failing (torch 2.11.0 to 2.12.0)`."""
    verdicts = Counter(finding.verdict for finding in comparison.findings)
    changes = Counter(change.change for change in comparison.changes)
    parts = [f"{verdicts[kind]} {kind}" for kind in (Verdict.SLOWER, Verdict.MORE) if verdicts[kind]]
    if changes[Change.NEWLY_FAILING]:
        parts.append(f"{changes[Change.NEWLY_FAILING]} newly failing")
    torch = [manifest.environment.torch for manifest in (comparison.base_manifest, comparison.candidate_manifest)]
    between = f"torch {torch[0]} to {torch[1]}" if torch[0] != torch[1] else f"torch {torch[0]}"
    if comparison.is_across_hardware and not comparison.has_regression:
        devices = [d for d in comparison.differences if d.name in ("device", "CPU")]
        return f"{devices[-1].base} against {devices[-1].candidate} ({between})" if devices else between
    if not comparison.has_regression:
        open_ones = sum(finding.is_open for finding in comparison.findings)
        more = f", {open_ones} inconclusive beyond the threshold" if open_ones else ""
        return f"No regression found{more} ({between})"
    return f"Regression: {', '.join(parts)} ({between})"


def tally(findings: Sequence[Finding], changes: Iterable[StatusChange], still_failing: int) -> list[str]:
    """How many verdicts and changes of status there are of each kind, a line for each metric."""
    lines = []
    for metric in Metric:
        verdicts = Counter(finding.verdict for finding in findings if finding.metric is metric)
        if verdicts:
            counted = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in _URGENCY if verdicts[verdict])
            lines.append(f"{NAMES[metric]}: {counted}")
    kinds = Counter(one.change for one in changes)
    states = [f"{kinds[kind]} {kind}" for kind in Change if kinds[kind]]
    states += [f"{still_failing} failing in both"] if still_failing else []
    return [*lines, *([f"status: {', '.join(states)}"] if states else [])]


def summary(comparison: RunComparison) -> list[str]:
    """How many findings there are of each kind, and what a reader must know of both runs to judge them."""
    lines = tally(comparison.findings, comparison.changes, comparison.still_failing)
    if comparison.unsteady:
        labels = [case.label() for case in comparison.unsteady]
        lines.append(
            f"not compared, compiled again while they were measured ({len(labels)}): {units.first_few(labels)}"
        )
    lines += [*_seen(comparison), *_disturbed(comparison)]
    if single := cases_of_single_processes(comparison):
        lines.append(
            f"{len(single)} cases were measured by one process in each run. One process does not show how much "
            "processes differ, so a spread is assumed, and only large differences get a verdict: run both with "
            "--repeats 5"
        )
    return lines


def _seen(comparison: RunComparison) -> list[str]:
    lines = []
    for metric, what in ((Metric.LATENCY, "the step's time"), (Metric.OVER_EAGER, "its time over eager's")):
        seen = [f.sees for f in comparison.findings if f.metric is metric and f.sees is not None]
        if seen:
            lines.append(f"differences of {what} that could be found: {units.least_differences(seen)}")
    return lines


def _disturbed(comparison: RunComparison) -> list[str]:
    lines = []
    if any(comparison.slow_hosts):
        loops_s = [
            manifest.undisturbed_loop_s for manifest in (comparison.base_manifest, comparison.candidate_manifest)
        ]
        loops = " and ".join(units.seconds(loop_s) if loop_s is not None else "not known" for loop_s in loops_s)
        base, candidate = comparison.slow_hosts
        lines.append(
            f"the host stayed slow while {base} cases of the base and {candidate} of the candidate were measured: such "
            f"steps count (its own loop before each run: {loops})"
        )
    if any(comparison.shared_devices):
        base, candidate = comparison.shared_devices
        lines.append(
            f"other processes used the device, or had it open, while {base} cases of the base and {candidate} of the "
            "candidate were measured: a difference is inconclusive where this holds for one side alone"
        )
    return lines


def _method(comparison: RunComparison) -> str:
    least = (
        f"for each case what its noise allows, but at least {LEAST_THRESHOLD:.0%}; {THRESHOLD:.0%} where a run has one "
        "process of a case"
    )
    if comparison.threshold is not None:
        least = f"{100 * comparison.threshold:g}%"
    return (
        f"Least difference that matters: {least}. Times: {_test(comparison)}, on the logarithms of "
        "their medians. The p-values are adjusted by Holm's method over all cases and metrics, so that 1% holds for "
        "the whole comparison. Intervals are 95% intervals of one case. Memory: the medians, where the ranges of the "
        "repeats do not overlap."
    )


def _test(comparison: RunComparison) -> str:
    repeated = {f.case for f in comparison.findings if f.p_value is not None and f.base_processes > 1}
    if comparison.in_turns and len(repeated) >= CASES_FROM:
        return "moderated t-test (Smyth, 2004) between pairs of processes in turns, whose noise all cases tell together"
    if comparison.in_turns:
        return f"Welch's t-test between processes (from {PAIRS_FROM} a side on: between pairs, measured in turns)"
    over_eager = {f.case for f in comparison.findings if f.metric is Metric.OVER_EAGER and f.base_processes > 1}
    if len(over_eager) >= CASES_FROM:
        return "Welch's t-test between processes (moderated, Smyth, 2004, of the times over eager's)"
    return "Welch's t-test between processes"


# --- the document ---


def document(comparison: RunComparison) -> list[Block]:
    """How the runs differ, what changed, and how many findings there are of each kind. The rest is folded."""
    blocks: list[Block] = [_environment(comparison)]
    blocks += _across(comparison) if comparison.is_across_hardware else []
    blocks += [*what_changed(comparison.findings, comparison.changes), Items(tuple(summary(comparison)))]
    if comparison.findings or not comparison.is_across_hardware:
        if rest := [one for one in comparison.findings if not _is_wanted(one)]:
            blocks.append(Fold((findings_table(rest),), f"{len(rest)} same, or not known to differ"))
        blocks.append(Fold((Text(_method(comparison)),)))
    for kind in (Change.NEW, Change.GONE):
        if some := [change for change in comparison.changes if change.change is kind]:
            labels = units.first_few([change.case.label() for change in some])
            brief = Text(f"{kind} ({len(some)}): {labels}")
            blocks.append(Fold((changes_table(some),), f"{len(some)} {kind}", brief=(brief,)))
    return blocks


def what_changed(findings: Sequence[Finding], changes: Iterable[StatusChange]) -> list[Block]:
    """The cases of both sides whose status changed, and the findings that a reader must see."""
    tables = [
        changes_table(change for change in changes if change.change not in (Change.NEW, Change.GONE)),
        findings_table(filter(_is_wanted, findings)),
    ]
    return [one for one in tables if one.rows]


def _is_wanted(finding: Finding) -> bool:
    return finding.is_notable or finding.is_open


def github_issue(comparison: RunComparison) -> list[Block]:
    """An issue: the title, the comparison, and the commands that measure each case that regressed again."""
    commands = [
        command(case, comparison.candidate_manifest, repeats=repeats)
        for case, repeats in cases_to_measure_again(comparison).items()
    ]
    again: list[Block] = [Text("Measure again, with the software of base and of candidate:"), Code(tuple(commands))]
    return [Heading(title(comparison), level=1), *document(comparison), *(again if commands else [])]


def changes_table(changes: Iterable[StatusChange]) -> Table:
    """Cases whose status changed, with what became of them in both runs."""
    return table(_CHANGES, ((one.case.label(), one.change, one.base, one.candidate) for one in changes))


def findings_table(findings: Iterable[Finding]) -> Table:
    """A row for each finding, with a note on how it was tested; the largest difference of each verdict first."""
    ordered = sorted(findings, key=lambda one: (_URGENCY.index(one.verdict), -abs(math.log(one.ratio.value))))
    return table(_FINDINGS, map(_cells, ordered)).used()


def _cells(finding: Finding) -> tuple[Cell | str, ...]:
    note = finding.remark
    if finding.p_value is not None:
        p_value = "p < 0.0001" if finding.p_value < 1e-4 else f"p = {finding.p_value:.4f}"
        note = f"{p_value}, {finding.base_processes} and {finding.candidate_processes} processes; {note}".rstrip("; ")
    label, unit = finding.case.label(), finding.metric.unit
    return (
        Cell(label, short=f"{label}, {NAMES[finding.metric]}"),
        NAMES[finding.metric],
        Cell(finding.verdict, style=_STYLES.get(finding.verdict)),
        units.metric_value(finding.base, unit),
        units.metric_value(finding.candidate, unit),
        ratio_text(finding),
        "" if finding.sees is None else units.difference(finding.sees),
        Cell(note, short=finding.remark),
    )


def ratio_text(finding: Finding) -> str:
    """`1.100x [1.080, 1.120]`: for times the 95% interval, for memory from the least to the greatest."""
    ratio = finding.ratio
    is_exact = ratio.of == "range" and ratio.low == ratio.high
    return f"{ratio.value:.3f}x" if is_exact else units.factor(ratio, decimals=3)


def _across(comparison: RunComparison) -> list[Block]:
    ratios = sorted(comparison.device_ratios, key=lambda one: -one.ratio.value)
    means = [
        (mean.axes, mean.mode, mean.domain, units.factor(mean.ratio), str(mean.cases))
        for mean in comparison.device_means
    ]
    return [
        Text(
            "Time of base over candidate; above 1 the candidate's hardware is faster. Geometric mean [95% "
            "interval over models]. A case's interval holds if those of its two times do."
        ),
        table(_MEANS, means),
        Fold(
            (table(("case", "ratio"), ((one.case.label(), units.speedup(one.ratio)) for one in ratios)),),
            f"{len(ratios)} cases",
        ),
    ]


def _environment(comparison: RunComparison) -> Fold:
    """Both runs in one table: first what differs, then what is the same of the machine and software."""
    runs = ("run", comparison.base, comparison.candidate)
    rows = [runs, *((d.name, d.base, d.candidate) for d in comparison.differences)]
    brief = table(("", "base", "candidate"), rows)
    differing = {name for name, _, _ in rows}
    one, other = comparison.base_manifest, comparison.candidate_manifest
    for name, read in _ENVIRONMENT.items():
        if name not in differing:
            rows.append((name, read(one), read(other)))
    was, now = _unlike_packages(one, other, differing)
    if was:
        rows.append(("other packages", units.first_few(was, _MOST_PACKAGES), units.first_few(now, _MOST_PACKAGES)))
    return Fold((table(("", "base", "candidate"), rows),), brief=(brief,))


def _unlike_packages(base: Manifest, candidate: Manifest, differing: set[str]) -> list[list[str]]:
    """The packages beside `differing` that both have, in other versions: of each side."""
    versions = [manifest.environment.distributions or {} for manifest in (base, candidate)]
    unlike = [name for name in versions[0] if versions[0][name] != versions[1].get(name, versions[0][name])]
    unlike = [name for name in unlike if name not in differing]
    return [[f"{name} {side[name]}" for name in unlike] for side in versions]


_ENVIRONMENT: dict[str, Callable[[Manifest], str]] = {
    "date": lambda manifest: manifest.created_at[:10],
    "GPU": lambda manifest: ", ".join(gpu.name for gpu in manifest.environment.gpus) or "none",
    "CPU": lambda manifest: manifest.environment.cpu,
    "python": lambda manifest: manifest.environment.python,
    "torch": lambda manifest: manifest.environment.torch,
    "torchzoo": lambda manifest: manifest.environment.torchzoo,
    "command": lambda manifest: " ".join(manifest.command),
}


# --- formats ---


def as_markdown(comparison: RunComparison) -> str:
    """For a pull request: a heading, then the document, as long as GitHub takes."""
    heading = Heading(f"torchzoo: {title(comparison)}", level=3)
    return markdown.render([heading, *document(comparison)], longest=markdown.FITS_GITHUB)


def as_issue(comparison: RunComparison) -> str:
    """An issue for GitHub in Markdown: the title as its first line, then the body."""
    return markdown.render(github_issue(comparison), longest=markdown.FITS_GITHUB)


def as_json(comparison: RunComparison) -> str:
    """The whole comparison, unrounded. An infinite end of an interval is null, and so are both where there is none."""
    found = plain(comparison)
    for name in ("base_manifest", "candidate_manifest"):
        found[name.replace("manifest", "environment")] = found.pop(name)["environment"]
    found["has_regression"] = comparison.has_regression
    return json_text(found, indent=1) + "\n"


def _as_table(comparison: RunComparison) -> str:
    return "\n".join([*terminal.lines(terminal.render(document(comparison))), ""])


FORMATS = {"table": _as_table, "md": as_markdown, "github-issue": as_issue, "json": as_json}
