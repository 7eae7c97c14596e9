"""Published figures beside measured ones: what a study knows of its source, and the tables that hold both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from torchzoo.errors import TorchzooError
from torchzoo.report import markdown
from torchzoo.report.units import number
from torchzoo.stats import Estimate

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
    about: str = ""  # what must be known to read them
    figures: dict[str, float | tuple[float, float]] = {}


class Difference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was done in another way there. These are facts about the methods, and no reasons of differences."""

    there: str
    here: str


class Published(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`published.yaml` of a study: the figures of others, their source, and how they were measured."""

    source: str
    url: str = ""
    hardware: str
    software: str
    tables: dict[str, PublishedTable]
    differs: dict[str, Difference] = {}
    remarks: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure, in the unit of its table. Without one, `missing` says why."""

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
    evidence: str  # what was measured: a command, a run, a document

    @property
    def keys(self) -> list[Key]:
        return [(self.table, figure) for figure in (self.figure, *self.also)]


def exactly(value: float) -> Estimate:
    """A value without an interval: a count, or one measurement."""
    return Estimate(value=value, low=value, high=value, confidence=0.0, count=1)


def scaled(estimate: Estimate, factor: float, offset: float = 0.0) -> Estimate:
    """The estimate in another unit: its values times a positive `factor`, plus `offset`."""
    value, low, high = (one * factor + offset for one in (estimate.value, estimate.low, estimate.high))
    return msgspec.structs.replace(estimate, value=value, low=low, high=high)


def source_lines(published: Published) -> list[str]:
    """Where the published figures are from, and what must be known of them."""
    source = markdown.link(published.source, published.url) if published.url else markdown.escape(published.source)
    return [
        f"Published: {source}. Measured there on {published.hardware}, with {published.software}.",
        *(line for remark in published.remarks for line in ("", remark)),
    ]


def tables(published: Published, rows: Sequence[Row], reasons: Sequence[Reason]) -> list[str]:
    """A table for each published one. A published figure without a row is shown as not measured.

    Raises:
        BesideError: a row is of a table that is not published, or a reason is about a figure that is in no table.
    """
    for row in rows:
        if row.table not in published.tables:
            raise BesideError(f"a figure is of '{row.table}', which is no table of published.yaml")
        if row.beside and row.beside not in published.tables[row.table].figures:
            raise BesideError(f"'{row.figure}' stands beside '{row.beside}', which is not in '{row.table}'")
    shown = {name: [*_of(name, rows), *_without_a_row(name, table, rows)] for name, table in published.tables.items()}
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
    lines = []
    for name, table in published.tables.items():
        lines += [f"### {markdown.escape(name)} ({table.unit})", "", *([table.about, ""] if table.about else [])]
        cells = [_cells(row, table, why) for row in shown[name]]
        lines += [*markdown.table(headings, cells), ""] if cells else ["No figure of it was published or measured.", ""]
    return lines


def _of(name: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.table == name]


def _without_a_row(name: str, table: PublishedTable, rows: Sequence[Row]) -> list[Row]:
    has_row = {row.beside or row.figure for row in _of(name, rows)}
    return [
        Row(table=name, figure=figure, measured=None, missing="no measured case of this run gives it")
        for figure in table.figures
        if figure not in has_row
    ]


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
    """Three digits, whatever the size."""
    return f"{value:.3g}" if abs(value) < 1 else number(value) if value > 0 else f"-{number(-value)}"


def differences(published: Published, hardware: str, software: str) -> list[str]:
    """What differs between the two, as a table: the machine, the software, and the methods."""
    rows = [("hardware", published.hardware, hardware), ("software", published.software, software)]
    rows += [(what, one.there, one.here) for what, one in published.differs.items()]
    return markdown.table(("", "published", "measured"), rows)
