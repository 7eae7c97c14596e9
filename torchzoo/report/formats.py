"""The formats of `torchzoo report`. A new format is a line in `FORMATS` and a function that writes it.

A writer that needs more than a few lines has a file of its own in this folder. Writers import what they need when they
are called, so that the command line starts without rich, pandas or jinja2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

import msgspec

from torchzoo.analysis.cases import ReportData
from torchzoo.report.text import csv_text, json_text

Writer = Callable[[ReportData, IO[str]], None]


class Format(msgspec.Struct, frozen=True):
    """The text of the help on a format, and the function that writes a report in it."""

    text: str
    write: Writer


def _table(data: ReportData, file: IO[str]) -> None:
    from torchzoo.report.terminal_report import write

    write(data, file)


def _markdown(data: ReportData, file: IO[str]) -> None:
    from torchzoo.analysis.overview import overview
    from torchzoo.report.markdown import render
    from torchzoo.report.overview import before_the_cases, document, of_the_cases
    from torchzoo.report.tables import cases_table

    cases = [cases_table(data.cases), *of_the_cases(data.cases)]
    file.write(render([*before_the_cases(data), *cases, *document(data, overview(data.cases))]))


def _csv(data: ReportData, file: IO[str]) -> None:
    from torchzoo.analysis.frame import FIGURES, values

    names = [column.name for column in FIGURES]
    rows = map(values, data.cases)
    file.write(csv_text([names, *([row[name] for name in names] for row in rows)]))


def _json(data: ReportData, file: IO[str]) -> None:
    from torchzoo.report.json_report import document

    file.write(json_text(document(data), indent=1) + "\n")


def _jsonl(data: ReportData, file: IO[str]) -> None:
    for record in data.records:
        print(json_text(record), file=file)


def _html(data: ReportData, file: IO[str]) -> None:
    from torchzoo.report.html.page import page

    file.write(page(data))


def _svg(data: ReportData, file: IO[str]) -> None:
    from torchzoo.report.speedup_picture import picture

    file.write(picture(data) + "\n")


DEFAULT = "table"
FORMATS = {
    "table": Format("tables for the terminal", _table),
    "md": Format("Markdown", _markdown),
    "csv": Format("a row for each case", _csv),
    "json": Format("rows, summary and what is known of the runs", _json),
    "jsonl": Format("the records as they were kept, one in each line", _jsonl),
    "html": Format("one file that opens in a browser and needs nothing else", _html),
    "svg": Format("a picture of the speedups by domain", _svg),
}
