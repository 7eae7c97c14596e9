"""A comparison of two runs as people read it: in the terminal, in a pull request, as an issue."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from torchzoo.analysis.compare import REGRESSIONS, Change, RunComparison, StatusChange
from torchzoo.analysis.findings import Finding, Metric, Verdict
from torchzoo.analysis.hardware import HardwareMean, HardwareRatio
from torchzoo.analysis.reproduce import command
from torchzoo.case import Case
from torchzoo.record import Manifest
from torchzoo.report import units
from torchzoo.report.markdown import escape, table

NAMES = {
    Metric.LATENCY: "latency",
    Metric.DEVICE_MEMORY: "device memory",
    Metric.HOST_MEMORY: "host memory",
    Metric.COMPILE_TIME: "compile time (CPU)",
}
_TIMES = (Metric.LATENCY, Metric.COMPILE_TIME)
_URGENCY = [Verdict.SLOWER, Verdict.MORE, Verdict.FASTER, Verdict.LESS, Verdict.INCONCLUSIVE, Verdict.SAME]
_HEADINGS = ("case", "metric", "base", "candidate", "ratio", "verdict", "note")
_TOO_MANY = 60_000  # characters: GitHub takes 65,536 in an issue or a comment


def title(comparison: RunComparison) -> str:
    """`Regression: 3 slower, 1 newly failing (torch 2.11.0 to 2.12.0)`."""
    verdicts = Counter(finding.verdict for finding in comparison.findings)
    changes = Counter(change.change for change in comparison.changes)
    parts = [f"{verdicts[kind]} {kind}" for kind in (Verdict.SLOWER, Verdict.MORE) if verdicts[kind]]
    if changes[Change.NEWLY_FAILING]:
        parts.append(f"{changes[Change.NEWLY_FAILING]} newly failing")
    torch = [str(manifest.environment.get("torch")) for manifest in _manifests(comparison)]
    between = f"torch {torch[0]} to {torch[1]}" if torch[0] != torch[1] else f"torch {torch[0]}"
    if comparison.is_across_hardware:
        devices = [d for d in comparison.differences if d.name in ("device", "CPU")]
        return f"{devices[-1].base} against {devices[-1].candidate} ({between})" if devices else between
    if not comparison.has_regression:
        open_ones = sum(_is_open(finding, comparison.threshold) for finding in comparison.findings)
        more = f", {open_ones} inconclusive beyond the threshold" if open_ones else ""
        return f"No regression found{more} ({between})"
    return f"Regression: {', '.join(parts)} ({between})"


def summary(comparison: RunComparison) -> list[str]:
    """What was compared and what came of it, a line each."""
    findings = comparison.findings
    lines = []
    for metric in Metric:
        verdicts = Counter(finding.verdict for finding in findings if finding.metric is metric)
        if verdicts:
            told = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in _URGENCY if verdicts[verdict])
            lines.append(f"{NAMES[metric]}: {told}")
    changes = Counter(change.change for change in comparison.changes)
    states = [f"{changes[change]} {change}" for change in Change if changes[change]]
    states += [f"{comparison.still_failing} failing in both"] if comparison.still_failing else []
    if states:
        lines.append(f"status: {', '.join(states)}")
    single = {f.case for f in findings if f.metric is Metric.LATENCY and f.p_value is not None and _is_single(f)}
    if single:
        lines.append(
            f"{len(single)} cases were measured by one process a run, which can't tell how much processes differ: an "
            "assumed spread stands for it, and only large differences are judged; run both with --repeats 5"
        )
    return lines


def _is_single(finding: Finding) -> bool:
    return finding.base_processes == finding.candidate_processes == 1


def _method(comparison: RunComparison) -> str:
    return (
        f"Threshold {100 * comparison.threshold:g}%. Times: Welch's t-test between processes (logarithms of their "
        "medians), p-values adjusted by Holm over all cases and metrics, 5% for the whole comparison; intervals are "
        "95% of one case. Memory: the medians, where the repeats' ranges do not meet."
    )


# --- terminal ---


def terminal(comparison: RunComparison) -> Any:
    """Differences between the runs, what changed, then what the rest comes to."""
    from rich.text import Text

    lines = [f"base      {comparison.base}", f"candidate {comparison.candidate}"]
    lines += [f"different {d.name}: {d.base} / {d.candidate}" for d in comparison.differences]
    lines.append("")
    if comparison.is_across_hardware:
        lines += ["time of base over candidate: above 1 the candidate's hardware is faster", *_means_lines(comparison)]
    for change in comparison.changes:
        if change.change in (Change.NEW, Change.GONE):
            continue
        lines.append(f"{change.change}: {change.case.label()}: {change.base} -> {change.candidate}")
    for finding in _sorted(comparison.findings):
        if finding.is_notable or _is_open(finding, comparison.threshold):
            lines.append(f"{finding.verdict}: {finding.case.label()}: {NAMES[finding.metric]} {_told(finding)}")
    for kind in (Change.NEW, Change.GONE):
        labels = [change.case.label() for change in comparison.changes if change.change is kind]
        if labels:
            lines.append(f"{kind} ({len(labels)}): {_few(labels)}")
    return Text("\n".join([*lines, *summary(comparison)]))


def _is_open(finding: Finding, threshold: float) -> bool:
    """Inconclusive although the figures are far apart."""
    is_far = max(finding.ratio.value, 1 / finding.ratio.value) >= 1 + threshold
    return finding.verdict is Verdict.INCONCLUSIVE and is_far


def _few(labels: Sequence[str], most: int = 8) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return f"{', '.join(labels[:most])}{more}"


def _told(finding: Finding) -> str:
    base, candidate = _values(finding)
    remark = f" ({finding.remark})" if finding.remark else ""
    return f"{base} -> {candidate}, {_ratio(finding)}{remark}"


def _values(finding: Finding) -> tuple[str, str]:
    if finding.metric in _TIMES:
        return units.seconds(finding.base), units.seconds(finding.candidate)
    return units.size(round(finding.base)), units.size(round(finding.candidate))


def _ratio(finding: Finding) -> str:
    """`1.10x [1.08, 1.12]`: the 95% interval of times; of memory from the least to the greatest."""
    ratio = finding.ratio
    if ratio.low == ratio.high or ratio.high == float("inf"):
        return f"{ratio.value:.3f}x"
    return f"{ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}]"


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: _URGENCY.index(finding.verdict))


def _means_lines(comparison: RunComparison) -> list[str]:
    return ["  ".join(cells) for cells in map(_mean_cells, comparison.device_means)]


def _mean_cells(mean: HardwareMean) -> tuple[str, ...]:
    ratio = units.factor(mean.ratio.value, mean.ratio.low, mean.ratio.high)
    return (mean.axes, mean.mode, mean.domain, ratio, str(mean.cases))


# --- Markdown ---


def markdown(comparison: RunComparison) -> str:
    """For a pull request: a heading, both environments, what changed, and the rest folded away."""
    return _within_limit(comparison, lambda keep: "\n".join(_markdown_lines(comparison, heading="###", keep=keep)))


def github_issue(comparison: RunComparison) -> str:
    """A whole issue: the title as its first line, then the body, with the commands that measure each case again."""

    def whole(keep: int) -> str:
        body = _markdown_lines(comparison, heading=None, keep=keep)
        return "\n".join([f"# {escape(title(comparison))}", "", *body, *_commands(comparison)])

    return _within_limit(comparison, whole)


def _within_limit(comparison: RunComparison, write: Callable[[int], str]) -> str:
    """All rows that did not change are kept, or as many as GitHub takes."""
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
        changed = [f for f in _sorted(comparison.findings) if f.is_notable or _is_open(f, comparison.threshold)]
        rest = [f for f in _sorted(comparison.findings) if f not in changed]
        if changed:
            lines += ["", *table(_HEADINGS, map(_cells, changed))]
        lines += _folded(f"{len(rest)} same, or not known to differ", _HEADINGS, list(map(_cells, rest)), keep)
        lines += ["", _method(comparison)]
    for kind in (Change.NEW, Change.GONE):
        cells = [_change_cells(change) for change in comparison.changes if change.change is kind]
        lines += _folded(f"{len(cells)} {kind}", ("case", "status", "base", "candidate"), cells, keep)
    return lines


def _across(comparison: RunComparison, keep: int) -> list[str]:
    ratios = sorted(comparison.device_ratios, key=lambda one: -one.ratio)
    return [
        "",
        "Time of base over candidate; above 1 the candidate's hardware is faster. Geometric mean [95% bootstrap "
        "interval over models, processes and samples].",
        "",
        *table(("backend and axes", "mode", "domain", "ratio", "cases"), map(_mean_cells, comparison.device_means)),
        *_folded(f"{len(ratios)} cases", ("case", "ratio"), list(map(_device_cells, ratios)), keep),
    ]


def _device_cells(one: HardwareRatio) -> tuple[str, str]:
    return one.case.label(), f"{one.ratio:.2f}x"


def _environment(comparison: RunComparison) -> list[str]:
    """Both runs in one table: what differs first, then what is the same of machine and software."""
    rows = [(d.name, d.base, d.candidate) for d in comparison.differences]
    differing = {name for name, _, _ in rows}
    one, other = _manifests(comparison)
    for name, read in _FACTS.items():
        if name not in differing:
            rows.append((name, read(one), read(other)))
    return table(("", "base", "candidate"), [("run", comparison.base, comparison.candidate), *rows])


_FACTS: dict[str, Callable[[Manifest], str]] = {
    "date": lambda manifest: manifest.created_at[:10],
    "GPU": lambda manifest: ", ".join(gpu["name"] for gpu in manifest.environment.get("gpus") or []) or "none",
    "CPU": lambda manifest: str(manifest.environment.get("cpu")),
    "torch": lambda manifest: str(manifest.environment.get("torch")),
    "torchzoo": lambda manifest: str(manifest.environment.get("torchzoo")),
    "command": lambda manifest: " ".join(manifest.command),
}


def _manifests(comparison: RunComparison) -> tuple[Manifest, Manifest]:
    return comparison.base_manifest, comparison.candidate_manifest


def _cells(finding: Finding) -> tuple[str, ...]:
    note = finding.remark
    if finding.p_value is not None:
        p_value = "p < 0.0001" if finding.p_value < 1e-4 else f"p = {finding.p_value:.4f}"
        note = f"{p_value}, {finding.base_processes} and {finding.candidate_processes} processes; {note}".rstrip("; ")
    return (finding.case.label(), NAMES[finding.metric], *_values(finding), _ratio(finding), finding.verdict, note)


def _change_cells(change: StatusChange) -> tuple[str, ...]:
    return (change.case.label(), change.change, change.base, change.candidate)


def _folded(label: str, headings: Sequence[str], rows: Sequence[Sequence[str]], keep: int) -> list[str]:
    if not rows:
        return []
    left_out = f"{len(rows) - keep} more rows are left out: GitHub takes no longer text." if len(rows) > keep else ""
    body = [*table(headings, rows[:keep]), "", left_out] if keep else [left_out]
    return ["", "<details>", f"<summary>{label}</summary>", "", *body, "</details>"]


def _commands(comparison: RunComparison) -> list[str]:
    """What measures again each case that regressed, with either software."""
    cases: dict[Case, int] = {}
    for finding in comparison.findings:
        if finding.verdict in REGRESSIONS:
            cases[finding.case] = max(finding.base_processes, finding.candidate_processes, 5)
    for change in comparison.changes:
        if change.change is Change.NEWLY_FAILING:
            cases.setdefault(change.case, 1)
    if not cases:
        return []
    shell = [command(case, comparison.candidate_manifest, repeats=repeats) for case, repeats in cases.items()]
    fence = "`" * max(3, 1 + max(_longest_ticks(line) for line in shell))
    return ["", "Measure again, with the software of base and of candidate:", "", f"{fence}sh", *shell, fence]


def _longest_ticks(text: str) -> int:
    longest = 0
    while "`" * (longest + 1) in text:
        longest += 1
    return longest


# --- JSON ---


def as_json(comparison: RunComparison) -> str:
    """Everything, unrounded; an infinite end of an interval is null."""
    plain = msgspec.to_builtins(comparison)
    for name in ("base_manifest", "candidate_manifest"):
        plain[name.replace("manifest", "environment")] = plain.pop(name)["environment"]
    plain["has_regression"] = comparison.has_regression
    return json.dumps(json.loads(msgspec.json.encode(plain)), indent=1) + "\n"
