"""`torchzoo report`: runs that were kept, as tables, Markdown, CSV, JSON or a page for the browser."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from torchzoo.analysis.cases import ReportData, read_report_data
from torchzoo.commands.arguments import write

FORMATS = ("table", "md", "csv", "json", "jsonl", "html")


def add_parser(commands: Any) -> None:
    """`report RUN [RUN ...] [--format F] [-o FILE]`."""
    report = commands.add_parser(
        "report",
        help="show runs that were kept with -o",
        description="Show a run, or several of the same machine, software and settings as one: every case with the "
        "command that measures it again, and what they come to by domain, mode, backend and precision.",
    )
    report.add_argument("paths", type=Path, nargs="+", metavar="RUN", help="a folder that `torchzoo run -o` wrote")
    report.add_argument(
        "--format",
        choices=FORMATS,
        default="table",
        help="table, md (Markdown), csv (a row per case), json (rows, summary and the runs' facts), jsonl (the records "
        "as they were kept, one a line), html (one file that needs nothing else) (default: table)",
    )
    report.add_argument("-o", "--output", type=Path, metavar="FILE", help="write there instead of to the terminal")
    report.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Read, derive, write.

    Raises:
        StoreError: a run that can't be read, or runs that can't stand together.
        UsageError: the file can't be written.
    """
    data = read_report_data(arguments.paths)
    from torchzoo.report.overview import notes

    for note in notes(data):
        print(f"torchzoo: {note}", file=sys.stderr)
    with _output(arguments.output) as file:
        WRITERS[arguments.format](data, file)
    return 0


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that is written whole or not at all."""
    if path is None:
        yield sys.stdout
        return
    file = io.StringIO()
    yield file
    write(file.getvalue(), path)
    print(f"written to {path}", file=sys.stderr)


def _table(data: ReportData, file: IO[str]) -> None:
    """One case in detail; many a line each, and what they come to."""
    from rich.console import Console

    from torchzoo.report import tables
    from torchzoo.report.overview import overview, terminal_overview
    from torchzoo.report.summary import summary

    console = Console(highlight=False, file=file, markup=False)
    if len(data.records) > 1:
        console.print(tables.terminal_table(data.cases))
        for one in data.runs:
            console.print(summary(one))
        console.print(terminal_overview(data, overview(data.cases)))
        print("\ncommands that measure a case again", file=file)
        for result in data.cases:
            print(f"  {result.command}", file=file)
        return
    (record,) = data.records
    console.print(tables.case_detail(record))
    console.print(f"again: {data.cases[0].command}", soft_wrap=True)


def _markdown(data: ReportData, file: IO[str]) -> None:
    from torchzoo.report.overview import overview, write_markdown_overview
    from torchzoo.report.tables import write_markdown

    write_markdown(data, file)
    write_markdown_overview(data, overview(data.cases), file)


def _csv(data: ReportData, file: IO[str]) -> None:
    from torchzoo.analysis.frame import to_frame

    to_frame(data.cases).to_csv(file, index=False, lineterminator="\n")


def _json(data: ReportData, file: IO[str]) -> None:
    from torchzoo.report.document import document

    file.write(msgspec.json.format(msgspec.json.encode(document(data)), indent=1).decode() + "\n")


def _jsonl(data: ReportData, file: IO[str]) -> None:
    for record in data.records:
        print(msgspec.json.encode(record).decode(), file=file)


def _html(data: ReportData, file: IO[str]) -> None:
    from torchzoo.report.html.page import page

    file.write(page(data))


WRITERS = {"table": _table, "md": _markdown, "csv": _csv, "json": _json, "jsonl": _jsonl, "html": _html}
