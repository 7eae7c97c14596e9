"""Documents in the terminal, in Markdown and in HTML."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from syrupy.assertion import SnapshotAssertion

from examples import ROOT, record, run_of
from repeated_runs import FAILED, STEADY, records, times
from torchzoo.analysis.cases import read_report_data
from torchzoo.analysis.compare import compare_runs
from torchzoo.analysis.totals import overview
from torchzoo.report import html, markdown, noise, run_comparison, some_cases, terminal
from torchzoo.report import overview as report
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
    section,
    table,
)

KEPT = ROOT / "docs/results/2026-11-21-h200-check"
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


def of_a_run() -> Document:
    data = read_report_data([KEPT])
    return [*some_cases.document(data.cases), *report.document(data, overview(data.cases))]


def of_a_comparison() -> Document:
    base = [*records(STEADY, model="a"), *records(STEADY, model="c"), record(model="b"), record(model="gone")]
    candidate = [*records(times(1.2), model="a"), *records(STEADY, model="c"), record(FAILED, model="b")]
    comparison = compare_runs(run_of(base, path="base"), run_of(candidate, path="candidate"))
    return run_comparison.github_issue(comparison)


def of_noise() -> Document:
    return noise.document(run_of([*records(STEADY, model="a"), record(model="b")]))


DOCUMENTS = {"toy": toy, "run": of_a_run, "comparison": of_a_comparison, "noise": of_noise}
RENDERERS: dict[str, Callable[[Document], str]] = {
    "txt": lambda document: "\n".join([*terminal.lines(terminal.render(document), width=100), ""]),
    "md": markdown.render,
    "html": lambda document: html.render(document, {"small eval": 7}) + "\n",
}


@pytest.mark.parametrize("form", RENDERERS)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_document(name: str, form: str, snapshot: SnapshotAssertion) -> None:
    assert RENDERERS[form](DOCUMENTS[name]()) == snapshot


def test_foreign_text_is_text_in_every_format() -> None:
    for form, render in RENDERERS.items():
        shown = render(toy())
        assert "\x1b" not in shown
        assert form == "txt" or "<img" not in shown


def test_rows_of_folded_tables_are_left_out_where_the_text_is_too_long() -> None:
    rows = [(f"model {number}", "x" * 50) for number in range(100)]
    document = [table(("model", ""), rows[:2]), Fold((table(("model", ""), rows),), "100 models")]
    assert "left out" not in markdown.render(document)
    shown = markdown.render(document, longest=2000)
    assert len(shown) <= 2000
    assert "more rows are left out" in shown
    assert "model 0" in markdown.render(document, longest=1)


def test_a_section_without_rows_is_no_section() -> None:
    assert section("Empty", table(("a",), []), None) == []
    assert section("One", table(("a",), [("b",)]))[0] == Heading("One")


def test_columns_that_are_empty_in_every_row_can_be_left_out() -> None:
    used = table(("a", "b", "c"), [("1", "", "2"), ("3", "", "")]).used()
    assert [column.heading for column in used.columns] == ["a", "c"]
    assert [[cell.text for cell in row] for row in used.rows] == [["1", "2"], ["3", ""]]
