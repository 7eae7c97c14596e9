"""The results of a comparison in short: verdicts by metric, what is still open, and what to measure again."""

from __future__ import annotations

from collections import Counter

from torchzoo.analysis.compare import REGRESSIONS, Change, RunComparison
from torchzoo.analysis.findings import Finding, Metric, Verdict
from torchzoo.case import Case

#: A regression is measured again by this many processes at least.
REPEATS = 5


def verdict_counts(comparison: RunComparison) -> dict[Metric, Counter[Verdict]]:
    """How often each verdict was given, for each metric that was judged."""
    found = {metric: Counter(f.verdict for f in comparison.findings if f.metric is metric) for metric in Metric}
    return {metric: verdicts for metric, verdicts in found.items() if verdicts}


def change_counts(comparison: RunComparison) -> Counter[Change]:
    """How many cases changed their status in each way."""
    return Counter(change.change for change in comparison.changes)


def is_open(finding: Finding) -> bool:
    """Whether a finding is inconclusive although the two figures are further apart than `same` allows."""
    is_far = max(finding.ratio.value, 1 / finding.ratio.value) >= 1 + finding.same_within
    return finding.verdict is Verdict.INCONCLUSIVE and is_far


def split_findings(comparison: RunComparison) -> tuple[list[Finding], list[Finding]]:
    """The findings that a reader must see (judged to differ, or open), and the rest."""
    wanted: list[Finding] = []
    rest: list[Finding] = []
    for finding in comparison.findings:
        is_wanted = finding.is_notable or is_open(finding)
        (wanted if is_wanted else rest).append(finding)
    return wanted, rest


def cases_of_single_processes(comparison: RunComparison) -> set[Case]:
    """The cases whose latency was tested with one process on each side."""
    return {
        f.case
        for f in comparison.findings
        if f.metric is Metric.LATENCY and f.p_value is not None and f.base_processes == f.candidate_processes == 1
    }


def cases_to_measure_again(comparison: RunComparison) -> dict[Case, int]:
    """The cases that regressed, and by how many processes to measure each."""
    found: dict[Case, int] = {}
    for finding in comparison.findings:
        if finding.verdict in REGRESSIONS:
            found[finding.case] = max(finding.base_processes, finding.candidate_processes, REPEATS)
    for change in comparison.changes:
        if change.change is Change.NEWLY_FAILING:
            found.setdefault(change.case, 1)
    return found
