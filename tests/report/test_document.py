"""Documents in the terminal, in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from syrupy.assertion import SnapshotAssertion

from torchzoo.report import html, markdown, terminal
from torchzoo.report.document import (
    Cell,
    Code,
    Column,
    Document,
    Fold,
    Heading,
    Items,
    Marked,
    Picture,
    Style,
    Text,
    table,
)

FOREIGN = 'x|y <img src=1> [bold]`rm` "&\x1b[2J'


def toy() -> Document:
    figures = table(
        [
            Column("case"),
            Column("metric", is_detail=True),
            Column("verdict"),
            Column("time of a step", short="time", is_number=True),
            Column("note", is_note=True),
        ],
        [
            ("small eval", "latency", Cell("slower", style=Style.BAD), Cell("1.20 ms (95%)", short="1.20 ms"), FOREIGN),
            ("large eval", "latency", Cell("same", style=Style.FAINT), "2.00 ms", FOREIGN),
        ],
        notes=["how to read it"],
        groups=[0, 1],
    )
    return [
        Heading(FOREIGN),
        Text(FOREIGN),
        Text(Marked("**ours**, `code`")),
        Items((FOREIGN, "second")),
        figures,
        Fold((table(("model", "count"), [("a", "1"), ("b", "2")]),), "2 models", brief=(Text("2 models: a, b"),)),
        Fold((Text("a detail"),)),
        Code(("torchzoo run a", "echo '```'")),
        Picture("picture.svg", "a picture"),
    ]


RENDERERS: dict[str, Callable[[Document], str]] = {
    "txt": lambda document: "\n".join([*terminal.lines(terminal.render(document), width=100), ""]),
    "md": markdown.render,
    "html": lambda document: html.render(document, {"small eval": 7}) + "\n",
}


@pytest.mark.parametrize("form", RENDERERS)
def test_each_kind_of_block(form: str, snapshot: SnapshotAssertion) -> None:
    assert RENDERERS[form](toy()) == snapshot


def test_rows_of_folded_tables_are_left_out_where_the_text_is_too_long() -> None:
    rows = [(f"model {number}", "x" * 50) for number in range(100)]
    document = [table(("model", ""), rows[:2]), Fold((table(("model", ""), rows),), "100 models")]
    assert "left out" not in markdown.render(document)
    shown = markdown.render(document, longest=2000)
    assert len(shown) <= 2000
    assert "more rows are left out" in shown
    assert "model 0" in markdown.render(document, longest=1)


def test_columns_that_are_empty_in_every_row_can_be_left_out() -> None:
    used = table(("a", "b", "c"), [("1", "", "2"), ("3", "", "")]).used()
    assert [column.heading for column in used.columns] == ["a", "c"]
    assert [[cell.text for cell in row] for row in used.rows] == [["1", "2"], ["3", ""]]
