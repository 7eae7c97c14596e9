"""Published figures beside measured ones: the source of a study, the tables that hold both, and the conditions here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from torchzoo.analysis.cases import case_results
from torchzoo.errors import TorchzooError
from torchzoo.report import markdown, units
from torchzoo.report.document import Block, Heading, Marked, Table, Text, table
from torchzoo.report.remarks import Mark, marks_of
from torchzoo.report.units import number
from torchzoo.stats import Estimate
from torchzoo.store import Run

#: A figure by the table that it stands in and its name there.
Key = tuple[str, str]

PERCENT, MODELS = "%", "models"
NOT_KNOWN = "not known yet"
NOT_SURE = "no sure difference"


class BesideError(TorchzooError):
    """The data of a study do not fit together."""


class PublishedTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Figures of one unit, by name. A pair is a mean and its standard deviation."""

    unit: str
    about: str = ""  # how to read them
    figures: dict[str, float | tuple[float, float]] = {}


class MethodDifference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A difference of the methods: a fact about them, and no reason why figures differ."""

    there: str
    here: str


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`published.yaml` of a study: the figures of others, their source, and how they were measured."""

    source: str
    url: str = ""
    hardware: str
    software: str
    tables: dict[str, PublishedTable]
    differs: dict[str, MethodDifference] = {}
    remarks: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A measured figure, in the unit of its table; `missing` says why there is none."""

    table: str
    figure: str
    beside: str = ""  # the name of the published figure, where it has another one: several rows may stand beside it
    measured: Estimate | None
    deviation: float | None = None  # the standard deviation over steps, where that is what was published
    note: str = ""  # how many models, which one
    missing: str = ""


class Reason(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a figure differs, as a measurement has found it; `also` names others of its table with the same reason."""

    table: str
    figure: str
    also: tuple[str, ...] = ()
    reason: str
    evidence: str  # the measurement: a command, a run, a document

    @property
    def keys(self) -> list[Key]:
        return [(self.table, figure) for figure in (self.figure, *self.also)]


def exactly(value: float) -> Estimate:
    """A value without an interval: a count, or one measurement."""
    return Estimate(value=value, low=value, high=value, confidence=0.0, count=1)


def source(published: Published) -> list[Block]:
    """Where the published figures are from, and what must be known of them."""
    name = markdown.link(published.source, published.url) if published.url else markdown.escape(published.source)
    about = f"Published: {name}. Measured there on {published.hardware}, with {published.software}."
    return [Text(Marked(text)) for text in (about, *published.remarks)]


def tables(published: Published, rows: Sequence[Row], reasons: Sequence[Reason]) -> list[Block]:
    """A table for each published one. A published figure without a row is shown as not measured."""
    for row in rows:
        if row.table not in published.tables:
            raise BesideError(f"a figure is of '{row.table}', which is no table of published.yaml")
        if row.beside and row.beside not in published.tables[row.table].figures:
            raise BesideError(f"'{row.figure}' stands beside '{row.beside}', which is not in '{row.table}'")
    shown = {name: _rows_of(name, one, rows) for name, one in published.tables.items()}
    known = {(row.table, row.figure) for some in shown.values() for row in some}
    why: dict[Key, str] = {}
    for reason in reasons:
        for table_name, figure in reason.keys:
            if (table_name, figure) not in known:
                raise BesideError(f"a reason is about '{figure}' in '{table_name}', and there is no such figure")
            if (table_name, figure) in why:
                raise BesideError(f"two reasons are about '{figure}' in '{table_name}': keep one")
            why[table_name, figure] = f"{reason.reason} ({reason.evidence})"
    headings = ("", "published", "measured", "difference", "the reason, if it was measured")
    blocks: list[Block] = []
    for name, of_name in published.tables.items():
        blocks.append(Heading(f"{name} ({of_name.unit})", level=3))
        blocks += [Text(Marked(of_name.about))] if of_name.about else []
        cells = [_cells(row, of_name, why) for row in shown[name]]
        blocks.append(table(headings, cells) if cells else Text("No figure of it was published or measured."))
    return blocks


def _rows_of(name: str, table: PublishedTable, rows: Sequence[Row]) -> list[Row]:
    """The rows of a table, then one for each published figure that has none."""
    own = [row for row in rows if row.table == name]
    rest = table.figures.keys() - {row.beside or row.figure for row in own}
    missing = "no measured case of this run gives it"
    return own + [Row(table=name, figure=one, measured=None, missing=missing) for one in table.figures if one in rest]


def _cells(row: Row, table: PublishedTable, why: Mapping[Key, str]) -> list[str]:
    there = table.figures.get(row.beside or row.figure)
    difference = unexplained = ""
    if there is not None and row.measured is not None:
        value = there[0] if isinstance(there, tuple) else there
        is_sure = _is_exact(row.measured) or row.measured.excludes(value)
        is_inside = row.measured.has_interval and not is_sure
        difference = _difference(value, row.measured, table.unit) + (", in the interval" if is_inside else "")
        unexplained = "" if not difference else NOT_KNOWN if is_sure else NOT_SURE
    reason = why.get((row.table, row.figure), unexplained)
    return [row.figure, _there(there, table.unit), _here(row, table.unit), difference, reason]


def _there(value: float | tuple[float, float] | None, unit: str) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"{value[0]:.12g} {unit}, sigma {value[1]:g}"
    return f"{value:.12g} {unit}"


def _here(row: Row, unit: str) -> str:
    if row.measured is None:
        return f"not measured: {row.missing}"
    one = row.measured
    text = f"{one.value:,.0f} {unit}" if unit == MODELS else f"{_digits(one.value)} {unit}"
    if one.has_interval:
        text += f" [{_digits(one.low)}, {_digits(one.high)}]"
        text += "" if one.confidence >= 0.95 else f" (at {100 * one.confidence:.0f}%)"
    elif not _is_exact(one):
        text += f" ({one.why_no_interval})"
    if row.deviation is not None:
        text += f", sigma {_digits(row.deviation)}"
    return f"{text}; {row.note}" if row.note else text


def _difference(there: float, here: Estimate, unit: str) -> str:
    """In points for shares, as a ratio for all else."""
    if unit == PERCENT:
        return f"{here.value - there:+.1f} points"
    return f"{here.value / there:.2f} of the published" if there else ""


def _is_exact(one: Estimate) -> bool:
    """Whether it is a single number (see `exactly`), which needs no interval."""
    return one.count == 1 and one.of == "samples"


def _digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1 else number(value) if value > 0 else f"-{number(-value)}"


def differences(published: Published, hardware: str, software: str) -> Table:
    """The differences between both measurements: the machine, the software, and the methods."""
    rows = [("hardware", published.hardware, hardware), ("software", published.software, software)]
    rows += [(what, one.there, one.here) for what, one in published.differs.items()]
    return table(("", "published", "measured"), rows)


# --- the conditions ---

#: The marks of what may have changed the times of a case, beside what its step does by nature.
CONDITIONS = (
    Mark.REFUSED,
    Mark.UNSTEADY,
    Mark.DIFFERENT,
    Mark.BUSY,
    Mark.SLOW_HOST,
    Mark.SLOW_THROUGHPUT,
    Mark.THROTTLED,
    Mark.NOISY,
    Mark.TIME_LIMIT,
    Mark.BUDGET,
    Mark.FEW_SAMPLES,
)


def conditions(run: Run) -> list[Block]:
    """How many measured cases each condition holds for, and which.

    Empty where no time was measured.
    """
    timed = [result for result in case_results(run) if result.is_timed and result.measured]
    if not timed:
        return []
    marks = {result.case: marks_of(result) for result in timed}
    rows = []
    for mark in CONDITIONS:
        labels = [case.label() for case, found in marks.items() if mark in found]
        if labels:
            rows.append((mark.text, f"{len(labels)} of {len(timed)}", units.first_few(labels, most=4)))
    if not rows:
        return [Text("Nothing of note in any case that was timed.")]
    counted = "Their figures count all the same; only refused and unsteady cases are in no mean."
    return [table(("condition", "cases", "which"), rows, notes=[counted])]
