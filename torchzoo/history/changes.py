"""Represent changes for the worse: their kinds, those that a night proposes, and those that a comparison shows."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

import msgspec

from torchzoo.analysis.cases import CaseResult, Status, case_results
from torchzoo.analysis.compare import REGRESSIONS, Change, RunComparison
from torchzoo.analysis.judge import Finding
from torchzoo.analysis.leaks import LeakVerdict, check
from torchzoo.analysis.run_figures import Metric, shown_variant
from torchzoo.case import Case
from torchzoo.report.over_time import value_text
from torchzoo.report.run_comparison import ratio_text
from torchzoo.report.units import counted
from torchzoo.stats import Estimate
from torchzoo.store import Run

LEAST_STEPS = 8  # of a leak check: with fewer, it has no verdict


class Kind(enum.StrEnum):
    """The kind of a change for the worse: a metric, or the outcome of the case."""

    LATENCY = Metric.LATENCY.value
    OVER_EAGER = Metric.OVER_EAGER.value
    DEVICE_TIME = Metric.DEVICE_TIME.value
    HOST_TIME = Metric.HOST_TIME.value
    DEVICE_MEMORY = Metric.DEVICE_MEMORY.value
    HOST_MEMORY = Metric.HOST_MEMORY.value
    COMPILE_TIME = Metric.COMPILE_TIME.value
    OPERATORS = Metric.OPERATORS.value
    PYTHON_CALLS = Metric.PYTHON_CALLS.value
    LAUNCHES = Metric.LAUNCHES.value
    ALLOCATIONS = Metric.ALLOCATIONS.value
    FAILING = "failing"
    INCORRECT = "incorrect"
    UNSTEADY = "unsteady"
    LEAKING = "leaking"
    GRAPH_BREAKS = "graph_breaks"

    @property
    def words(self) -> str:
        """The kind in words: `device memory`."""
        return self.value.replace("_", " ")

    @property
    def metric(self) -> Metric | None:
        """The metric; None for outcomes of the case."""
        return next((metric for metric in Metric if metric.value == self.value), None)


#: The kind of change that a status shows, if the case had a better one before.
KIND_OF_STATUS = {
    Status.FAILED: Kind.FAILING,
    Status.INCORRECT: Kind.INCORRECT,
    Status.REFUSED: Kind.FAILING,
    Status.UNSTEADY: Kind.UNSTEADY,
}

CaseKind = tuple[Case, Kind]


class Worse(msgspec.Struct, frozen=True, kw_only=True):
    """A case that became worse."""

    case: Case
    kind: Kind
    base: str = ""  # the last night before the change

    @property
    def key(self) -> CaseKind:
        return self.case, self.kind

    @property
    def label(self) -> str:
        """The case and the kind of change: `resnet18 eval cpu eager bs4: latency`."""
        return f"{self.case.label()}: {self.kind.words}"


class Proposal(Worse, frozen=True, kw_only=True):
    """A change that the runs of nights hint at. An A/B decides."""

    value: float | None = None  # of tonight, in seconds or bytes; None if the status changed
    usual: float | None = None  # of the nights before
    why: str  # for people


class Confirmed(Worse, frozen=True, kw_only=True):
    """A change that a comparison of two runs shows."""

    ratio: Estimate | None = None  # the candidate over the base; None if the status changed
    words: str  # for people: `10.0 ms -> 11.0 ms, 1.100x [1.090, 1.110]`

    @classmethod
    def of(cls, finding: Finding) -> Confirmed:
        """Return a difference as a change with both figures, and the ratio with its interval."""
        was, now = (value_text(finding.metric, value) for value in (finding.base, finding.candidate))
        words = f"{was} -> {now}, {ratio_text(finding)}"
        return cls(case=finding.case, kind=Kind(finding.metric.value), ratio=finding.ratio, words=words)


def changes_for_the_worse(comparison: RunComparison, base: Run, candidate: Run) -> dict[CaseKind, Confirmed]:
    """Return the changes for the worse: in metrics, statuses (failing, incorrect, unsteady), leaks and graph breaks."""
    found = [Confirmed.of(finding) for finding in comparison.findings if finding.verdict in REGRESSIONS]
    statuses = {result.case: result.status for result in case_results(candidate)}
    for change in comparison.changes:
        if change.change in (Change.NEWLY_FAILING, Change.NEWLY_UNSTEADY):
            words = f"{change.base} -> {change.candidate}"
            found.append(Confirmed(case=change.case, kind=KIND_OF_STATUS[statuses[change.case]], words=words))
    was, now = counts_of(case_results(base)), counts_of(case_results(candidate), of_processes=min)  # in every process
    for (case, kind), count in now.items():
        before = was.get((case, kind), count)
        if before < count:
            words = f"{count_text(kind, before)} -> {count_text(kind, count)}"
            found.append(Confirmed(case=case, kind=kind, words=words))
    return {one.key: one for one in found}


# --- counts ---


def counts_of(results: Iterable[CaseResult], *, of_processes: Callable[[list[int]], int] = max) -> dict[CaseKind, int]:
    """Return the counts of each case: its graph breaks, and after a leak check 1 if most processes leaked, else 0.

    If the processes of a case have unlike numbers of graph breaks, `of_processes` chooses one of these.
    """
    found: dict[CaseKind, int] = {}
    for result in results:
        variants = [measured.variants[shown_variant(measured)] for measured in result.measured]
        breaks = [one.compilation.break_count for one in variants if one.compilation is not None]
        if breaks:
            found[result.case, Kind.GRAPH_BREAKS] = of_processes(breaks)
        growths = [one.growth for one in variants if one.growth is not None]
        verdicts = [check(growth).verdict for growth in growths if len(growth.host_bytes) >= LEAST_STEPS]
        if verdicts:
            found[result.case, Kind.LEAKING] = int(2 * verdicts.count(LeakVerdict.LEAK) > len(verdicts))
    return found


def count_text(kind: Kind, count: int) -> str:
    """Return `2 graph breaks`; for leaks, `leaks memory` or `level`."""
    if kind is Kind.LEAKING:
        return "leaks memory" if count else "level"
    return counted(count, "graph break")
