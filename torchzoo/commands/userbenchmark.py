"""`torchzoo userbenchmark`: run the plan of a userbenchmark and write its report, or report on a run that exists."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torchzoo.analysis.cases import case_results
from torchzoo.analysis.reproduce import shell_line
from torchzoo.commands import trials
from torchzoo.commands.arguments import (
    add_suite,
    check_given,
    check_retries,
    usable_path,
    words,
)
from torchzoo.commands.dry_run import show_plan
from torchzoo.commands.options import add_some, applied
from torchzoo.commands.run import finish
from torchzoo.commands.torchbench_options import add_torchbench_options
from torchzoo.errors import UsageError
from torchzoo.report import terminal
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.request import RunRequest
from torchzoo.run.session import Session, new_run, resumed_run
from torchzoo.store import RunStore, StoreError, read_run
from torchzoo.studies import userbenchmark
from torchzoo.studies.study import joined
from torchzoo.studies.userbenchmark import Choice, UserBenchmark

WRITTEN = {"source": "--from"}


#: The options that replace values of a plan.
REPLACED = (
    "mode",
    "device",
    "devices",
    "backend",
    "precision",
    "batch_size",
    "repeats",
    "time_limit",
    "threads",
    "jobs",
)


def add_parser(commands: Any) -> None:
    """Add `userbenchmark` to argparse's subcommands. Options of `torchzoo run` mean the same here."""
    parser = commands.add_parser(
        "userbenchmark",
        help="answer a question about many models: a plan of cases and a report",
        description="Run the plan of a userbenchmark and write its report to DIR/report.md; without a NAME, list them. "
        "Options that are given replace the plan's own.",
    )
    add_plan_options(parser, example="optim")
    parser.add_argument("-o", "--output", type=usable_path, metavar="DIR", help="keep the run and its report there")
    parser.add_argument(
        "--from",
        type=usable_path,
        dest="source",
        nargs="+",
        metavar="RUN",
        help="only write the report, from this run; several are joined",
    )
    parser.add_argument(
        "--resume", type=usable_path, metavar="RUN", help="measure what is missing of this run, then report"
    )
    parser.add_argument("--retry-failed", action="store_true", help="with --resume: also measure again what failed")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_torchbench_options(parser)
    parser.set_defaults(command=run, parser=parser)


def chosen(arguments: argparse.Namespace, folder: Path) -> Choice:
    """The models that the command line names, for a plan whose run is kept in `folder`."""
    return Choice(
        patterns=tuple(arguments.models),
        suites=words(arguments.suite),
        models_dirs=tuple(str(one.resolve()) for one in arguments.models_dir),
        folder=folder.resolve(),
    )


def _request(benchmark: UserBenchmark, arguments: argparse.Namespace, folder: Path) -> RunRequest:
    return applied(benchmark.plan(chosen(arguments, folder)), arguments)


def add_plan_options(parser: argparse.ArgumentParser, *, example: str) -> None:
    """Add NAME, MODEL and the options that replace a plan's own."""
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"such as {example}; none: list them")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="instead of the plan's models, as for run")
    add_suite(parser)
    add_some(parser, REPLACED)
    parser.add_argument("--dry-run", action="store_true", help="show what would be measured, and measure nothing")


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """List the userbenchmarks, report on a run, go on with one, or run a plan. Returns the exit status."""
    if arguments.name is None:
        check_given(arguments, (), "without a NAME the userbenchmarks are listed", WRITTEN)
        return show_list(userbenchmark.summaries())
    benchmark = userbenchmark.load(arguments.name)
    if benchmark.turns is not None:
        return trials.run(benchmark, benchmark.turns, arguments, partial(_request, benchmark, arguments))
    if arguments.source is not None:
        check_given(arguments, ("name", "source", "output"), "--from only reads", WRITTEN)
        _report(benchmark, arguments.source, arguments.output)
        return 0
    if arguments.resume is not None:
        obeyed = ("name", "resume", "retry_failed", "quiet")
        check_given(arguments, obeyed, "--resume goes on as it was begun", WRITTEN)
        with RunStore(arguments.resume, resume=True) as store:
            session = resumed_run(read_run(arguments.resume), retry_failed=arguments.retry_failed)
            return _execute(benchmark, session, store, quiet=arguments.quiet)
    check_retries(arguments)
    if arguments.dry_run:
        with tempfile.TemporaryDirectory() as scratch:
            show_plan(_request(benchmark, arguments, Path(scratch)))
        return 0
    if arguments.output is None:
        raise UsageError("name the folder that keeps the run and its report with -o DIR, or a run with --from RUN")
    with RunStore(arguments.output) as store:
        request = _request(benchmark, arguments, store.path)
        return _execute(benchmark, new_run(request, store), store, quiet=arguments.quiet)


def show_list(summaries: dict[str, str]) -> int:
    """Print a line for each, however narrow the terminal is. Returns the exit status."""
    table = terminal.table(("", ""), summaries.items(), has_headings=False)
    print("\n".join(terminal.lines(table, width=terminal.ANY_WIDTH)))
    return 0


def _execute(benchmark: UserBenchmark, session: Session, store: RunStore, *, quiet: bool) -> int:
    """Run what is left of the session, then write the report beside the records."""
    finished = finish(session, store, is_kept=True, quiet=quiet, command=("userbenchmark", benchmark.name))
    terminal.say(f"run kept in {store.path}")
    _report(benchmark, [store.path], store.path)
    return 1 if any(result.all_failures for result in case_results(finished)) else 0


def _report(benchmark: UserBenchmark, sources: Sequence[Path], output: Path | None) -> None:
    found = read_run(sources[0]) if len(sources) == 1 else joined(sources)
    if not found.records:
        again = shell_line(["torchzoo", "userbenchmark", benchmark.name, "--resume", str(found.path)])
        raise StoreError(f"{found.path} holds no records yet: go on with `{again}`")
    userbenchmark.print_or_write(userbenchmark.document(benchmark, found), output)
