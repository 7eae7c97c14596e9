"""`torchzoo.run(...)`: call `torchzoo run` from Python, with the same parser and session."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn

from torchzoo.analysis.cases import case_results
from torchzoo.analysis.frame import to_frame
from torchzoo.commands import run as command
from torchzoo.commands.executor_options import Engine, executor_of
from torchzoo.errors import UsageError, unknown
from torchzoo.report import terminal
from torchzoo.report.summary import more_time_for, next_steps
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.settings import Pass
from torchzoo.store import read_run

if TYPE_CHECKING:
    import pandas as pd

#: Options that only affect what is printed.
NOT_IN_PYTHON = ("json", "dry_run", "compile_stats")


class _RaisingParser(argparse.ArgumentParser):
    """An argument parser with errors that a caller can catch."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def measured(models: str | Iterable[str], options: Mapping[str, Any]) -> pd.DataFrame:
    """Measure the models. `torchzoo.run` documents the arguments."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("torchzoo.run works in the main thread only: signals end its workers")
    line = words_of(models, options)
    arguments = parsed(line)
    with terminated_as_interrupted():
        if executor_of(arguments).engine is Engine.SLURM:
            command.run_in_slurm(arguments)
            return to_frame(case_results(read_run(arguments.resume or arguments.output)))
        with command.started(arguments, ("torchzoo", "run", *line)) as (session, run_store, is_kept):
            finished = command.finish(session, run_store, is_kept=is_kept, quiet=arguments.quiet)
        results = case_results(finished)
        if not arguments.quiet:
            kept = (f"run kept in {finished.path}", *next_steps(results))
            for one in (*more_time_for(finished, results), *(kept if is_kept or run_store.has_failures else ())):
                terminal.say(one)
        return to_frame(results)


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """The arguments that the parser of `torchzoo run` makes of `words`."""
    parser = _RaisingParser(prog="torchzoo")
    command.add_parser(parser.add_subparsers())
    return parser.parse_args(["run", *words], argparse.Namespace(words=["run", *words]))


def words_of(models: str | Iterable[str], options: Mapping[str, Any]) -> list[str]:
    """The words of the command line. Options that are None or False are left out."""
    actions = {one.dest: one for one in parsed([]).parser._actions if one.help != argparse.SUPPRESS}
    actions |= dict.fromkeys(Pass, actions["passes"])
    found: list[str] = []
    for name, value in options.items():
        if name not in actions or name in ("passes", "models", "help", *NOT_IN_PYTHON):
            raise TypeError(unknown("option of torchzoo.run", name, [*actions]))
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        if value is True:
            found.append(flag)
        elif isinstance(actions[name], argparse._AppendAction):
            found += [f"{flag}={one}" for one in _each(value)]
        else:
            found.append(f"{flag}={','.join(_each(value))}")
    return [*found, "--", *_each(models)]


def _each(value: Any) -> list[str]:
    """The value, or the values that it holds, as words of a command line."""
    is_one = isinstance(value, str | PathLike) or not isinstance(value, Iterable)
    return [str(one) for one in ((value,) if is_one else value)]
