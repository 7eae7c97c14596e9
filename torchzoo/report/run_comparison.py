"""A comparison of two runs as people read it: in the terminal, in a pull request, as an issue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torchzoo.analysis.compare import (
    Change,
    RunComparison,
    StatusChange,
    cases_of_single_processes,
    cases_to_measure_again,
    change_counts,
    split_findings,
    verdict_counts,
)
from torchzoo.analysis.hardware import HardwareMean, HardwareRatio
from torchzoo.analysis.judge import CASES_FROM, LEAST_THRESHOLD, PAIRS_FROM, THRESHOLD, Finding, Verdict
from torchzoo.analysis.reproduce import command
from torchzoo.analysis.run_figures import Metric
from torchzoo.record import Manifest
from torchzoo.report import terminal, units
from torchzoo.report.document import plain
from torchzoo.report.markdown import code_block, escape, table
from torchzoo.report.text import json_text

NAMES = {
    Metric.LATENCY: "latency",
    Metric.OVER_EAGER: "time over eager's",
    Metric.DEVICE_MEMORY: "device memory",
    Metric.HOST_MEMORY: "host memory",
    Metric.COMPILE_TIME: "compile time (CPU)",
}
_URGENCY = [Verdict.SLOWER, Verdict.MORE, Verdict.FASTER, Verdict.LESS, Verdict.INCONCLUSIVE, Verdict.SAME]
_HEADINGS = ("case", "metric", "base", "candidate", "ratio", "verdict", "note")
_MEANS = ("backend and axes", "mode", "domain", "ratio", "cases")
_MOST_PACKAGES = 30  # that a cell names
_TOO_MANY = 60_000  # characters: GitHub takes 65,536 in an issue or a comment


def title(comparison: RunComparison) -> str:
    """`Regression: 3 slower, 1 newly failing (torch 2.11.0 to 2.12.0)`."""
    verdicts = sum(verdict_counts(comparison).values(), start=Counter[Verdict]())
    changes = change_counts(comparison)
    parts = [f"{verdicts[kind]} {kind}" for kind in (Verdict.SLOWER, Verdict.MORE) if verdicts[kind]]
    if changes[Change.NEWLY_FAILING]:
        parts.append(f"{changes[Change.NEWLY_FAILING]} newly failing")
    torch = [manifest.environment.torch for manifest in _manifests(comparison)]
    between = f"torch {torch[0]} to {torch[1]}" if torch[0] != torch[1] else f"torch {torch[0]}"
    if comparison.is_across_hardware:
        devices = [d for d in comparison.differences if d.name in ("device", "CPU")]
        return f"{devices[-1].base} against {devices[-1].candidate} ({between})" if devices else between
    if not comparison.has_regression:
        open_ones = sum(finding.is_open for finding in comparison.findings)
        more = f", {open_ones} inconclusive beyond the threshold" if open_ones else ""
        return f"No regression found{more} ({between})"
    return f"Regression: {', '.join(parts)} ({between})"


def summary(comparison: RunComparison) -> list[str]:
    """How many verdicts and changes of status there are of each kind, a line for each metric."""
    lines = []
    for metric, verdicts in verdict_counts(comparison).items():
        counted = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in _URGENCY if verdicts[verdict])
        lines.append(f"{NAMES[metric]}: {counted}")
    changes = change_counts(comparison)
    states = [f"{changes[change]} {change}" for change in Change if changes[change]]
    states += [f"{comparison.still_failing} failing in both"] if comparison.still_failing else []
    if states:
        lines.append(f"status: {', '.join(states)}")
    if comparison.unsteady:
        labels = [case.label() for case in comparison.unsteady]
        lines.append(
            f"not compared, compiled again while they were measured ({len(labels)}): {units.first_few(labels)}"
        )
    lines += [*_seen(comparison), *_slow_hosts(comparison), *_shared_devices(comparison)]
    if single := cases_of_single_processes(comparison):
        lines.append(
            f"{len(single)} cases were measured by one process in each run. One process does not show how much "
            "processes differ, so a spread is assumed, and only large differences get a verdict: run both with "
            "--repeats 5"
        )
    return lines


def _threshold(comparison: RunComparison) -> str:
    if comparison.threshold is not None:
        return f"Least difference that matters: {100 * comparison.threshold:g}%."
    return (
        f"Least difference that matters: for each case what its noise allows, but at least {LEAST_THRESHOLD:.0%}; "
        f"{THRESHOLD:.0%} where a run has one process of a case."
    )


def _seen(comparison: RunComparison) -> list[str]:
    """How small a difference of the step's time could have been found, over the cases."""
    lines = []
    for metric, what in ((Metric.LATENCY, "the step's time"), (Metric.OVER_EAGER, "its time over eager's")):
        seen = [f.sees for f in comparison.findings if f.metric is metric and f.sees is not None]
        if seen:
            lines.append(f"differences of {what} that could be found: {units.least_differences(seen)}")
    return lines


def _slow_hosts(comparison: RunComparison) -> list[str]:
    """During how many cases the host stayed slow, and how fast each host was before its run."""
    if not any(comparison.slow_hosts):
        return []
    loops_s = [manifest.undisturbed_loop_s for manifest in (comparison.base_manifest, comparison.candidate_manifest)]
    loops = " and ".join(units.seconds(loop_s) if loop_s is not None else "not known" for loop_s in loops_s)
    base, candidate = comparison.slow_hosts
    return [
        f"the host stayed slow while {base} cases of the base and {candidate} of the candidate were measured: such "
        f"steps count (its own loop before each run: {loops})"
    ]


def _shared_devices(comparison: RunComparison) -> list[str]:
    if not any(comparison.shared_devices):
        return []
    base, candidate = comparison.shared_devices
    return [
        f"other processes used the device, or had it open, while {base} cases of the base and {candidate} of the "
        "candidate were measured: a difference is inconclusive where this holds for one side alone"
    ]


def _method(comparison: RunComparison) -> str:
    return (
        f"{_threshold(comparison)} Times: {_test(comparison)}, on the logarithms of "
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


# --- terminal ---


def on_terminal(comparison: RunComparison) -> Any:
    """How the runs differ, what changed, then how many findings there are of each kind."""
    from rich.console import Group

    runs = [("base", comparison.base), ("candidate", comparison.candidate)]
    parts: list[Any] = [terminal.table(("", ""), runs, has_headings=False)]
    if comparison.differences:
        differences = [(d.name, d.base, d.candidate) for d in comparison.differences]
        parts += ["", terminal.table(("differs in", "base", "candidate"), differences)]
    parts.append("")
    if comparison.is_across_hardware:
        parts.append("time of base over candidate: above 1 the candidate's hardware is faster")
        parts.append(terminal.table(_MEANS, map(_mean_cells, comparison.device_means), right=_MEANS[-1:]))
    changes = [change for change in comparison.changes if change.change not in (Change.NEW, Change.GONE)]
    parts += [f"{change.change}: {change.case.label()}: {change.base} -> {change.candidate}" for change in changes]
    wanted, _ = split_findings(comparison)
    if wanted:
        parts += findings_table(_sorted(wanted))
    for kind in (Change.NEW, Change.GONE):
        labels = [change.case.label() for change in comparison.changes if change.change is kind]
        if labels:
            parts.append(f"{kind} ({len(labels)}): {units.first_few(labels)}")
    parts += summary(comparison)
    return Group(*(terminal.text(part) if isinstance(part, str) else part for part in parts))


def findings_table(findings: Sequence[Finding]) -> list[Any]:
    """A line for each finding, then the notes on them, each once."""
    notes = list(dict.fromkeys(finding.remark for finding in findings if finding.remark))
    rows = [
        (
            f"{finding.case.label()}, {NAMES[finding.metric]}",
            finding.verdict,
            *_values(finding),
            ratio_text(finding),
            "" if finding.sees is None else units.difference(finding.sees),
            str(notes.index(finding.remark) + 1) if finding.remark else "",
        )
        for finding in findings
    ]
    headings = ("verdict", "base", "candidate", "ratio", "sees", "note")
    lines = [f"note {number}: {note}" for number, note in enumerate(notes, start=1)]
    return [terminal.CaseTable(headings, rows, right={"base", "candidate", "sees", "note"}), *lines]


def _values(finding: Finding) -> tuple[str, str]:
    unit = finding.metric.unit
    return units.metric_value(finding.base, unit), units.metric_value(finding.candidate, unit)


def ratio_text(finding: Finding) -> str:
    """`1.100x [1.080, 1.120]`: for times the 95% interval, for memory from the least to the greatest."""
    ratio = finding.ratio
    is_exact = ratio.of == "range" and ratio.low == ratio.high
    return f"{ratio.value:.3f}x" if is_exact else units.factor(ratio, decimals=3)


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: _URGENCY.index(finding.verdict))


def _mean_cells(mean: HardwareMean) -> tuple[str, ...]:
    return (mean.axes, mean.mode, mean.domain, units.factor(mean.ratio), str(mean.cases))


# --- Markdown ---


def markdown(comparison: RunComparison) -> str:
    """For a pull request: a heading, both environments and what changed. The rest is folded."""
    return _within_limit(comparison, lambda keep: "\n".join(_markdown_lines(comparison, heading="###", keep=keep)))


def body(comparison: RunComparison) -> str:
    """For a part of a longer text: both environments and what changed, without a heading. The rest is folded."""
    return _within_limit(comparison, lambda keep: "\n".join(_markdown_lines(comparison, heading=None, keep=keep)))


def github_issue(comparison: RunComparison) -> str:
    """An issue: the title as its first line, then the body, with the commands that measure each case again."""

    def whole(keep: int) -> str:
        body = _markdown_lines(comparison, heading=None, keep=keep)
        return "\n".join([f"# {escape(title(comparison))}", "", *body, *_commands(comparison)])

    return _within_limit(comparison, whole)


def _within_limit(comparison: RunComparison, write: Callable[[int], str]) -> str:
    """The text with all rows that did not change; or with as many of them as GitHub takes.

    Args:
        comparison: what is shown.
        write: makes the text, with at most so many rows in each folded table.
    """
    keep = len(comparison.findings) + len(comparison.device_ratios)
    text = write(keep)
    while len(text) > _TOO_MANY and keep > 0:
        keep //= 2
        text = write(keep)
    return text + "\n"


def _markdown_lines(comparison: RunComparison, *, heading: str | None, keep: int) -> list[str]:
    lines = [f"{heading} torchzoo: {escape(title(comparison))}", ""] if heading else []
    lines += [*_environment(comparison), ""]
    lines += [f"- {escape(line)}" for line in summary(comparison)]
    statuses = [change for change in comparison.changes if change.change not in (Change.NEW, Change.GONE)]
    if statuses:
        lines += ["", *table(("case", "status", "base", "candidate"), map(_change_cells, statuses))]
    if comparison.is_across_hardware:
        lines += _across(comparison, keep)
    else:
        wanted, rest = map(_sorted, split_findings(comparison))
        if wanted:
            lines += ["", *table(_HEADINGS, map(_cells, wanted))]
        lines += _folded(f"{len(rest)} same, or not known to differ", _HEADINGS, list(map(_cells, rest)), keep)
        lines += ["", _method(comparison)]
    for kind in (Change.NEW, Change.GONE):
        cells = [_change_cells(change) for change in comparison.changes if change.change is kind]
        lines += _folded(f"{len(cells)} {kind}", ("case", "status", "base", "candidate"), cells, keep)
    return lines


def _across(comparison: RunComparison, keep: int) -> list[str]:
    ratios = sorted(comparison.device_ratios, key=lambda one: -one.ratio.value)
    return [
        "",
        "Time of base over candidate; above 1 the candidate's hardware is faster. Geometric mean [95% "
        "interval over models]. A case's interval holds if those of its two times do.",
        "",
        *table(_MEANS, map(_mean_cells, comparison.device_means)),
        *_folded(f"{len(ratios)} cases", ("case", "ratio"), list(map(_device_cells, ratios)), keep),
    ]


def _device_cells(one: HardwareRatio) -> tuple[str, str]:
    return one.case.label(), units.speedup(one.ratio)


def _environment(comparison: RunComparison) -> list[str]:
    """Both runs in one table: first what differs, then what is the same of the machine and software."""
    rows = [(d.name, d.base, d.candidate) for d in comparison.differences]
    differing = {name for name, _, _ in rows}
    one, other = _manifests(comparison)
    for name, read in _ENVIRONMENT.items():
        if name not in differing:
            rows.append((name, read(one), read(other)))
    was, now = _unlike_packages(one, other, differing)
    if was:
        rows.append(("other packages", units.first_few(was, _MOST_PACKAGES), units.first_few(now, _MOST_PACKAGES)))
    return table(("", "base", "candidate"), [("run", comparison.base, comparison.candidate), *rows])


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


def _manifests(comparison: RunComparison) -> tuple[Manifest, Manifest]:
    return comparison.base_manifest, comparison.candidate_manifest


def _cells(finding: Finding) -> tuple[str, ...]:
    note = finding.remark
    if finding.p_value is not None:
        p_value = "p < 0.0001" if finding.p_value < 1e-4 else f"p = {finding.p_value:.4f}"
        note = f"{p_value}, {finding.base_processes} and {finding.candidate_processes} processes; {note}".rstrip("; ")
    return (
        finding.case.label(),
        NAMES[finding.metric],
        *_values(finding),
        ratio_text(finding),
        finding.verdict,
        note,
    )


def _change_cells(change: StatusChange) -> tuple[str, ...]:
    return (change.case.label(), change.change, change.base, change.candidate)


def _folded(label: str, headings: Sequence[str], rows: Sequence[Sequence[str]], keep: int) -> list[str]:
    if not rows:
        return []
    left_out = (
        f"{len(rows) - keep} more rows are left out: GitHub does not take a longer text." if len(rows) > keep else ""
    )
    body = [*table(headings, rows[:keep]), "", left_out] if keep else [left_out]
    return ["", "<details>", f"<summary>{label}</summary>", "", *body, "</details>"]


def _commands(comparison: RunComparison) -> list[str]:
    """The commands that measure the cases that regressed again, for the software of both runs."""
    shell = [
        command(case, comparison.candidate_manifest, repeats=repeats)
        for case, repeats in cases_to_measure_again(comparison).items()
    ]
    if not shell:
        return []
    return ["", "Measure again, with the software of base and of candidate:", "", *code_block(shell)]


# --- JSON ---


def as_json(comparison: RunComparison) -> str:
    """The whole comparison, unrounded. An infinite end of an interval is null, and so are both where there is none."""
    found = plain(comparison)
    for name in ("base_manifest", "candidate_manifest"):
        found[name.replace("manifest", "environment")] = found.pop(name)["environment"]
    found["has_regression"] = comparison.has_regression
    return json_text(found, indent=1) + "\n"
