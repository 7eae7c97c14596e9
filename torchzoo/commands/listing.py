"""`torchzoo list`: the models, a line for each or as JSON."""

from __future__ import annotations

import argparse
from typing import Any

from torchzoo.case import Domain, Mode
from torchzoo.commands.arguments import add_suite, words
from torchzoo.report import terminal
from torchzoo.report.text import json_text
from torchzoo.zoo.catalog import find_models


def add_parser(commands: Any) -> None:
    """Add `list` to argparse's subcommands."""
    parser = commands.add_parser("list", help="list the models")
    parser.add_argument("--domain", choices=[domain.value for domain in Domain])
    add_suite(parser)
    parser.add_argument("--json", action="store_true", help="all metadata as a JSON array")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the models that were chosen, with their batch sizes by mode."""
    catalog = find_models(arguments.models_dir)
    specs, errors = catalog.specs()
    for error in errors:
        terminal.say(f"torchzoo: left out: {error}")
    suites = words(arguments.suite)
    named = set(catalog.select([], suites)) if suites else set(catalog.names)
    chosen = [spec for spec in specs if spec.name in named and arguments.domain in (None, spec.domain)]
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
    return 0
