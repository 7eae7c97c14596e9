"""`torchzoo.run(...)`: what `torchzoo run` does, called from Python. One parser and one session do both."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn

from torchzoo.analysis.cases import case_results
from torchzoo.analysis.frame import to_frame
from torchzoo.commands import run as command
from torchzoo.errors import UsageError
from torchzoo.report import terminal
from torchzoo.report.summary import next_steps
from torchzoo.run.fork_server import server_ended
from torchzoo.run.interrupts import terminated_as_interrupted

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
    "compile_scope": "--compile-scope",
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
    words = [*_words(options, passes, models_dirs), "--", *_each(models)]
    parser = _Parser(prog="torchzoo")
    command.add_parser(parser.add_subparsers())
    arguments = parser.parse_args(["run", *(() if progress else ("--quiet",)), *words])
    with terminated_as_interrupted(), server_ended():
        with command.started(arguments, ("torchzoo", "run", *words)) as (session, run_store, is_kept):
            finished = command.follow(session, run_store, quiet=not progress)
        results = case_results(finished)
        if progress and (is_kept or run_store.has_failures):
            for line in (f"run kept in {finished.path}", *next_steps(results)):
                terminal.say(line)
        return to_frame(results)


def _words(options: Mapping[str, Any], passes: Any, models_dirs: Any) -> list[str]:
    """The words of the command line. What is None keeps its default."""
    found = [f"{OPTIONS[name]}={','.join(_each(value))}" for name, value in options.items() if value is not None]
    found += [f"--{name.replace('_', '-')}" for name in _each(passes)]
    return found + [f"--models-dir={folder}" for folder in _each(models_dirs)]


def _each(value: Any) -> list[str]:
    """The value, or the values that it holds, as they are written on a command line."""
    is_one = isinstance(value, str | PathLike) or not isinstance(value, Iterable)
    return [str(one) for one in ((value,) if is_one else value)]
