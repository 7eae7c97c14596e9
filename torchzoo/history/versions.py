"""Compare two versions, dates or runs in each case and metric that both have."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from torchzoo.analysis.cases import Status
from torchzoo.analysis.compare import StatusChange, is_regression, status_changes, still_failing
from torchzoo.analysis.judge import FigurePair, Finding, judge
from torchzoo.analysis.run_figures import Metric, RunFigure
from torchzoo.analysis.series import IndexedRun, SoftwareChange, software_changes
from torchzoo.case import Case
from torchzoo.errors import nearest, written
from torchzoo.history.summaries import CaseSummary, History, HistoryError

#: The most runs of each side and kind of machine that are compared, those nearest to the other side in time.
MOST_RUNS = 10


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a version, date or run, in the order of time."""

    name: str
    runs: tuple[IndexedRun, ...]


class MachineChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes on one kind of machine."""

    machine: str
    findings: tuple[Finding, ...]
    changes: tuple[StatusChange, ...]
    still_failing: int


class VersionComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two sides, the differences of their software, and the changes on each kind of machine."""

    base: Selection
    candidate: Selection
    software: tuple[SoftwareChange, ...]
    machines: tuple[MachineChanges, ...]

    @property
    def has_regression(self) -> bool:
        """Whether a case is slower, takes more memory or newly fails."""
        return any(is_regression(one.findings, one.changes) for one in self.machines)


def side(runs: Sequence[IndexedRun], word: str) -> Selection:
    """Return the runs that a word stands for, of all runs in the order of time.

    A word is a run's folder or its name, a night's stamp, a date (2026-11-22, UTC), a version of torch (2.15.0, with or
    without its local part), or of any package (timm==1.0.20).
    """
    path = written(str(Path(word).resolve()))
    by_path = [run for run in runs if run.path == path]
    by_name = [run for run in runs if run.name == word]
    if len(by_name) > 1 and not by_path:
        raise HistoryError(f"{len(by_name)} runs have the name {word}: name one by its path, such as {by_name[0].path}")
    found = by_path or by_name
    if not found and re.fullmatch(r"\d{4}-\d\d-\d\d", word):
        found = [run for run in runs if run.created_at.startswith(word)]
        if not found:
            raise HistoryError(_no_run_on(word, runs))
    if not found:
        package, _, version = word.rpartition("==")
        found = _with_version(runs, package or "torch", version)
    return Selection(name=word, runs=tuple(found))


def _no_run_on(day: str, runs: Sequence[IndexedRun]) -> str:
    days = sorted({run.created_at[:10] for run in runs})
    near = [*[one for one in days if one < day][-1:], *[one for one in days if one > day][:1]]
    return f"no run on {day}; the nearest days with runs are {' and '.join(near)}"


def _with_version(runs: Sequence[IndexedRun], package: str, version: str) -> list[IndexedRun]:
    """Return the runs with a version of a package: `2.15.0` also stands for `2.15.0+cu130`."""
    versions = {run.path: run.software[package] for run in runs if package in run.software}
    found = [run for run in runs if version in (known := versions.get(run.path, ""), known.partition("+")[0])]
    if found:
        return found
    if not versions:
        known_names = dict.fromkeys(name for run in runs for name in run.software)
        hint = nearest(package, known_names, otherwise="see `torchzoo history show MODEL --json` for what is recorded")
        raise HistoryError(f"no run has a version of '{package}': {hint}")
    shown = ", ".join([*dict.fromkeys(versions.values())][-12:])
    days = sorted(run.created_at[:10] for run in runs)
    raise HistoryError(
        f"no run with {package} {version}: versions of {package} in the runs: {shown}; a date ({days[0]} to "
        f"{days[-1]}) or the folder of a run will do, too"
    )


def compare_versions(
    history: History,
    base: Selection,
    candidate: Selection,
    *,
    metrics: Sequence[Metric],
    threshold: float | None = None,
) -> VersionComparison:
    """Compare two sides, each case on its own kind of machine."""
    if {run.path for run in base.runs} & {run.path for run in candidate.runs}:
        raise HistoryError(f"'{base.name}' and '{candidate.name}' stand for the same runs: name two different sides")
    base_is_first = base.runs[0].created_at <= candidate.runs[0].created_at
    base = msgspec.structs.replace(base, runs=_nearest(base.runs, last=base_is_first))
    candidate = msgspec.structs.replace(candidate, runs=_nearest(candidate.runs, last=not base_is_first))
    old, new = (_by_machine(history, one) for one in (base, candidate))
    common = [
        (machine, case)
        for machine in sorted(old.keys() & new.keys())
        for case in sorted(old[machine].keys() & new[machine].keys(), key=str)
    ]
    if not common:
        raise HistoryError(
            f"'{base.name}' and '{candidate.name}' have no case on the same kind of machine in common: "
            "name runs of the same cases"
        )
    pairs: list[tuple[str, FigurePair]] = []  # with the machine
    for machine, case in common:
        was, now = _figures_of(old[machine][case]), _figures_of(new[machine][case])
        kinds = [kind for kind in was if kind in now and kind[0] in metrics]
        pairs += [(machine, FigurePair(case, kind[0], was[kind], now[kind])) for kind in kinds]
    findings = list(zip(pairs, judge([pair for _, pair in pairs], threshold), strict=True))
    changes = []
    for machine in sorted(old.keys() | new.keys()):
        statuses = [_statuses_of(one.get(machine, {})) for one in (old, new)]
        changes.append(
            MachineChanges(
                machine=machine,
                findings=tuple(finding for (where, _), finding in findings if where == machine),
                changes=status_changes(*statuses),
                still_failing=still_failing(*statuses),
            )
        )
    software = software_changes(base.runs[-1].software, candidate.runs[-1].software)
    return VersionComparison(base=base, candidate=candidate, software=software, machines=tuple(changes))


def _nearest(runs: Sequence[IndexedRun], *, last: bool) -> tuple[IndexedRun, ...]:
    """Return the last or first runs of each kind of machine, at most `MOST_RUNS` of each, in the order of time."""
    by_hardware: dict[str, list[IndexedRun]] = {}
    for run in runs:
        by_hardware.setdefault(run.hardware, []).append(run)
    kept = {run.path for some in by_hardware.values() for run in (some[-MOST_RUNS:] if last else some[:MOST_RUNS])}
    return tuple(run for run in runs if run.path in kept)


#: The summaries of each case in some runs, in the order of time.
_Summaries = dict[Case, list[CaseSummary]]


def _by_machine(history: History, of: Selection) -> dict[str, _Summaries]:
    found: dict[str, _Summaries] = defaultdict(lambda: defaultdict(list))
    for run in of.runs:
        for one in history.summaries[run.path].cases():
            found[one.machine][one.case].append(one)
    return found


def _figures_of(summaries: Sequence[CaseSummary]) -> dict[tuple[Metric, str], list[RunFigure]]:
    found: dict[tuple[Metric, str], list[RunFigure]] = defaultdict(list)
    for figure in (figure for one in summaries for figure in one.figures):
        found[figure.metric, figure.basis].append(figure)
    return found


def _statuses_of(summaries: _Summaries) -> dict[Case, tuple[Status, str]]:
    latest = {case: some[-1] for case, some in summaries.items()}
    return {case: (one.status, ": ".join(filter(None, (one.status, one.reason)))) for case, one in latest.items()}
