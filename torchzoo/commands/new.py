"""`torchzoo new`: write a model folder to start from, in the layout of another model."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from torchzoo.commands.arguments import folder, recorded_path
from torchzoo.report import terminal
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.folders import bundled, checkout
from torchzoo.zoo.new_model import make_folder


def add_parser(commands: Any) -> None:
    """Add `new` to argparse's subcommands."""
    parser = commands.add_parser(
        "new",
        help="write the folder of a new model, in the layout of another one",
        description="Write the folder of a model NAME: the files of the model that --like names, with a docstring and "
        "a metadata.yaml to fill in. It keeps the contract from the start; change it step by step.",
    )
    parser.add_argument("name", metavar="NAME", help="the new model's name: letters, digits and _")
    parser.add_argument("--like", required=True, metavar="MODEL", help="the model whose folder is copied")
    parser.add_argument(
        "--models-dir",
        type=recorded_path,
        metavar="DIR",
        help="where to write the folder (default: models/ of the checkout; outside a checkout, the current folder)",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the folder, and print the next steps."""
    given: Path | None = arguments.models_dir
    parent = default_parent() if given is None else folder(given, "--models-dir")
    made = make_folder(arguments.name, arguments.like, parent, find_models([] if given is None else [parent]))
    files = sorted(str(path.relative_to(made)) for path in made.rglob("*") if path.is_file())
    place = shlex.quote(shown(made))
    print(f"made {place} like {arguments.like}: {', '.join(files)}")
    terminal.say(f"next: write the network and the docstring in {place}, and paper and source in its metadata.yaml")
    terminal.say(f"then: torchzoo check-model {place} --write")
    return 0


def default_parent() -> Path:
    """The parent of a new folder: the zoo's models in a checkout, else the current folder."""
    return Path.cwd() if checkout() is None else bundled("models")


def shown(path: Path) -> str:
    """The path as a user types it: relative if it is below the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
