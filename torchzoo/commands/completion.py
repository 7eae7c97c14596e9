"""Write scripts that let a shell complete commands, options, models, suites and paths, with shtab."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from enum import StrEnum

from torchzoo import backends, install
from torchzoo.case import AXES, Domain, Parallel
from torchzoo.commands.arguments import recorded_path, usable_path
from torchzoo.commands.listing import COLUMNS, HELP
from torchzoo.errors import UsageError
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.suites import suite_names

FOLDERS = ("DIR", "RUN", "BASE", "CANDIDATE")  # metavars of folders


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell. The script contains the names of the present models, so that completion is fast.

    `parser` is changed and can't parse afterwards.
    """
    try:
        import shtab
    except ImportError as error:
        raise UsageError("--print-completion needs shtab: pip install shtab") from error
    words = _words()
    for command in _commands(parser):
        if command.prog == "torchzoo install":
            install.add_arguments(command)
        for action in command._actions:
            if action.type in (usable_path, recorded_path):
                is_folder = action.metavar in FOLDERS
                action.complete = shtab.DIRECTORY if is_folder else shtab.FILE  # type: ignore[attr-defined]
            elif action.dest in words:
                action.choices = words[action.dest]
    return str(shtab.complete(parser, shell=shell))


def _words() -> dict[str, list[str]]:
    """The values of arguments, by name. Comma lists are completed up to the first comma."""
    models = find_models().names
    return {
        "models": ["all", *Domain, *models],
        "like": models,
        "suite": suite_names(),
        **{axis.name: list(axis.kind) for axis in AXES if issubclass(axis.kind, StrEnum)},
        "backend": list(backends.BACKENDS),
        "parallel": [one for one in Parallel if one is not Parallel.NONE],
        "device": ["cpu", "cuda"],
        "columns": [HELP, *COLUMNS],
    }


def _commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _commands(one)
