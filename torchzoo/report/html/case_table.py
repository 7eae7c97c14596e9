"""The page's table of cases, and the filters of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from torchzoo.analysis.cases import CaseResult, Status
from torchzoo.analysis.frame import CHECKED, Row
from torchzoo.case import AXES
from torchzoo.report import columns, units
from torchzoo.report.columns import CANDIDATE, EAGER, FIRST_STEP, MEMORY, SPEEDUP, TIME
from torchzoo.report.html import capital
from torchzoo.report.remarks import remarks_of

_FILTERS = {
    "domain": "Domain",
    **{axis.name: axis.name.capitalize() for axis in AXES if axis.is_filter},
    "outcome": "Outcome",
}
#: What can have become of a case, the best first. Few runs only check.
OUTCOMES = (
    Status.PASSED,
    Status.CHECKED,
    Status.INCORRECT,
    Status.REFUSED,
    Status.UNSTEADY,
    Status.FAILED,
    Status.SKIPPED,
)
_AXES = [axis.name for axis in AXES if axis.name not in ("batch_size", "seed")]


class SortableCell(msgspec.Struct, frozen=True):
    """A cell of the table. A column of numbers is sorted by `key`."""

    text: str
    key: float | None = None
    is_number: bool = False
    badge: str = ""


class ColumnHeading(msgspec.Struct, frozen=True):
    """The heading of a column; `title` is shown when the mouse is over it."""

    name: str
    is_number: bool = False
    title: str = ""


#: A column: its heading, and what makes its cell for a case.
Column = tuple[ColumnHeading, Callable[[Row, CaseResult], SortableCell]]


def filters(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The axes along which a reader can choose cases, with their values."""
    found = []
    for name, label in _FILTERS.items():
        has_checks = any(row["outcome"] == CHECKED for row in rows)
        options = [one for one in OUTCOMES if one is not Status.CHECKED or has_checks]
        if name != "outcome":
            options = sorted({row[name] for row in rows if row[name] is not None})
        if len(options) > 1:
            found.append({"key": name, "label": label, "options": options})
    return found


def case_columns(rows: Sequence[Row], *, has_eager: bool = True) -> list[Column]:
    """The columns beside the model's name. An axis has no column if all cases are the same in it.

    Without `has_eager`, another table has eager's figures, and the time is that of each case's own backend.
    """
    has_candidates = any(row["speedup"] is not None for row in rows)
    figures = [EAGER, CANDIDATE, SPEEDUP, MEMORY, FIRST_STEP] if has_candidates else [EAGER, MEMORY]
    if not has_eager:
        figures = [TIME, *(one for one in figures if one not in (EAGER, CANDIDATE))]
    found: list[Column] = [
        *(
            (ColumnHeading(capital(name.replace("_", " "))), _text(name))
            for name in _AXES
            if name == "mode" or _varies(rows, name)
        ),
        (ColumnHeading("Outcome"), lambda _, result: SortableCell(result.status, badge=result.status)),
        (ColumnHeading("Batch", is_number=True), _number("batch_size", lambda value: f"{value:,}")),
        *(
            (ColumnHeading(capital(one.heading), is_number=True, title=one.figure.text), _figure(one))
            for one in figures
        ),
    ]
    if _varies(rows, "domain"):
        found.append((ColumnHeading("Domain"), _text("domain")))
    return [*found, (ColumnHeading("Note"), lambda _, result: SortableCell("; ".join(_notes(result))))]


def speedup_text(result: CaseResult) -> str:
    """`1.32x [1.30, 1.34]`; empty for a case without a speedup."""
    figures = result.figures
    return "" if figures is None or figures.speedup is None else units.speedup(figures.speedup)


def _varies(rows: Sequence[Row], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _text(name: str) -> Callable[[Row, CaseResult], SortableCell]:
    return lambda row, _: SortableCell((row[name] or "").replace("_", " ") if name == "domain" else row[name] or "")


def _number(name: str, shown: Callable[[Any], str]) -> Callable[[Row, CaseResult], SortableCell]:
    return lambda row, _: SortableCell("" if row[name] is None else shown(row[name]), row[name], is_number=True)


def _figure(column: columns.FigureColumn) -> Callable[[Row, CaseResult], SortableCell]:
    def cell(row: Row, result: CaseResult) -> SortableCell:
        figures = result.figures
        if figures is None:
            return SortableCell("", is_number=True)
        return SortableCell(column.cell(figures), row[column.figure.name], is_number=True)

    return cell


def _notes(result: CaseResult) -> list[str]:
    return ([result.reason] if result.reason else []) + remarks_of(result.measured)
