"""`torchzoo list`: show models as lines with the chosen columns, as JSON, or as a Markdown table."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torchzoo.case import Domain, Mode
from torchzoo.commands.arguments import add_models, usable_path, words, write
from torchzoo.errors import UsageError, unknown
from torchzoo.report import terminal
from torchzoo.report.text import json_text
from torchzoo.store import read_run
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.collections import Collection
from torchzoo.zoo.spec import ModelSpec, SpecError


class ListColumn(NamedTuple):
    """The meaning of a column, and its cell for a model."""

    meaning: str
    cell: Callable[[ModelSpec], str]
    is_number: bool = False


def _batch(mode: Mode) -> ListColumn:
    return ListColumn(
        f"default batch size of {mode}",
        lambda spec: f"{spec.batch_size[mode]:,}" if mode in spec.batch_size else "",
        is_number=True,
    )


COLUMNS = {
    "name": ListColumn("what `torchzoo run` takes", lambda spec: spec.name),
    "domain": ListColumn("such as nlp", lambda spec: spec.domain),
    "task": ListColumn("what the model does", lambda spec: spec.task),
    **{str(mode): _batch(mode) for mode in Mode},
    "smoke": ListColumn("batch size of --bs smoke", lambda spec: f"{spec.smoke_batch_size:,}", is_number=True),
    "parameters": ListColumn("how many, of all networks", lambda spec: f"{spec.parameters:,}", is_number=True),
    "gib": ListColumn(
        "GiB of device memory at the default batch, where over 8",
        lambda spec: "; ".join(f"{mode} {value:,.4g}" for mode, value in spec.device_memory_gib.items()),
    ),
    "dtype": ListColumn("of the weights, without a --precision", lambda spec: spec.native_dtype),
    "source": ListColumn("the library, or the paper that it is written after", lambda spec: spec.source),
    "paper": ListColumn("a link", lambda spec: spec.paper),
    "requirements": ListColumn("libraries beyond torch", lambda spec: ", ".join(spec.requirements)),
    "folder": ListColumn("where its code is", lambda spec: spec.folder),
}
HELP = "help"


def add_parser(commands: Any) -> None:
    """Add `list` to argparse's subcommands."""
    parser = commands.add_parser("list", help="list the models")
    add_models(parser)
    parser.add_argument("--domain", choices=[domain.value for domain in Domain])
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--columns",
        metavar="C[,C]",
        help=f"{', '.join(COLUMNS)}; {HELP} explains them (default: name, domain, task, batch sizes, source)",
    )
    form.add_argument("--json", action="store_true", help="all metadata as a JSON array")
    form.add_argument(
        "--table",
        action="store_true",
        help="a Markdown table with the shapes of inputs and FLOPs: it builds the models, without data where possible",
    )
    parser.add_argument(
        "--flops-from",
        type=usable_path,
        action="append",
        default=[],
        metavar="RUN",
        help="with --table: a run with --flops, for the steps whose work depends on data; may be given again",
    )
    parser.add_argument("-o", "--output", type=usable_path, metavar="FILE", help="write there instead of printing")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the chosen models, or without a choice all model folders."""
    if arguments.columns == HELP:
        rows = [(name, column.meaning) for name, column in COLUMNS.items()]
        terminal.show(terminal.table(("", ""), rows, has_headings=False))
        return 0
    if arguments.flops_from and not arguments.table:
        raise UsageError("--flops-from goes with --table")
    catalog = find_models(arguments.models_dir)
    suites = words(arguments.suite)
    is_choice = bool(arguments.models or suites)
    specs, errors = catalog.specs_of(catalog.select(arguments.models, suites) if is_choice else catalog.names)
    for error in errors:
        terminal.say(f"torchzoo: left out: {error}")
    chosen = [spec for spec in specs if arguments.domain in (None, spec.domain)]
    if arguments.table:
        text = _markdown(chosen, arguments.flops_from)
    elif arguments.json:
        text = json_text(chosen, indent=1) + "\n"
    else:
        text = _lines(chosen, _columns(arguments, chosen))
    write(text, arguments.output)
    if not is_choice and not arguments.table and not arguments.json:
        for name, collection in sorted(catalog.collections.items()):
            terminal.say(_line_of(name, collection))
    return 0


def _markdown(specs: Sequence[ModelSpec], runs: Sequence[Path]) -> str:
    from torchzoo.commands import model_table

    counted = model_table.counted_in(map(read_run, runs))
    with contextlib.redirect_stdout(sys.stderr):  # output of libraries is not part of the document
        return model_table.document(specs, counted, sources=list(map(str, runs)))


def _lines(specs: Sequence[ModelSpec], columns: Sequence[str]) -> str:
    """A line for each model, regardless of the terminal's width."""
    rows = [[COLUMNS[name].cell(spec) for name in columns] for spec in specs]
    table = terminal.table(columns, rows, right=[name for name in columns if COLUMNS[name].is_number])
    return "\n".join(terminal.lines(table, width=terminal.ANY_WIDTH)) + "\n"


def _columns(arguments: argparse.Namespace, specs: Sequence[ModelSpec]) -> tuple[str, ...]:
    """The chosen columns; else the usual ones, with batch sizes of prefill and decode if a model has them."""
    if arguments.columns is None:
        modes = [mode for mode in Mode if not mode.generates or any(mode in spec.batch_size for spec in specs)]
        return ("name", "domain", "task", *map(str, modes), "source")
    chosen = words(arguments.columns)
    for word in chosen:
        if word not in COLUMNS:
            raise UsageError(f"{unknown('column', word, COLUMNS)}; `torchzoo list --columns {HELP}` explains them")
    if not chosen:
        raise UsageError(f"no column given; known: {', '.join(COLUMNS)}")
    return chosen


def _line_of(name: str, collection: Collection) -> str:
    try:
        return f"and {len(collection.members):,} models of the collection {name}: torchzoo list '{name}:*'"
    except SpecError as error:
        return f"torchzoo: left out: {error}"
