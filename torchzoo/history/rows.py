"""Convert a run to rows of the index."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.run_figures import Metric, RunFigure, run_figures
from torchzoo.case import AXES, Case
from torchzoo.errors import written
from torchzoo.files import to_json
from torchzoo.history.schema import CASE_COLUMNS
from torchzoo.machine.differences import gpu_names, hardware_text, software_facts
from torchzoo.record import Manifest
from torchzoo.store import Run


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a run that the index keeps."""

    about: tuple[str, ...]  # the columns of `runs` behind `stamp`
    cases: tuple[tuple[Case, str, str, str, tuple[RunFigure, ...]], ...]  # case, machine, status, reason, figures

    @classmethod
    def of(cls, run: Run) -> Contents:
        """Return the contents of a run."""
        manifest, software = run.manifest, software_facts(run.manifest)
        environment = manifest.environment
        created_at = datetime.fromisoformat(manifest.created_at).astimezone(UTC).isoformat(timespec="microseconds")
        texts = (
            run.damage,
            created_at,
            _whole_machine(manifest),
            environment.torch,
            environment.torch_commit or "",
            environment.torchzoo,
            environment.torchzoo_commit or "",
        )
        return cls(
            about=(*map(written, texts), to_json(software).decode()),
            cases=tuple(
                (
                    result.case,
                    written(_machine_of(result)),
                    result.status.value,
                    written(result.reason),
                    tuple(_figures(result)),
                )
                for result in case_results(run)
            ),
        )


def _figures(result: CaseResult) -> list[RunFigure]:
    """Return the figures of a case that passed, without times over eager's that the device bounds: they add nothing."""
    figures = run_figures(result.case, result.measured) if result.passed else []
    return [one for one in figures if not (one.metric is Metric.OVER_EAGER and one.is_device_bound)]


def _whole_machine(manifest: Manifest) -> str:
    return hardware_text(manifest, gpu_names(manifest) if manifest.environment.gpus else None)


def _machine_of(result: CaseResult) -> str:
    """Return the kind of machine of one case: the device on which it ran, or the machine's GPUs if it never ran."""
    if result.case.device == "cpu":
        return hardware_text(result.manifest, None)
    return hardware_text(
        result.manifest, result.measured[0].device_name if result.measured else gpu_names(result.manifest)
    )


def forget(connection: sqlite3.Connection, name: str) -> None:
    """Delete the cases of a run from the index."""
    for table in ("results", "figures"):
        query = f"DELETE FROM {table} WHERE run_id = (SELECT run_id FROM runs WHERE path = ?)"  # noqa: S608
        connection.execute(query, (name,))


def write_cases(connection: sqlite3.Connection, run_id: int, contents: Contents) -> None:
    """Write the outcomes of the cases of a run, and their figures."""
    for case, machine, status, reason, figures in contents.cases:
        case_id = _id(connection, "cases", "case_id", (*case_columns(case), machine))
        connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", (run_id, case_id, status, reason))
        for one in figures:
            series_id = _id(connection, "series", "series_id", (case_id, one.metric.value, one.basis))
            numbers = (one.value, one.low, one.high, one.confidence, array("d", one.processes).tobytes())
            others = (one.log_error, one.is_device_bound, one.host_loop_s, one.always_shared, one.eager_s)
            row = (run_id, series_id, *numbers, *others)
            connection.execute(f"INSERT OR REPLACE INTO figures VALUES ({marks(row)})", row)  # noqa: S608


_KEYS = {
    "cases": ", ".join(CASE_COLUMNS),
    "series": "case_id, metric, basis",
}


def case_columns(case: Case) -> tuple[str | int, ...]:
    """Return the values of a case in the columns of the index: the model, and all axes."""
    values = (axis.of(case) or 0 if axis.kind is int else written(axis.text(case)) for axis in AXES)
    return (written(case.model), *values)


def _id(connection: sqlite3.Connection, table: str, column: str, values: tuple[str | int, ...]) -> int:
    """Return the number of the row with these values, which is added if there is none."""
    keys = _KEYS[table]
    where = " AND ".join(f"{key} = ?" for key in keys.split(", "))
    query = f"SELECT {column} FROM {table} WHERE {where}"  # noqa: S608  names of ours
    found = connection.execute(query, values).fetchone()
    if found is None:
        connection.execute(f"INSERT INTO {table} ({keys}) VALUES ({marks(values)})", values)  # noqa: S608
        found = connection.execute(query, values).fetchone()
    return int(found[0])


def marks(values: Iterable[object]) -> str:
    """Return a question mark for each value of a statement."""
    return ", ".join("?" for _ in values)
