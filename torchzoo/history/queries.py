"""Read the index: its runs, its cases, series, and the figures of some runs."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchzoo.analysis.cases import Status
from torchzoo.analysis.run_figures import Metric, RunFigure
from torchzoo.analysis.series import IndexedRun, Series, SeriesPoint
from torchzoo.case import AXES, Case
from torchzoo.errors import written
from torchzoo.history.index import Index, is_below
from torchzoo.history.schema import CASE_COLUMNS

#: Columns of the table `cases`, and the values that are wanted of each; None or no entry: any value.
Wanted = Mapping[str, Sequence[str | int] | None]

_CASE = ", ".join(CASE_COLUMNS)
_FIGURE = "value, low, high, confidence, processes, log_error, is_device_bound, host_loop_s, always_shared, eager_s"


class MachineCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case on a kind of machine."""

    case: Case
    machine: str


def runs(index: Index, below: Sequence[Path] = ()) -> list[IndexedRun]:
    """Return the runs that could be read, in the order of time.

    Args:
        index: the index, which may also have runs that are elsewhere or gone.
        below: if any: the folders whose runs are wanted, at any depth.
    """
    columns = "run_id, path, created_at, hardware, software"
    with index.refusing():
        rows = index.connection.execute(
            f"SELECT {columns} FROM runs WHERE created_at != '' ORDER BY created_at, path"  # noqa: S608  names of ours
        ).fetchall()
    tops = [written(str(folder.resolve())) for folder in below]
    software: dict[str, dict[str, str]] = {}  # nights with the same software share it
    for *_, text in rows:
        if text not in software:
            software[text] = msgspec.json.decode(text, type=dict[str, str])
    return [
        IndexedRun(run_id=run_id, path=path, created_at=created_at, hardware=hardware, software=software[text])
        for run_id, path, created_at, hardware, text in rows
        if not below or any(is_below(path, top) for top in tops)
    ]


def cases(index: Index, wanted: Wanted | None = None) -> dict[int, MachineCase]:
    """Return the cases by their number in the index, in the order of model, axes and machine."""
    where, values = _where(wanted or {})
    with index.refusing():
        rows = index.connection.execute(f"SELECT case_id, {_CASE} FROM cases{where} ORDER BY {_CASE}", values)  # noqa: S608
        return {case_id: _machine_case(row) for case_id, *row in rows}


def series(
    index: Index,
    wanted: Wanted | None = None,
    metrics: Sequence[Metric] = tuple(Metric),
    *,
    below: Sequence[Path] = (),
) -> list[Series]:
    """Return the series of the wanted cases, in the order of the cases and then of the metrics.

    A point stands for each run in which the case has a result on that machine. A case that never passed has a series
    of the first wanted metric, without figures. A case without a result in the runs `below` has no series.
    """
    by_run = {run.run_id: run for run in runs(index, below)}
    order = {run_id: place for place, run_id in enumerate(by_run)}
    found_cases = cases(index, wanted)
    where, values = _where(wanted or {})
    of_cases = f"case_id IN (SELECT case_id FROM cases{where})"  # noqa: S608  names of ours
    results: dict[int, list[tuple[int, str, str]]] = {}
    figures: dict[tuple[int, str, str], dict[int, RunFigure]] = {}
    with index.refusing():
        query = f"SELECT case_id, run_id, status, reason FROM results WHERE {of_cases}"  # noqa: S608
        for case_id, *row in index.connection.execute(query, values):
            results.setdefault(case_id, []).append(tuple(row))
        kinds = index.connection.execute(
            f"SELECT series_id, case_id, metric, basis FROM series WHERE {of_cases}",  # noqa: S608
            values,
        ).fetchall()
        for series_id, case_id, metric, basis in kinds:
            if metric in metrics:
                query = f"SELECT run_id, {_FIGURE} FROM figures WHERE series_id = ?"  # noqa: S608
                rows = index.connection.execute(query, (series_id,))
                figures[case_id, metric, basis] = {
                    run_id: _figure(metric, basis, row) for run_id, *row in rows if run_id in by_run
                }
    for rows_of_case in results.values():
        rows_of_case.sort(key=lambda row: order.get(row[0], len(order)))
    places = list(Metric)
    keys_of: dict[int, list[tuple[int, str, str]]] = {}
    for key in sorted((key for key, some in figures.items() if some), key=lambda k: (places.index(Metric(k[1])), k[2])):
        keys_of.setdefault(key[0], []).append(key)
    found = []
    for case_id, one in found_cases.items():
        for key in keys_of.get(case_id, [(case_id, metrics[0].value, "")]):
            points = tuple(
                SeriesPoint(
                    run=by_run[run_id],
                    status=Status(status),
                    reason=reason,
                    figure=figures.get(key, {}).get(run_id),
                )
                for run_id, status, reason in results.get(case_id, ())
                if run_id in by_run
            )
            if points:
                metric = Metric(key[1])
                found.append(Series(case=one.case, machine=one.machine, metric=metric, basis=key[2], points=points))
    return found


def figures_of(index: Index, wanted_runs: Iterable[IndexedRun]) -> dict[tuple[int, Metric, str], dict[int, RunFigure]]:
    """Return the figures of some runs by case, metric and basis, then by run."""
    found: dict[tuple[int, Metric, str], dict[int, RunFigure]] = {}
    with index.refusing():
        kinds = {
            series_id: (case_id, Metric(metric), basis)
            for series_id, case_id, metric, basis in index.connection.execute(
                "SELECT series_id, case_id, metric, basis FROM series"
            )
        }
        for run in wanted_runs:
            query = f"SELECT series_id, {_FIGURE} FROM figures WHERE run_id = ?"  # noqa: S608
            for series_id, *row in index.connection.execute(query, (run.run_id,)):
                key = kinds[series_id]
                found.setdefault(key, {})[run.run_id] = _figure(key[1], key[2], row)
    return found


def results_of(index: Index, run: IndexedRun) -> dict[int, tuple[Status, str]]:
    """Return the status and the reason of each case of a run, by the case's number."""
    query = "SELECT case_id, status, reason FROM results WHERE run_id = ?"
    with index.refusing():
        rows = index.connection.execute(query, (run.run_id,))
        return {case_id: (Status(status), reason) for case_id, status, reason in rows}


def values_of(index: Index, column: str, wanted: Wanted | None = None) -> list[str]:
    """Return the values of a column of `cases`, sorted, as strings."""
    where, values = _where(wanted or {})
    with index.refusing():
        rows: sqlite3.Cursor = index.connection.execute(f"SELECT DISTINCT {column} FROM cases{where}", values)  # noqa: S608
        return sorted(str(value) for (value,) in rows)


def _where(wanted: Wanted) -> tuple[str, list[str | int]]:
    given = {column: values for column, values in wanted.items() if values is not None}
    if not given:
        return "", []
    parts = [f"{column} IN ({', '.join('?' for _ in values)})" for column, values in given.items()]
    return f" WHERE {' AND '.join(parts)}", [value for values in given.values() for value in values]


def _machine_case(row: Sequence[Any]) -> MachineCase:
    model, *columns, machine = row
    values: dict[str, Any] = {axis.name: axis.value(column) for axis, column in zip(AXES, columns, strict=True)}
    case = Case(model=model, **{**values, "batch_size": values["batch_size"] or None})
    return MachineCase(case=case, machine=machine)


def _figure(metric: str, basis: str, row: Sequence[Any]) -> RunFigure:
    value, low, high, confidence, processes, log_error, is_device_bound, host_loop_s, always_shared, eager_s = row
    return RunFigure(
        metric=Metric(metric),
        basis=basis,
        value=value,
        low=low,
        high=high,
        confidence=confidence,
        processes=tuple(array("d", processes)),
        log_error=log_error,
        is_device_bound=bool(is_device_bound),
        host_loop_s=host_loop_s,
        always_shared=bool(always_shared),
        eager_s=eager_s,
    )
