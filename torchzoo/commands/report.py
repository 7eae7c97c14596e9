"""`torchzoo report`: show kept runs as tables, Markdown, CSV, JSON or a page for the browser; or show their noise."""

from __future__ import annotations

import argparse
import io
import math
import sys
from collections.abc import Callable
from typing import IO, Any

import msgspec

from torchzoo.analysis import totals
from torchzoo.analysis.cases import ReportData, read_report_data
from torchzoo.analysis.figures import host_speed
from torchzoo.commands.arguments import kept_run, positive_int, usable_path, write
from torchzoo.errors import UsageError
from torchzoo.report import markdown, noise, overview, some_cases, terminal, terminal_report
from torchzoo.report.terminal_report import SortKey, View
from torchzoo.report.text import csv_text, json_text

# --- formats: an entry of `FORMATS`, and a function which imports what it alone needs ---

Writer = Callable[[ReportData, IO[str]], None]


def _markdown(data: ReportData, file: IO[str]) -> None:
    figures = some_cases.three_figures(data.cases, data.host)
    cases = [overview.cases_table(data.cases), *figures, *some_cases.document(data.cases)]
    blocks = [*overview.before_the_cases(data), *cases, *overview.document(data, totals.overview(data.cases))]
    file.write(markdown.render(blocks))


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
    from torchzoo.report.dots import speedup_picture

    file.write(speedup_picture(data) + "\n")


DEFAULT = "table"
#: Each format with its help and its writer.
FORMATS: dict[str, tuple[str, Writer]] = {
    "table": ("tables for the terminal", terminal_report.write),
    "md": ("Markdown", _markdown),
    "csv": ("a row for each case", _csv),
    "json": ("rows, summary and what is known of the runs", _json),
    "jsonl": ("the records as they were kept, one in each line", _jsonl),
    "html": ("one file that opens in a browser and needs nothing else", _html),
    "svg": ("a picture of the speedups by domain", _svg),
}
NOISE_FORMATS = (DEFAULT, "md", "json")


# --- the command ---


def add_parser(commands: Any) -> None:
    """Add `report` to argparse's subcommands."""
    report = commands.add_parser(
        "report",
        help="show runs that were kept with -o",
        description="Show a run, or several of the same machine, software and settings as one: every case, and totals "
        "by domain, mode, backend and precision. Hosts of runs on accelerators may have more or fewer of them, of one "
        "kind. `torchzoo show RUN CASE` shows one case in full.",
    )
    report.add_argument(
        "paths", type=usable_path, nargs="+", metavar="RUN", help="a folder that `torchzoo run -o` wrote"
    )
    report.add_argument(
        "--format",
        choices=list(FORMATS),
        help=f"{'; '.join(f'{name}: {text}' for name, (text, _) in FORMATS.items())} (default: that of FILE's suffix, "
        f"or {DEFAULT})",
    )
    report.add_argument(
        "-o", "--output", type=usable_path, metavar="FILE", help="write there instead of to the terminal"
    )
    report.add_argument(
        "--noise",
        action="store_true",
        help="how much a run's figures vary when nothing changes: between its repeats (`torchzoo run --repeats N`), "
        f"and within a process; as {', '.join(NOISE_FORMATS)}",
    )
    report.add_argument(
        "--host",
        metavar="FACTOR|RUN",
        help="show also how long steps would take on a host that takes FACTOR times as long as the reference host, or "
        "on the host of another RUN (default: the reference host; in tables for the terminal, none)",
    )
    order = report.add_argument_group("order", "which cases the tables for the terminal show, and in what order")
    order.add_argument(
        "--sort",
        choices=[key.value for key in SortKey],
        metavar="KEY",
        help="speedup (the slowest first), time (the longest first), memory (the most first) or model (by name)",
    )
    order.add_argument("--worst", type=positive_int, metavar="N", help="only the N worst by --sort (default: speedup)")
    order.add_argument("--best", type=positive_int, metavar="N", help="only the N best; with --worst, both")
    report.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Read the runs and write the report."""
    suffix = "" if arguments.output is None else arguments.output.suffix.removeprefix(".")
    name = arguments.format or (suffix if suffix in FORMATS else DEFAULT)
    text = io.StringIO()
    file = sys.stdout if arguments.output is None else text
    (_write_noise if arguments.noise else _write_cases)(arguments, name, file)
    if arguments.output is None:
        return 0
    write(text.getvalue(), arguments.output)
    terminal.say(f"written to {arguments.output}")
    return 0


def _write_cases(arguments: argparse.Namespace, name: str, file: IO[str]) -> None:
    sort = None if arguments.sort is None else SortKey(arguments.sort)
    view = View(sort=sort, worst=arguments.worst, best=arguments.best)
    if view != View() and name != DEFAULT:
        raise UsageError(f"--sort, --worst and --best go with --format {DEFAULT}: the page sorts where it is clicked")
    host = None if arguments.host is None else _host(arguments.host)
    data = msgspec.structs.replace(read_report_data(arguments.paths), host=host)
    if host is not None and not some_cases.three_figures(data.cases, host):
        raise UsageError("--host: these runs do not have the host's work; runs on accelerators of this version have it")
    for note in overview.notes(data):
        terminal.say(f"torchzoo: {note}")
    if view == View():
        FORMATS[name][1](data, file)
    else:
        terminal_report.write(data, file, view)


def _host(text: str) -> float:
    """Return how many times as long as the reference host a host takes, from a number or from a run of it."""
    try:
        factor = float(text)
    except ValueError:
        found = host_speed(kept_run(usable_path(text)).records)
        if found is None:
            raise UsageError(f"--host {text}: the run did not time the host's reference work") from None
        return found
    if not 0 < factor < math.inf:
        raise UsageError(f"--host {text}: a positive number is needed, such as 1.5")
    return factor


def _write_noise(arguments: argparse.Namespace, name: str, file: IO[str]) -> None:
    if (arguments.sort, arguments.worst, arguments.best, arguments.host) != (None, None, None, None):
        raise UsageError("--noise shows the noisiest case first: leave out --sort, --worst, --best and --host")
    if len(arguments.paths) > 1:
        raise UsageError("--noise is that of one run: name one RUN")
    if name not in NOISE_FORMATS:
        raise UsageError(f"--noise has the formats {', '.join(NOISE_FORMATS)}, not {name}")
    run = kept_run(arguments.paths[0])
    if name == DEFAULT:
        terminal.show(terminal.render(noise.document(run)), file=file)
    else:
        file.write(markdown.render(noise.document(run)) if name == "md" else noise.as_json(run))
