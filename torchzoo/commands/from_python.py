"""`torchzoo.run(...)`: what `torchzoo run` does, called from Python. One parser and one session do both."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn

from torchzoo.analysis.cases import case_results
from torchzoo.analysis.frame import to_frame
from torchzoo.commands import run as command
from torchzoo.commands.arguments import choices
from torchzoo.errors import UsageError
from torchzoo.report import terminal
from torchzoo.report.summary import next_steps
from torchzoo.run.fork_server import server_ended
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.settings import Pass

if TYPE_CHECKING:
    import pandas as pd

#: The option of the command for each keyword. Its values are a comma list.
OPTIONS = {
    "suites": "--suite",
    "modes": "--mode",
    "devices": "--device",
    "backends": "--backend",
    "precisions": "--precision",
    "memory_formats": "--memory-format",
    "compile_scopes": "--compile-scope",
    "batch_sizes": "--bs",
    "worlds": "--world",
    "parallels": "--parallel",
    "repeats": "--repeats",
    "seed": "--seed",
    "threads": "--threads",
    "time_limit_s": "--time-limit",
    "timeout_s": "--timeout",
    "jobs": "--jobs",
    "device_indices": "--devices",
    "host_memory_limit_bytes": "--host-memory-limit",
    "cache": "--cache",
    "batch_file": "--batch-file",
    "output": "--output",
    "resume": "--resume",
}


class _Parser(argparse.ArgumentParser):
    """Argparse, with errors that a caller can catch."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def measured(models: Any, passes: Any, models_dirs: Any, options: Mapping[str, Any], *, progress: bool) -> pd.DataFrame:
    """See `torchzoo.run`, which has the meaning of each argument."""
    if threading.current_thread() is not threading.main_thread():
        raise UsageError("torchzoo.run works in the main thread only: signals end its workers")
    words = words_of(models, passes, models_dirs, options)
    arguments = parsed(words if progress else ["--quiet", *words])
    with terminated_as_interrupted(), server_ended():
        with command.started(arguments, ("torchzoo", "run", *words)) as (session, run_store, is_kept):
            finished = command.finish(session, run_store, is_kept=is_kept, quiet=not progress)
        results = case_results(finished)
        if progress and (is_kept or run_store.has_failures):
            for line in (f"run kept in {finished.path}", *next_steps(results)):
                terminal.say(line)
        return to_frame(results)


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """What the parser of `torchzoo run` makes of the words behind it.

    Raises:
        UsageError: with the message that the command prints.
    """
    parser = _Parser(prog="torchzoo")
    command.add_parser(parser.add_subparsers())
    return parser.parse_args(["run", *words])


def words_of(models: Any, passes: Any, models_dirs: Any, options: Mapping[str, Any]) -> list[str]:
    """The words of the command line. What is None keeps its default.

    Raises:
        UsageError: a pass that does not exist.
    """
    found = [f"{OPTIONS[name]}={','.join(_each(value))}" for name, value in options.items() if value is not None]
    asked = _each(passes)
    found += [f"--{one.replace('_', '-')}" for one in (choices(",".join(asked), Pass, "pass") if asked else ())]
    found += [f"--models-dir={folder}" for folder in _each(models_dirs)]
    return [*found, "--", *_each(models)]


def _each(value: Any) -> list[str]:
    """The value, or the values that it holds, as they are written on a command line."""
    is_one = isinstance(value, str | PathLike) or not isinstance(value, Iterable)
    return [str(one) for one in ((value,) if is_one else value)]
