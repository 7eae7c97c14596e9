"""The page's table of cases, and the filters of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from torchzoo.analysis.cases import CaseResult, Status
from torchzoo.analysis.frame import CHECKED
from torchzoo.case import AXES
from torchzoo.report import units
from torchzoo.report.remarks import remarks_of

#: A row of `analysis.frame`: the case's figures by the name of the column.
Row = dict[str, Any]

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


class Cell(msgspec.Struct, frozen=True):
    """A cell of the table. A column of numbers is sorted by `key`."""

    text: str
    key: float | None = None
    is_number: bool = False
    badge: str = ""


class Heading(msgspec.Struct, frozen=True):
    """The heading of a column; `title` is shown when the mouse is over it."""

    name: str
    is_number: bool = False
    title: str = ""


#: A column: its heading, and what makes its cell for a case.
Column = tuple[Heading, Callable[[Row, CaseResult], Cell]]


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
    on_device = any(row["device_peak_allocated_bytes"] is not None for row in rows)
    memory = "device_peak_allocated_bytes" if on_device else "host_peak_rss_bytes"
    memory_title = "Peak allocated on the device" if on_device else "Peak resident on the host"
    has_candidates = any(row["speedup"] is not None for row in rows)
    columns: list[Column] = [
        *(
            (Heading(capital(name.replace("_", " "))), _text(name))
            for name in _AXES
            if name == "mode" or _varies(rows, name)
        ),
        (Heading("Outcome"), lambda _, result: Cell(result.status, badge=result.status)),
        (Heading("Batch", is_number=True), _number("batch_size", lambda value: f"{value:,}")),
        *(_EAGERS_AND_CANDIDATES[: 1 + has_candidates] if has_eager else [_OWN_TIME]),
    ]
    if has_candidates:
        columns += [
            (
                Heading("Speedup", is_number=True, title="Eager time over candidate time, paired"),
                lambda row, result: Cell(speedup_text(result), row["speedup"], is_number=True),
            ),
        ]
    columns.append((Heading("Memory", is_number=True, title=memory_title), _number(memory, units.size)))
    if has_candidates:
        heading = Heading("First step", is_number=True, title="Compilation included")
        columns.append((heading, _number("first_step_s", units.seconds)))
    if _varies(rows, "domain"):
        columns.append((Heading("Domain"), _text("domain")))
    return [*columns, (Heading("Note"), lambda _, result: Cell("; ".join(_notes(result))))]


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[0].upper() + text[1:]


def speedup_text(result: CaseResult) -> str:
    """`1.32x [1.30, 1.34]`; empty for a case without a speedup."""
    figures = result.figures
    return "" if figures is None or figures.speedup is None else units.speedup(figures.speedup)


def _varies(rows: Sequence[Row], name: str) -> bool:
    return len({row[name] for row in rows}) > 1


def _text(name: str) -> Callable[[Row, CaseResult], Cell]:
    return lambda row, _: Cell((row[name] or "").replace("_", " ") if name == "domain" else row[name] or "")


def _number(name: str, shown: Callable[[Any], str]) -> Callable[[Row, CaseResult], Cell]:
    return lambda row, _: Cell("" if row[name] is None else shown(row[name]), row[name], is_number=True)


def _eager_latency(result: CaseResult) -> str:
    return "" if result.figures is None else units.latency(result.figures.eager.latency_s)


def _candidate_latency(result: CaseResult) -> str:
    figures = result.figures
    return "" if figures is None or figures.candidate is None else units.latency(figures.candidate.latency_s)


_EAGERS_AND_CANDIDATES: list[Column] = [
    (
        Heading("Eager", is_number=True, title="Latency of an eager step"),
        lambda row, result: Cell(_eager_latency(result), row["eager_latency_s"], is_number=True),
    ),
    (
        Heading("Candidate", is_number=True, title="Latency of a step of the backend"),
        lambda row, result: Cell(_candidate_latency(result), row["latency_s"], is_number=True),
    ),
]
_OWN_TIME: Column = (
    Heading("Time", is_number=True, title="Latency of a step of the backend, or of eager"),
    lambda row, result: Cell(_candidate_latency(result) or _eager_latency(result), row["latency_s"], is_number=True),
)


def _notes(result: CaseResult) -> list[str]:
    return ([result.reason] if result.reason else []) + remarks_of(result.measured)
