"""`torchzoo list`: the models, a line for each or as JSON."""

from __future__ import annotations

import argparse
from typing import Any

from torchzoo.case import Domain, Mode
from torchzoo.commands.arguments import add_models, words
from torchzoo.report import terminal
from torchzoo.report.text import json_text
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.collections import Collection
from torchzoo.zoo.spec import SpecError


def add_parser(commands: Any) -> None:
    """Add `list` to argparse's subcommands."""
    parser = commands.add_parser("list", help="list the models")
    add_models(parser)
    parser.add_argument("--domain", choices=[domain.value for domain in Domain])
    parser.add_argument("--json", action="store_true", help="all metadata as a JSON array")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the models that were chosen, with their batch sizes by mode. Without a choice: the model folders."""
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
    modes = tuple(mode for mode in Mode if not mode.generates or any(mode in spec.batch_size for spec in chosen))
    rows = [
        (
            spec.name,
            spec.domain,
            spec.task,
            *(f"{spec.batch_size[mode]:,}" if mode in spec.batch_size else "" for mode in modes),
            spec.source,
        )
        for spec in chosen
    ]
    table = terminal.table(("model", "domain", "task", *modes, "source"), rows, right=modes)
    print("\n".join(terminal.lines(table, width=terminal.ANY_WIDTH)))  # a line for each model, however narrow
    if not is_choice:
        for name, collection in sorted(catalog.collections.items()):
            terminal.say(_line_of(name, collection))
    return 0


def _line_of(name: str, collection: Collection) -> str:
    """How many models a collection has, and how to see them."""
    try:
        return f"and {len(collection.members):,} models of the collection {name}: torchzoo list '{name}:*'"
    except SpecError as error:
        return f"torchzoo: left out: {error}"
