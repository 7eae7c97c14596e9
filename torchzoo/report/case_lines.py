"""Many cases for the terminal, one line each, in columns that fit its width.

An axis that all cases share is named once, above them. Where the width is not enough, figures lose their intervals
first, then the columns that say least go, then the cases are grouped by their axes. Remarks are letters with a legend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.compare import BAD
from torchzoo.analysis.figures import CaseFigures
from torchzoo.case import AXES, Case
from torchzoo.record import Failed
from torchzoo.report import terminal
from torchzoo.report.checks import check_of
from torchzoo.report.columns import BOUND, CANDIDATE, EAGER, MEMORY, REACH, SPEEDUP, TIME, Detail, FigureColumn
from torchzoo.report.remarks import CHECK_WORDS, Mark, marks_of
from torchzoo.report.some_cases import has_several_backends
from torchzoo.report.text import visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

MODEL, BATCH, MARKS = "model", "batch", "marks"
PROCESSES = "proc"
_NAMED = [axis for axis in AXES if axis.name not in ("batch_size", "parallel")]  # `world` stands for both
#: The columns that say which case it is, and how a cell names it. The first and the last are never grouped by.
CASE: dict[str, Callable[[Case], str]] = {
    MODEL: lambda case: case.model,
    **{axis.heading: axis.text for axis in _NAMED},
    "ranks": lambda case: case.ranks_label() if case.world > 1 else "1",
    BATCH: lambda case: "" if case.batch_size is None else str(case.batch_size),
}
#: What is not worth naming above the table: the defaults.
UNNAMED = {axis.heading: str(axis.default) for axis in _NAMED if axis.default is not None and axis.name != "backend"}
NAMED = {"seed": "seed", BATCH: "batch"}  # a number alone does not tell which axis it is of
LEFT = {*CASE, MARKS} - {BATCH}  # beside the figures that say so; all other columns are aligned to the right
LEAST_MODEL_WIDTH, MOST_MODEL_WIDTH = 8, 40
MOST_MODEL_SHARE = 0.3  # of a wide terminal
MOST_NAMES = 10  # of models whose names are too long for their column


class ShownColumn(NamedTuple):
    """A column of figures, and how much its cells say."""

    column: FigureColumn
    detail: Detail = Detail.VALUE

    @property
    def heading(self) -> str:
        return self.column.heading

    @property
    def is_left(self) -> bool:
        """Whether its cells are aligned to the left."""
        return self.column is BOUND or (self.detail is Detail.INTERVAL and self.column is not MEMORY)

    def cell(self, figures: CaseFigures) -> str:
        return self.column.cell(figures, self.detail)


def _layout(*columns: FigureColumn, detail: Detail = Detail.VALUE) -> tuple[ShownColumn, ...]:
    return tuple(ShownColumn(column, detail) for column in columns)


_WITH_INTERVALS = _layout(EAGER, CANDIDATE, SPEEDUP, detail=Detail.INTERVAL)
_WITHOUT = _layout(EAGER, CANDIDATE, SPEEDUP, REACH)
#: The columns of figures, from those that say most to the least that a line must have.
LAYOUTS: tuple[tuple[ShownColumn, ...], ...] = (
    (*_WITH_INTERVALS, ShownColumn(BOUND, Detail.INTERVAL), ShownColumn(MEMORY)),
    (*_WITH_INTERVALS, ShownColumn(BOUND), ShownColumn(MEMORY)),
    (*_WITHOUT, ShownColumn(BOUND), ShownColumn(MEMORY)),
    (*_WITHOUT, ShownColumn(MEMORY)),
    _WITHOUT,
    _layout(TIME, SPEEDUP, REACH),
)
#: The same where eager has a figure of its own beside several backends: the time is that of the case's backend.
WITHOUT_EAGER = tuple(
    tuple(one._replace(column=TIME) if one.column is CANDIDATE else one for one in layout if one.column is not EAGER)
    for layout in LAYOUTS
)
MEANINGS = {
    TIME.heading: "time: of a step, of the candidate (of eager where there is none)",
    REACH.heading: "±: how far the 95% interval of the speedup reaches (else that of the time)",
    PROCESSES: "proc: processes that measured the case",
    MEMORY.heading: "memory: peak on the device (on the CPU: resident), of the candidate if there is one",
}


class CaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A case of the table."""

    axes: dict[str, str]
    figures: tuple[dict[str, str], ...]  # for each layout, cells by heading; empty for a case that was not measured
    words: str  # of a case that was not measured: what became of it
    is_bad: bool = False  # it failed, or its results are wrong
    marks: str


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A way to show the rows, and the widths that it gives the columns."""

    layout: int
    grouped: tuple[str, ...]  # axes that stand above each group of rows
    gap: int
    widths: dict[str, int]  # of the columns, by heading, in their order

    @property
    def width(self) -> int:
        return sum(self.widths.values()) + self.gap * (len(self.widths) - 1)


class CaseLines:
    """A table of at least one case below the titles, for rich, and what its columns and marks mean."""

    def __init__(self, sections: Mapping[str, Sequence[CaseResult]]) -> None:
        results = [result for some in sections.values() for result in some]
        marks = {result.case: marks_of(result) for result in results}  # a case may be in two sections
        has_processes = len({_processes(result) for result in results}) > 1
        self.layouts = WITHOUT_EAGER if has_several_backends(results) else LAYOUTS
        self.sections = {
            title: [self._row(result, marks[result.case], has_processes=has_processes) for result in some]
            for title, some in sections.items()
        }
        self.rows = [row for rows in self.sections.values() for row in rows]
        self.counts = {mark: count for mark in Mark if (count := sum(mark in some for some in marks.values()))}
        self.varied = [
            name for name in self.rows[0].axes if name == MODEL or len({row.axes[name] for row in self.rows}) > 1
        ]
        self.shared = ", ".join(_named(name, text) for name, text in self._shared())
        if not has_processes and _processes(results[0]) > 1:
            self.shared += f"{', ' if self.shared else ''}each by {_processes(results[0])} processes"

    def _row(self, result: CaseResult, marks: Sequence[Mark], *, has_processes: bool) -> CaseRow:
        figures = result.measured_figures
        axes = {name: visible(text(result.case)) for name, text in CASE.items()}
        return CaseRow(
            axes=axes | ({PROCESSES: str(_processes(result))} if has_processes else {}),
            figures=tuple({one.heading: one.cell(figures) for one in layout} for layout in self.layouts)
            if figures
            else (),
            words="" if figures else _words(result),
            is_bad=result.status in BAD,
            marks="".join(mark.letter for mark in marks),
        )

    def _shared(self) -> Iterator[tuple[str, str]]:
        for name, text in self.rows[0].axes.items():
            if name not in self.varied and text and text != UNNAMED.get(name):
                yield name, text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        fit = self._fit(options.max_width)
        for number, (title, rows) in enumerate(self.sections.items()):
            if number:
                yield terminal.text("")
            yield terminal.Hanging(f"{title}: {self.shared}" if self.shared else title)
            yield from self._lines(rows, fit)
        yield from map(terminal.Hanging, self._legend(fit))

    def _fit(self, width: int) -> Fit:
        """The first way that fits; else the last one, with the names of models as short as they must be.

        One very long name does not cost all the columns: what is longer than `most` columns may be shortened.
        """
        if (whole := self._widths(0, (), terminal.GAP)).width <= width:
            return whole
        most = max(MOST_MODEL_WIDTH, int(MOST_MODEL_SHARE * width))
        groups = tuple(name for name in self.varied if name not in (MODEL, "mode", BATCH, PROCESSES))
        last = len(LAYOUTS) - 1
        ways: list[tuple[int, tuple[str, ...], int]] = [(layout, (), terminal.GAP) for layout in range(last)]
        ways += [(layout, groups, terminal.GAP) for layout in range(len(LAYOUTS))]
        ways += [(last, (), 1)] if not groups else [(last, groups, 1)]
        for way in ways:
            fit = self._widths(*way)
            fit.widths[MODEL] = min(fit.widths[MODEL], most)
            if fit.width <= width:
                return fit
        least = max(LEAST_MODEL_WIDTH, fit.widths[MODEL] - (fit.width - width))
        return msgspec.structs.replace(fit, widths=fit.widths | {MODEL: least})

    def _widths(self, layout: int, grouped: tuple[str, ...], gap: int) -> Fit:
        from rich.cells import cell_len

        headings = [name for name in self.varied if name not in grouped]
        widths = {name: max(cell_len(name), *(cell_len(row.axes[name]) for row in self.rows)) for name in headings}
        for name in self.used(layout):
            widths[name] = max(map(cell_len, (name, *(row.figures[layout][name] for row in self.rows if row.figures))))
        if self.counts:
            widths[MARKS] = max(len(MARKS), *(len(row.marks) for row in self.rows))
        return Fit(layout=layout, grouped=grouped, gap=gap, widths=widths)

    def used(self, layout: int) -> list[str]:
        """The headings of the layout that have a figure in some row."""
        rows = [row.figures[layout] for row in self.rows if row.figures]
        return [figure.heading for figure in self.layouts[layout] if any(row[figure.heading] for row in rows)]

    def _lines(self, some: Sequence[CaseRow], fit: Fit) -> Iterator[Any]:
        """The headings, then a line for each row, under a line for each group."""
        if any(row.figures for row in some):
            yield terminal.text(self._joined({name: name for name in fit.widths}, fit), style="bold", no_wrap=True)
        groups: dict[tuple[str, ...], list[CaseRow]] = {}
        for row in some:
            groups.setdefault(tuple(row.axes[name] for name in fit.grouped), []).append(row)
        for group, rows in groups.items():
            if group:
                named = [_named(name, text) for name, text in zip(fit.grouped, group, strict=True)]
                yield terminal.text(f"-- {', '.join(named)}", no_wrap=True, overflow="ellipsis")
            for row in rows:
                yield self._line(row, fit)

    def _line(self, row: CaseRow, fit: Fit) -> Any:
        axes = {name: row.axes[name] for name in fit.widths if name in row.axes}
        if not row.figures:
            line = f"{self._joined(axes, fit)}{' ' * fit.gap}{row.words}"
            return terminal.text(line, no_wrap=True, overflow="ellipsis", style="red" if row.is_bad else "")
        doubted = any(letter.isupper() for letter in row.marks)
        line = self._joined({**axes, **row.figures[fit.layout], MARKS: row.marks}, fit)
        return terminal.text(line.rstrip(), no_wrap=True, style="red" if doubted else "")

    def _joined(self, cells: dict[str, str], fit: Fit) -> str:
        """The cells, each as wide as its column. A name that is too long loses its middle."""
        from rich.cells import cell_len, set_cell_size

        left = LEFT | {figure.heading for figure in self.layouts[fit.layout] if figure.is_left}
        padded = []
        for name, width in fit.widths.items():
            if name not in cells:
                continue
            cell = cells[name]
            if cell_len(cell) > width:
                cell = without_middle(cell, width)
            padded.append(set_cell_size(cell, width) if name in left else f"{' ' * (width - cell_len(cell))}{cell}")
        return (" " * fit.gap).join(padded)

    def _legend(self, fit: Fit) -> Iterator[str]:
        from rich.cells import cell_len

        if (used := self.used(fit.layout)) or PROCESSES in fit.widths:
            yield from (text for name, text in MEANINGS.items() if name in fit.widths)
        left_out = [name for name in self.used(0) if name not in used] + (
            ["intervals"] if REACH.heading in used else []
        )
        if left_out:
            yield f"left out for lack of room: {', '.join(left_out)}; a wider terminal and --format md have them"
        for mark, count in self.counts.items():
            yield f"{mark.letter}: {mark.text} ({count})"
        width = fit.widths[MODEL]
        names = dict.fromkeys(row.axes[MODEL] for row in self.rows)
        too_long = [f"{without_middle(name, width)} is {name}" for name in names if cell_len(name) > width]
        yield from too_long[:MOST_NAMES]
        if len(too_long) > MOST_NAMES:
            yield f"and {len(too_long) - MOST_NAMES} more names: --format md has them in full"


def _named(axis: str, text: str) -> str:
    return f"{NAMED[axis]} {text}" if axis in NAMED else text


def _processes(result: CaseResult) -> int:
    return len(result.measured) or 1


def _words(result: CaseResult) -> str:
    outcome = result.outcome
    if isinstance(outcome, Failed):
        return f"FAILED: {outcome.kind} in {outcome.stage}"
    found = check_of(result)
    return "skipped" if found is None else CHECK_WORDS[found.status]


def without_middle(text: str, width: int) -> str:
    """The text in `width` columns: its begin and its end, and dots between."""
    from rich.cells import set_cell_size

    tail = (width - 2) // 2
    return set_cell_size(f"{set_cell_size(text, width - 2 - tail)}..{text[len(text) - tail :]}", width)
