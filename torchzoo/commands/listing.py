"""`torchzoo list`: the models, a line for each with the columns that are asked for, or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torchzoo.case import Domain, Mode
from torchzoo.commands.arguments import add_models, words
from torchzoo.errors import UsageError, unknown
from torchzoo.report import terminal
from torchzoo.report.text import json_text
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.collections import Collection
from torchzoo.zoo.spec import ModelSpec, SpecError


class Column(NamedTuple):
    """What a column is, and its cell for a model."""

    meaning: str
    cell: Callable[[ModelSpec], str]
    is_number: bool = False


def _batch(mode: Mode) -> Column:
    return Column(
        f"default batch size of {mode}",
        lambda spec: f"{spec.batch_size[mode]:,}" if mode in spec.batch_size else "",
        is_number=True,
    )


def _by_mode(values: dict[Mode, float]) -> str:
    return "; ".join(f"{mode} {value:,.4g}" for mode, value in values.items())


COLUMNS = {
    "name": Column("what `torchzoo run` takes", lambda spec: spec.name),
    "domain": Column("such as nlp", lambda spec: spec.domain),
    "task": Column("what the model does", lambda spec: spec.task),
    **{str(mode): _batch(mode) for mode in Mode},
    "smoke": Column("batch size of --bs smoke", lambda spec: f"{spec.smoke_batch_size:,}", is_number=True),
    "parameters": Column("how many, of all networks", lambda spec: f"{spec.parameters:,}", is_number=True),
    "gib": Column("GiB of device memory at the default batch, where over 8", lambda s: _by_mode(s.device_memory_gib)),
    "dtype": Column("of the weights, without a --precision", lambda spec: spec.native_dtype),
    "source": Column("the library, or the paper that it is written after", lambda spec: spec.source),
    "paper": Column("a link", lambda spec: spec.paper),
    "requirements": Column("libraries beyond torch", lambda spec: ", ".join(spec.requirements)),
    "folder": Column("where its code is", lambda spec: spec.folder),
}
HELP = "help"


def add_parser(commands: Any) -> None:
    """Add `list` to argparse's subcommands."""
    parser = commands.add_parser("list", help="list the models")
    add_models(parser)
    parser.add_argument("--domain", choices=[domain.value for domain in Domain])
    parser.add_argument(
        "--columns",
        metavar="C[,C]",
        help=f"{', '.join(COLUMNS)}; {HELP} explains them (default: name, domain, task, batch sizes, source)",
    )
    parser.add_argument("--json", action="store_true", help="all metadata as a JSON array")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the models that were chosen. Without a choice: the model folders."""
    if arguments.columns == HELP:
        rows = [(name, column.meaning) for name, column in COLUMNS.items()]
        terminal.show(terminal.table(("", ""), rows, has_headings=False))
        return 0
    chosen_columns = _columns(arguments)
    catalog = find_models(arguments.models_dir)
    suites = words(arguments.suite)
    is_choice = bool(arguments.models or suites)
    specs, errors = catalog.specs_of(catalog.select(arguments.models, suites) if is_choice else catalog.names)
    for error in errors:
        terminal.say(f"torchzoo: left out: {error}")
    chosen = [spec for spec in specs if arguments.domain in (None, spec.domain)]
    if arguments.json:
        print(json_text(chosen, indent=1))
        return 0
    names = chosen_columns or _usual_columns(chosen)
    rows_of_models = [[COLUMNS[name].cell(spec) for name in names] for spec in chosen]
    numbers = [name for name in names if COLUMNS[name].is_number]
    table = terminal.table(names, rows_of_models, right=numbers)
    print("\n".join(terminal.lines(table, width=terminal.ANY_WIDTH)))  # a line for each model, however narrow
    if not is_choice:
        for name, collection in sorted(catalog.collections.items()):
            terminal.say(_line_of(name, collection))
    return 0


def _columns(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The columns that were asked for; none if the usual ones are meant.

    Raises:
        UsageError: there is no such column, or JSON is asked for, which has all of them.
    """
    if arguments.columns is None:
        return ()
    if arguments.json:
        raise UsageError("--json has all metadata: leave out --columns")
    chosen = words(arguments.columns)
    for word in chosen:
        if word not in COLUMNS:
            raise UsageError(f"{unknown('column', word, COLUMNS)}; `torchzoo list --columns {HELP}` explains them")
    if not chosen:
        raise UsageError(f"no column given; known: {', '.join(COLUMNS)}")
    return chosen


def _usual_columns(specs: Sequence[ModelSpec]) -> tuple[str, ...]:
    """Batch sizes of prefill and decode are shown where a model has them."""
    modes = [mode for mode in Mode if not mode.generates or any(mode in spec.batch_size for spec in specs)]
    return ("name", "domain", "task", *map(str, modes), "source")


def _line_of(name: str, collection: Collection) -> str:
    """How many models a collection has, and how to see them."""
    try:
        return f"and {len(collection.members):,} models of the collection {name}: torchzoo list '{name}:*'"
    except SpecError as error:
        return f"torchzoo: left out: {error}"
