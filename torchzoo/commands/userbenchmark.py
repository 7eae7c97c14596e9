"""`torchzoo userbenchmark`: run the plan of a userbenchmark and write its report, or report on a run that exists."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec

from torchzoo import userbenchmark
from torchzoo.analysis.cases import case_results
from torchzoo.case import Mode, Precision
from torchzoo.commands.arguments import (
    add_suite,
    backends_of,
    batch_sizes,
    check_given,
    choices,
    devices_of,
    indices,
    positive_int,
    seconds,
    usable_path,
    words,
)
from torchzoo.commands.run import follow
from torchzoo.commands.torchbench_options import add_torchbench_options, check_values
from torchzoo.errors import UsageError
from torchzoo.report import terminal
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.request import RunRequest
from torchzoo.run.session import Session, new_run, resumed_run
from torchzoo.store import RunStore, StoreError, read_run
from torchzoo.userbenchmark import Choice, UserBenchmark

REPORT = "report.md"
WRITTEN = {"source": "--from"}


def add_parser(commands: Any) -> None:
    """Add `userbenchmark` to argparse's subcommands. Options of `torchzoo run` mean the same here."""
    parser = commands.add_parser(
        "userbenchmark",
        help="answer a question about many models: a plan of cases and a report",
        description="Run the plan of a userbenchmark and write its report to DIR/report.md; without a NAME, list them. "
        "Options that are given replace the plan's own.",
    )
    add_plan_options(parser, example="optim")
    parser.add_argument("-o", "--output", type=usable_path, metavar="DIR", help=f"keep the run there, and {REPORT}")
    parser.add_argument(
        "--from", type=usable_path, dest="source", metavar="RUN", help="only write the report, from this run"
    )
    parser.add_argument(
        "--resume", type=usable_path, metavar="RUN", help="measure what is missing of this run, then report"
    )
    parser.add_argument("--retry-failed", action="store_true", help="with --resume: also measure again what failed")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    add_torchbench_options(parser, {action.dest for action in parser._actions})
    parser.set_defaults(command=run, parser=parser)


def add_plan_options(parser: argparse.ArgumentParser, *, example: str) -> None:
    """Add NAME, MODEL and the options that replace a plan's own."""
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"such as {example}; none: list them")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="instead of the plan's models, as for run")
    add_suite(parser)
    parser.add_argument("-t", "--mode", metavar="M[,M]", help="train, eval")
    parser.add_argument("-d", "--device", metavar="D[,D]", help="cpu, cuda ... (default: the accelerator, else cpu)")
    parser.add_argument("--devices", type=indices, metavar="I[,I]", help="accelerators to spread the cases over")
    parser.add_argument("--backend", metavar="B[,B]", help="as for run")
    parser.add_argument("--precision", metavar="P[,P]", help=f"{', '.join(Precision)}")
    parser.add_argument("--bs", "--batch-size", metavar="N[,N]", help="numbers, smoke or default")
    parser.add_argument("--time-limit", type=seconds, metavar="S", help="seconds of timing a case at most")
    parser.add_argument("--threads", type=positive_int, metavar="N", help="CPU threads")
    parser.add_argument("-j", "--jobs", type=positive_int, metavar="N", help="workers that prepare at once")


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """List the userbenchmarks, report on a run, go on with one, or run a plan. Returns the exit status."""
    check_values(arguments, arguments.parser)
    if arguments.name is None:
        check_given(arguments, (), "without a NAME the userbenchmarks are listed", WRITTEN)
        return show_list(userbenchmark.summaries())
    benchmark = userbenchmark.load(arguments.name)
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
    if arguments.retry_failed:
        raise UsageError("--retry-failed goes with --resume RUN")
    if arguments.output is None:
        raise UsageError("name the folder that keeps the run and its report with -o DIR, or a run with --from RUN")
    with RunStore(arguments.output) as store:
        request = overridden(benchmark.plan(chosen(arguments, store.path)), arguments)
        return _execute(benchmark, new_run(request, store), store, quiet=arguments.quiet)


def show_list(summaries: dict[str, str]) -> int:
    """Print a line for each, however narrow the terminal is. Returns the exit status."""
    table = terminal.table(("", ""), summaries.items(), has_headings=False)
    print("\n".join(terminal.lines(table, width=terminal.ANY_WIDTH)))
    return 0


def chosen(arguments: argparse.Namespace, folder: Path) -> Choice:
    """The models that the command line names, for a plan whose run is kept in `folder`."""
    return Choice(
        patterns=tuple(arguments.models),
        suites=words(arguments.suite),
        models_dirs=tuple(str(one.resolve()) for one in arguments.models_dir),
        folder=folder.resolve(),
    )


def overridden(request: RunRequest, arguments: argparse.Namespace) -> RunRequest:
    """The plan, with the options of the command line in place of its own."""
    axes: dict[str, Any] = {}
    if arguments.mode is not None:
        axes["modes"] = choices(arguments.mode, Mode, "mode")
    if arguments.device is not None:
        axes["devices"] = devices_of(arguments.device)
    if arguments.backend is not None:
        axes["backends"] = backends_of(arguments.backend)
    if arguments.precision is not None:
        axes["precisions"] = choices(arguments.precision, Precision, "precision")
    if arguments.bs is not None:
        axes["batch_sizes"] = batch_sizes(arguments.bs)
    settings = {"time_limit_s": arguments.time_limit, "threads": arguments.threads}
    settings = {name: value for name, value in settings.items() if value is not None}
    return msgspec.structs.replace(
        request,
        axes=msgspec.structs.replace(request.axes, **axes),
        settings=msgspec.structs.replace(request.settings, **settings),
        jobs=arguments.jobs or request.jobs,
        device_indices=arguments.devices,
    )


def _execute(benchmark: UserBenchmark, session: Session, store: RunStore, *, quiet: bool) -> int:
    """Run what is left of the session, then write the report beside the records."""
    finished = follow(session, store, quiet=quiet)
    terminal.say(f"run kept in {store.path}")
    _report(benchmark, store.path, store.path)
    return 1 if any(result.failures for result in case_results(finished)) else 0


def _report(benchmark: UserBenchmark, source: Path, output: Path | None) -> None:
    found = read_run(source)
    if not found.records:
        raise StoreError(f"{source} holds no records yet: go on with `torchzoo run --resume {source}`")
    text = userbenchmark.document(benchmark, found)
    if output is None:
        sys.stdout.write(text)
        return
    try:
        userbenchmark.write(output / REPORT, text)
    except OSError as error:
        raise StoreError(f"can't write {output / REPORT}: {error.strerror}") from error
