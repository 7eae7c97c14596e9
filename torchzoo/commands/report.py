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

from torchzoo.commands.arguments import write
from torchzoo.report.entries import Material, read_material

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
    material = read_material(arguments.paths)
    from torchzoo.report.overview import notes

    for note in notes(material):
        print(f"torchzoo: {note}", file=sys.stderr)
    with _output(arguments.output) as file:
        WRITERS[arguments.format](material, file)
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


def _table(material: Material, file: IO[str]) -> None:
    """One case in detail; many a line each, and what they come to."""
    from rich.console import Console

    from torchzoo.report import tables
    from torchzoo.report.overview import overview, terminal_overview
    from torchzoo.report.summary import summary

    console = Console(highlight=False, file=file, markup=False)
    records = material.records
    if len(records) > 1:
        console.print(tables.terminal_table(records))
        for one in material.runs:
            console.print(summary(one.manifest, one.records))
        console.print(terminal_overview(material, overview(material.entries)))
        print("\ncommands that measure a case again", file=file)
        for entry in material.entries:
            print(f"  {entry.command}", file=file)
        return
    (record,) = records
    console.print(tables.case_detail(record))
    console.print(f"again: {material.entries[0].command}", soft_wrap=True)


def _markdown(material: Material, file: IO[str]) -> None:
    from torchzoo.report.overview import overview, write_markdown_overview
    from torchzoo.report.tables import write_markdown

    write_markdown([one.manifest for one in material.runs], material.records, file)
    write_markdown_overview(material, overview(material.entries), file)


def _csv(material: Material, file: IO[str]) -> None:
    from torchzoo.report.frame import to_frame

    to_frame(material.entries).to_csv(file, index=False, lineterminator="\n")


def _json(material: Material, file: IO[str]) -> None:
    from torchzoo.report.document import document

    file.write(msgspec.json.format(msgspec.json.encode(document(material)), indent=1).decode() + "\n")


def _jsonl(material: Material, file: IO[str]) -> None:
    for record in material.records:
        print(msgspec.json.encode(record).decode(), file=file)


def _html(material: Material, file: IO[str]) -> None:
    from torchzoo.report.html import page

    file.write(page(material))


WRITERS = {"table": _table, "md": _markdown, "csv": _csv, "json": _json, "jsonl": _jsonl, "html": _html}
