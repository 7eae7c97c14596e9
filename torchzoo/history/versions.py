"""Compare two versions, dates or runs in each case and metric that both have."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

import msgspec

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
    """Return the runs that a word stands for.

    Args:
        runs: all, in the order of time.
        word: a run's folder or its name, a night's stamp, a date (2026-11-22, UTC), a version of torch (2.15.0, with or
            without its local part), or of any package (timm==1.0.20).

    Raises:
        HistoryError: the word stands for none; the message names what there is.
    """
    if not runs:
        raise HistoryError("there are no runs: keep some with `torchzoo run ... -o DIR/NAME`")
    found = _named(runs, word)
    if not found:
        raise HistoryError(_unknown(runs, word))
    return Selection(name=word, runs=tuple(found))


def _named(runs: Sequence[IndexedRun], word: str) -> list[IndexedRun]:
    if "==" in word:
        package, _, version = word.partition("==")
        return [run for run in runs if _is_version(run.software.get(package, ""), version)]
    path = written(str(Path(word).resolve()))
    if by_path := [run for run in runs if run.path == path]:
        return by_path
    if by_name := [run for run in runs if run.name == word]:
        if len(by_name) > 1:
            raise HistoryError(
                f"{len(by_name)} runs have the name {word}: name one by its path, such as {by_name[0].path}"
            )
        return by_name
    if _as_date(word) is not None:
        return [run for run in runs if run.created_at.startswith(word)]
    return [run for run in runs if _is_version(run.torch, word)]


def _is_version(version: str, word: str) -> bool:
    """Whether a version matches the word: `2.15.0` also stands for `2.15.0+cu130`."""
    return word in (version, version.partition("+")[0])


def _as_date(word: str) -> date | None:
    try:
        return date.fromisoformat(word) if len(word) == len("2026-11-22") else None
    except ValueError:
        return None


def _unknown(runs: Sequence[IndexedRun], word: str) -> str:
    dates = sorted({run.created_at[:10] for run in runs})
    if _as_date(word) is not None:
        before, after = [day for day in dates if day < word], [day for day in dates if day > word]
        near = " and ".join([*before[-1:], *after[:1]])
        return f"no run on {word}; the nearest days with runs are {near}"
    package = word.partition("==")[0] if "==" in word else "torch"
    versions = list(dict.fromkeys(run.software[package] for run in runs if package in run.software))
    if not versions:
        known = dict.fromkeys(name for run in runs for name in run.software)
        hint = nearest(package, known, otherwise="see `torchzoo history show MODEL --json` for what is recorded")
        return f"no run has a version of '{package}': {hint}"
    shown = ", ".join(versions[-12:])
    return (
        f"no run with {package} {word.partition('==')[2] or word}: versions of {package} in the runs: {shown}; a date "
        f"({dates[0]} to {dates[-1]}) or the folder of a run will do, too"
    )


_MachineCase = tuple[Case, str]  # a case on a kind of machine


def compare_versions(
    history: History,
    base: Selection,
    candidate: Selection,
    *,
    metrics: Sequence[Metric],
    threshold: float | None = None,
) -> VersionComparison:
    """Compare two sides, each case on its own kind of machine.

    Raises:
        HistoryError: the sides share a run, or have no case on the same kind of machine in common.
    """
    if {run.path for run in base.runs} & {run.path for run in candidate.runs}:
        raise HistoryError(f"'{base.name}' and '{candidate.name}' stand for the same runs: name two different sides")
    base_is_first = base.runs[0].created_at <= candidate.runs[0].created_at
    base = msgspec.structs.replace(base, runs=_nearest(base.runs, last=base_is_first))
    candidate = msgspec.structs.replace(candidate, runs=_nearest(candidate.runs, last=not base_is_first))
    old, new = (_of_cases(history, one) for one in (base, candidate))
    if old.keys().isdisjoint(new):
        raise HistoryError(
            f"'{base.name}' and '{candidate.name}' have no case on the same kind of machine in common: "
            "name runs of the same cases"
        )
    pairs: list[FigurePair] = []
    machines: list[str] = []
    for key in sorted(old.keys() & new.keys(), key=str):
        was, now = _figures_of(old[key]), _figures_of(new[key])
        for kind in was:
            if kind in now and kind[0] in metrics:
                pairs.append(FigurePair(key[0], kind[0], was[kind], now[kind]))
                machines.append(key[1])
    by_machine: dict[str, list[Finding]] = {}
    for machine, finding in zip(machines, judge(pairs, threshold), strict=True):
        by_machine.setdefault(machine, []).append(finding)
    return VersionComparison(
        base=base,
        candidate=candidate,
        software=software_changes(base.runs[-1].software, candidate.runs[-1].software),
        machines=tuple(
            _of_machine(machine, by_machine.get(machine, []), old, new)
            for machine in sorted({machine for _, machine in (*old, *new)})
        ),
    )


def _of_cases(history: History, of: Selection) -> dict[_MachineCase, list[CaseSummary]]:
    """Return the summaries of each case, in the order of time."""
    found: dict[_MachineCase, list[CaseSummary]] = {}
    for run in of.runs:
        for one in history.cases_of(run):
            found.setdefault((one.case, one.machine), []).append(one)
    return found


def _figures_of(summaries: Sequence[CaseSummary]) -> dict[tuple[Metric, str], list[RunFigure]]:
    found: dict[tuple[Metric, str], list[RunFigure]] = {}
    for one in summaries:
        for figure in one.figures:
            found.setdefault((figure.metric, figure.basis), []).append(figure)
    return found


def _nearest(runs: Sequence[IndexedRun], *, last: bool) -> tuple[IndexedRun, ...]:
    """Return the last or first runs of each kind of machine, at most `MOST_RUNS` of each, in the order of time."""
    by_hardware: dict[str, list[IndexedRun]] = {}
    for run in runs:
        by_hardware.setdefault(run.hardware, []).append(run)
    kept = {run.path for some in by_hardware.values() for run in (some[-MOST_RUNS:] if last else some[:MOST_RUNS])}
    return tuple(run for run in runs if run.path in kept)


def _of_machine(
    machine: str,
    findings: Sequence[Finding],
    old: dict[_MachineCase, list[CaseSummary]],
    new: dict[_MachineCase, list[CaseSummary]],
) -> MachineChanges:
    statuses = [
        {
            case: (latest.status, ": ".join(filter(None, (latest.status, latest.reason))))
            for (case, where), (*_, latest) in side.items()
            if where == machine
        }
        for side in (old, new)
    ]
    return MachineChanges(
        machine=machine,
        findings=tuple(findings),
        changes=status_changes(*statuses),
        still_failing=still_failing(*statuses),
    )
