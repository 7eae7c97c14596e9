"""A document as a part of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torchzoo.report.document import Block, Cell, Column, Document, Heading, Table
from torchzoo.report.html.offline import template

if TYPE_CHECKING:
    from markupsafe import Markup

_LONG = 60  # characters: the cells of a table with a longer one are wrapped


def render(blocks: Document, opens: Mapping[str, int] | None = None) -> Markup:
    """A document as HTML. Its headings are one level deeper than in Markdown.

    Args:
        blocks: of the document.
        opens: the number of the case that `page.js` shows when the first cell of a row, with this text, is chosen.
    """
    from markupsafe import Markup

    text = template("blocks.html.j2").render(
        blocks=blocks,
        opens=opens or {},
        labelled=_labelled,
        capital=capital,
        table_class=_table_class,
        cell_class=_cell_class,
    )
    return Markup(text)  # noqa: S704  the template has escaped it


def _labelled(blocks: Document, label: str) -> Iterator[tuple[str, Block, str]]:
    """Each block with its kind and the heading above it."""
    for block in blocks:
        label = block.text if isinstance(block, Heading) else label
        yield type(block).__name__, block, label


def _table_class(table: Table) -> str:
    is_long = any(len(cell.text) > _LONG for row in table.rows for cell in row[1:])
    return " ".join(name for name, is_so in (("totals", table.groups), ("wrap", is_long)) if is_so)


def _cell_class(column: Column, cell: Cell) -> str:
    return " ".join(name for name in ("num" if column.is_number else "", cell.style or "") if name)


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]
