"""The document model: what a report, a comparison or an issue says. Renderers give it a form.

A document is a sequence of blocks. `terminal.render`, `markdown.render` and `html.render` show it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import msgspec


class Marked(str):
    """Text that is Markdown already, which the Markdown renderer does not escape. Foreign text in it is escaped."""

    __slots__ = ()


class Style(enum.StrEnum):
    """How a renderer may set off a cell."""

    GOOD = "good"
    BAD = "bad"
    FAINT = "faint"
    CODE = "code"


class Cell(msgspec.Struct, frozen=True):
    """A cell of a table; `short` is shown in its place in the terminal."""

    text: str
    short: str | None = None
    style: Style | None = None


class Column(msgspec.Struct, frozen=True):
    """A column of a table; `short` is its heading in the terminal.

    The terminal leaves out a column of details, and shows the texts of a column of notes below the table, each once.
    """

    heading: str
    short: str | None = None
    is_number: bool = False
    is_detail: bool = False
    is_note: bool = False


class Heading(msgspec.Struct, frozen=True):
    """The heading of what follows."""

    text: str
    level: int = 2


class Text(msgspec.Struct, frozen=True):
    """A paragraph."""

    text: str


class Items(msgspec.Struct, frozen=True):
    """A list of texts."""

    texts: tuple[str, ...]


class Table(msgspec.Struct, frozen=True):
    """A table, and below it how to read it. Where the first column is headed `case`, its figures may be below it.

    `groups` are the numbers of the rows that begin a group.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()

    def used(self) -> Table:
        """The table without the columns that are empty in every row."""
        numbers = [number for number in range(len(self.columns)) if any(row[number].text for row in self.rows)]
        return msgspec.structs.replace(
            self,
            columns=tuple(self.columns[number] for number in numbers),
            rows=tuple(tuple(row[number] for number in numbers) for row in self.rows),
        )


class Code(msgspec.Struct, frozen=True):
    """Lines of a program."""

    lines: tuple[str, ...]
    language: str = "sh"


class Picture(msgspec.Struct, frozen=True):
    """A picture beside the document, and what it shows."""

    path: str
    text: str


class Fold(msgspec.Struct, frozen=True):
    """Details, which the terminal leaves out: it shows `brief` in their place. With a label, a page folds them."""

    blocks: tuple[Block, ...]
    label: str = ""
    brief: tuple[Block, ...] = ()


Block = Heading | Text | Items | Table | Code | Picture | Fold
Document = Sequence[Block]


def table(
    columns: Iterable[Column | str],
    rows: Iterable[Iterable[Cell | str]],
    *,
    notes: Iterable[str] = (),
    groups: Iterable[int] = (),
) -> Table:
    """A table of columns or their headings, and of cells or their texts."""
    return Table(
        tuple(Column(one) if isinstance(one, str) else one for one in columns),
        tuple(tuple(Cell(one) if isinstance(one, str) else one for one in row) for row in rows),
        tuple(notes),
        tuple(groups),
    )


def section(heading: str, *blocks: Block | None) -> list[Block]:
    """A heading and its blocks; nothing where a table is without rows or all blocks are missing."""
    shown = [block for block in blocks if block is not None and not (isinstance(block, Table) and not block.rows)]
    return [Heading(heading), *shown] if shown else []
