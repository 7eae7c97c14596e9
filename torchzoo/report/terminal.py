"""The terminal: documents and plain tables made with rich, and lines on standard error.

Columns line up whatever they hold, no text is cut, no markup is read, and no text moves the cursor or sets the title.

The width is $COLUMNS, else that of the terminal, else (for files and pipes) 80 columns.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from torchzoo.report.text import visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table
    from rich.text import Text

    from torchzoo.report.document import Block, Cell, Document
    from torchzoo.report.document import Table as TableBlock

GAP = 2  # columns between two cells
FEW_COLUMNS = 5  # the cells of a table with more stand closer together
INDENT = 2  # of a case's figures below its name
LEAST_WIDTH = 60  # rich leaves out columns of a table for which there is no room at all
ANY_WIDTH = 100_000  # wider than any line


def say(line: str) -> None:
    """Print a line that is no result, to standard error. If nobody can read it, work goes on."""
    with contextlib.suppress(OSError):
        print(visible(line), file=sys.stderr, flush=True)


def show_line(line: str, file: IO[str] | None = None) -> None:
    """Print a line to standard output, or to `file`, and do not wrap it."""
    print(visible(line), file=file)


def show(*renderables: Any, file: IO[str] | None = None) -> None:
    """Print tables and texts to standard output, or to `file`: in a terminal with colours, unless $NO_COLOR is set."""
    stream = sys.stdout if file is None else file
    if stream.isatty():
        console = _console(stream)
        for one in renderables:
            console.print(one)
        return
    for line in lines(*renderables):
        print(line, file=stream)


def text(line: str, **how: Any) -> Text:
    """A line of a table or display, whatever characters are in it. `how` goes to rich's `Text`."""
    from rich.text import Text

    return Text(visible(line), **how)


def lines(*renderables: Any, width: int | None = None) -> list[str]:
    """Tables and texts as plain lines, without colours and trailing spaces; `width` is in columns, None for the usual
    one.
    """
    file = io.StringIO()
    console = _console(file, width=width, color_system=None)
    for one in renderables:
        console.print(one)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def _console(file: IO[str], **how: Any) -> Console:
    """A console that reads no markup. In a notebook, too, it writes to the file: rich would show it instead."""
    from rich.console import Console

    console = Console(file=file, highlight=False, markup=False, emoji=False, force_jupyter=False, **how)
    console.width = max(console.width, LEAST_WIDTH)
    return console


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    widths: Sequence[int] | None = None,
    gap: int = GAP,
    has_headings: bool = True,
) -> Table:
    """A table without lines or boxes. Text that is too long for its column is wrapped; `right` names columns of
    numbers.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=has_headings)
    for number, heading in enumerate(headings):
        made.add_column(
            text(heading),
            justify="right" if heading in right else "left",
            overflow="fold",
            width=None if widths is None else widths[number],
        )
    for row in rows:
        made.add_row(*(text(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def indented(renderable: Any) -> Any:
    """Anything rich shows, moved to the right by `INDENT`."""
    from rich.padding import Padding

    return Padding(renderable, (0, 0, 0, INDENT))


class Hanging:
    """A line of text. Where it is wrapped, what follows is moved to the right by `INDENT`."""

    def __init__(self, line: str) -> None:
        self.line = line

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        first, *others = text(self.line).wrap(console, options.max_width - INDENT, overflow="fold") or [text("")]
        yield first
        yield from map(indented, others)


class CaseTable:
    """A table of figures by case, in the first of these forms that fits the width.

    1. A line for each case: its name, and the figures beside it.
    2. The name of each case, and its figures in columns below it. Remarks in brackets are wrapped.
    3. The name of each case, and below it a line for each figure, after its heading.

    The rows begin with a case's name; `headings` are those of the figures.
    """

    def __init__(
        self, headings: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Collection[str] = ()
    ) -> None:
        self.headings = headings
        self.rows = [[text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
        self.right = right

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        columns = list(zip(map(text, ("case", *self.headings)), *self.rows, strict=True))
        name, *widths = (max(cell.cell_len for cell in column) for column in columns)
        if name + sum(widths) + GAP * len(widths) <= options.max_width:
            yield table(("case", *self.headings), self.rows, right=self.right)
            return
        available = options.max_width - INDENT
        gaps = len(widths) - 1
        gap = GAP if sum(widths) + GAP * gaps <= available else 1
        least = [_least_width(heading.plain, (cell.plain for cell in cells)) for heading, *cells in columns[1:]]
        if sum(least) + gap * gaps <= available:
            yield from self._in_columns(_narrowed(widths, least, available - gap * gaps), gap)
        else:
            yield from self._in_lines(available)

    def _in_columns(self, widths: Sequence[int], gap: int) -> Iterator[Any]:
        yield indented(table(self.headings, [], right=self.right, widths=widths, gap=gap))
        for name, *cells in self.rows:
            yield name
            yield indented(table(self.headings, [cells], right=self.right, widths=widths, gap=gap, has_headings=False))

    def _in_lines(self, available: int) -> Iterator[Any]:
        widest = max(text(heading).cell_len for heading in self.headings)
        for name, *cells in self.rows:
            yield name
            figures = [one for one in zip(self.headings, cells, strict=True) if one[1].plain]
            yield indented(table(("", ""), figures, widths=(widest, available - widest - GAP), has_headings=False))


def _least_width(heading: str, cells: Iterable[str]) -> int:
    """The width of a column that breaks no figure. Headings and remarks in brackets are wrapped between words."""
    from rich.cells import cell_len

    parts = heading.split()
    for one in "; ".join(cells).split("; "):
        figure, _, remarks = one.partition(" (")
        parts += [figure, *remarks.split()]
    return max(map(cell_len, parts))


def _narrowed(widths: Sequence[int], least: Sequence[int], available: int) -> list[int]:
    """Return the widths, the widest ones reduced until their sum is available, none below its least width."""
    found = list(widths)
    while sum(found) > available:
        found[max((n for n in range(len(found)) if found[n] > least[n]), key=found.__getitem__)] -= 1
    return found


# --- documents ---


def render(blocks: Document) -> Any:
    """A document, with an empty line between its blocks."""
    from rich.console import Group

    from torchzoo.report.document import Heading

    parts: list[Any] = []
    is_below_heading = True
    for block in blocks:
        if shown := list(_shown(block)):
            parts += shown if is_below_heading else [text(""), *shown]
            is_below_heading = isinstance(block, Heading)
    return Group(*parts)


def _shown(block: Block) -> Iterator[Any]:
    from torchzoo.report.document import Code, Fold, Heading, Items, Table, Text

    match block:
        case Heading():
            yield text(block.text, style="bold")
        case Text():
            yield text(block.text)
        case Items():
            yield from map(Hanging, block.texts)
        case Table():
            yield from _table(block)
        case Code():
            yield from map(text, block.lines)
        case Fold(brief=[_, *_]):
            yield render(block.brief)


#: The styles of `document.Style`, in rich's words.
_STYLES = {"good": "green", "bad": "red", "faint": "dim"}


def _table(block: TableBlock) -> Iterator[Any]:
    """The table without its details; then its notes, and the texts of columns of notes by their numbers."""
    shown = [number for number, column in enumerate(block.columns) if not column.is_detail]
    columns = [block.columns[number] for number in shown]
    headings = [column.heading if column.short is None else column.short for column in columns]
    right = {heading for heading, column in zip(headings, columns, strict=True) if column.is_number or column.is_note}
    notes: dict[str, int] = {}
    rows = [
        [_cell(row[number], notes if column.is_note else None) for number, column in zip(shown, columns, strict=True)]
        for row in block.rows
    ]
    if headings[0] == "case":
        yield CaseTable(headings[1:], rows, right=right)
    else:
        gap = GAP if len(headings) <= FEW_COLUMNS else 1
        yield table(headings, rows, right=right, gap=gap, has_headings=any(headings))
    yield from (text(f"note {number}: {note}") for note, number in notes.items())
    yield from map(text, block.notes)


def _cell(cell: Cell, notes: dict[str, int] | None) -> Text:
    """The cell; in a column of notes the number of its text, which becomes one of `notes`."""
    shown = cell.text if cell.short is None else cell.short
    if notes is not None:
        shown = str(notes.setdefault(shown, len(notes) + 1)) if shown else ""
    return text(shown, style=_STYLES.get(cell.style or "", ""))
