"""`torchzoo describe`: a Markdown table of models with their inputs and FLOPs; the one command that imports torch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from torchzoo.commands.arguments import add_models, chosen_models, write
from torchzoo.store import read_run
from torchzoo.zoo.catalog import find_models


def add_parser(commands: Any) -> None:
    """Add `describe` to argparse's subcommands."""
    parser = commands.add_parser(
        "describe",
        help="a Markdown table of models with their inputs and FLOPs",
        description="Build models (on the meta device where that can be) and print a Markdown table of what they are.",
    )
    add_models(parser)
    parser.add_argument(
        "--flops-from",
        type=Path,
        action="append",
        default=[],
        metavar="RUN",
        help="a run with --flops, for the steps whose work depends on data; may be given again",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the document there instead of printing it")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Build the models and print or write the document."""
    from torchzoo.commands.describe_models import counted_in, describe

    patterns, suites = chosen_models(arguments)
    catalog = find_models(arguments.models_dir)
    specs = [catalog.spec(name) for name in catalog.select(patterns, suites)]
    counted = counted_in(read_run(path) for path in arguments.flops_from)
    text = describe(specs, counted, sources=[str(path) for path in arguments.flops_from])
    write(text, arguments.write)
    return 0
