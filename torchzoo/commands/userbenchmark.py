"""`torchzoo userbenchmark`: run the plan of a userbenchmark and write its report, or report on a kept run."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchzoo.analysis.cases import case_results
from torchzoo.analysis.command_lines import shell_line
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
from torchzoo.measure.fresh_turns import TurnsOf
from torchzoo.record import Failed, Took
from torchzoo.report import terminal
from torchzoo.report.remarks import not_measured_line
from torchzoo.run.experiment import here, ignore, ready
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.plan import PlannedCase
from torchzoo.run.request import RunRequest
from torchzoo.store import RunStore, StoreError, read_run
from torchzoo.studies import userbenchmark
from torchzoo.studies.study import joined
from torchzoo.studies.userbenchmark import Choice, UserBenchmark

WRITTEN = {"source": "--from"}


#: Options that replace values of a plan.
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
    add_plan_options(parser, example="optim", output="keep the run and its report there")
    add_torchbench_options(parser)
    parser.set_defaults(command=run, parser=parser)


def request_of(plan: Callable[[Choice], RunRequest], arguments: argparse.Namespace, folder: Path) -> RunRequest:
    """The plan for the models and options on the command line, for a run that is kept in `folder`."""
    choice = Choice(
        patterns=tuple(arguments.models),
        suites=words(arguments.suite),
        models_dirs=tuple(str(one.resolve()) for one in arguments.models_dir),
        folder=folder.resolve(),
    )
    return applied(plan(choice), arguments)


def dry_run(
    plan: Callable[[Choice], RunRequest], arguments: argparse.Namespace, turns_of: TurnsOf | None = None
) -> int:
    """Show the plan. Return the exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        show_plan(request_of(plan, arguments, Path(scratch)), turns_of)
    return 0


def add_plan_options(parser: argparse.ArgumentParser, *, example: str, output: str) -> None:
    """Add NAME, MODEL, the options that replace values of a plan, and those of the run and its document."""
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"such as {example}; none: list them")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="instead of the plan's models, as for run")
    add_suite(parser)
    add_some(parser, REPLACED)
    parser.add_argument("--dry-run", action="store_true", help="show what would be measured, and measure nothing")
    parser.add_argument("-o", "--output", type=usable_path, metavar="DIR", help=output)
    parser.add_argument(
        "--from",
        type=usable_path,
        dest="source",
        nargs="+",
        metavar="RUN",
        help="only write the document, from this kept run; several are joined",
    )
    parser.add_argument(
        "--resume", type=usable_path, metavar="RUN", help="measure what is missing of this run, then write the document"
    )
    parser.add_argument("--retry-failed", action="store_true", help="with --resume: also measure again what failed")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """List the userbenchmarks, report on a run, resume a run, or run a plan. Return the exit status."""
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
            return _measure(benchmark, store, None, arguments)
    check_retries(arguments)
    _check_processes(benchmark, arguments)
    if arguments.dry_run:
        return dry_run(benchmark.plan, arguments, benchmark.turns)
    if arguments.output is None:
        raise UsageError(
            "name a folder for the results and their report with -o DIR, or report on kept results with --from RUN"
        )
    with RunStore(arguments.output) as store:
        return _measure(benchmark, store, request_of(benchmark.plan, arguments, store.path), arguments)


def show_list(summaries: dict[str, str]) -> int:
    """Print a line for each, regardless of the terminal's width. Return the exit status."""
    table = terminal.table(("", ""), summaries.items(), has_headings=False)
    print("\n".join(terminal.lines(table, width=terminal.ANY_WIDTH)))
    return 0


def _check_processes(benchmark: UserBenchmark, arguments: argparse.Namespace) -> None:
    """Raise UsageError if more fresh processes are requested at once than the userbenchmark may have."""
    if benchmark.turns is None:
        return
    for name, given in (("--jobs", arguments.jobs), ("--devices", arguments.devices)):
        if given is not None and not benchmark.several_at_once:
            raise UsageError(f"leave out {name}: the processes of {benchmark.name} run one after the other, alone")
    if benchmark.one_a_device and (arguments.jobs or 1) > len(arguments.devices or (0,)):
        raise UsageError(
            f"--jobs {arguments.jobs}: {benchmark.name} times steps, so a device has one process at a time; "
            "name as many with --devices"
        )


def _measure(
    benchmark: UserBenchmark, store: RunStore, request: RunRequest | None, arguments: argparse.Namespace
) -> int:
    """Run the request, or without a request what is missing; then write the report in the results' folder."""
    measure = _measure_cases if benchmark.turns is None else _measure_in_turns
    has_failures = measure(benchmark, store, request, arguments)
    _report(benchmark, [store.path], store.path)
    return 1 if has_failures else 0


def _measure_cases(
    benchmark: UserBenchmark, store: RunStore, request: RunRequest | None, arguments: argparse.Namespace
) -> bool:
    session = ready(here(store), request, retry_failed=arguments.retry_failed)
    finished = finish(session, store, is_kept=True, quiet=arguments.quiet, command=("userbenchmark", benchmark.name))
    terminal.say(f"run kept in {store.path}")
    return any(result.all_failures for result in case_results(finished))


def _measure_in_turns(
    benchmark: UserBenchmark, store: RunStore, request: RunRequest | None, arguments: argparse.Namespace
) -> bool:
    experiment = ready(here(store), request, turns_of=benchmark.turns, retry_failed=arguments.retry_failed)
    say = ignore if arguments.quiet else terminal.say

    def show(planned: PlannedCase) -> None:
        say(f"{planned.case.label()}: {planned.key[1]}, {planned.key[2] + 1}")

    try:
        with experiment.workers:
            for _, record in experiment.run(on_start=show):
                if not isinstance(record.outcome, Took):
                    say(f"{record.case.label()} {record.role}: {not_measured_line(record.outcome)}")
    except KeyboardInterrupt:
        terminal.say(f"what was measured is kept; measure the rest with: {_go_on(benchmark, store.path)}")
        raise
    terminal.say(f"results kept in {store.path}")
    return any(isinstance(record.outcome, Failed) for record in read_run(store.path, in_turns=True).records)


def _go_on(benchmark: UserBenchmark, path: Path) -> str:
    return shell_line(["torchzoo", "userbenchmark", benchmark.name, "--resume", str(path)])


def _report(benchmark: UserBenchmark, sources: Sequence[Path], output: Path | None) -> None:
    in_turns = benchmark.turns is not None
    found = read_run(sources[0], in_turns=in_turns) if len(sources) == 1 else joined(sources, in_turns=in_turns)
    if not found.records:
        raise StoreError(f"{found.path} holds no records yet: go on with `{_go_on(benchmark, found.path)}`")
    userbenchmark.print_or_write(userbenchmark.document(benchmark, found), output)
