"""`torchzoo run`: measure models over modes x devices x backends x precisions, or resume a run."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchzoo.analysis.cases import Status, case_results
from torchzoo.analysis.command_lines import shell_line
from torchzoo.case import Case
from torchzoo.commands.arguments import check_given, check_retries, part, usable_path
from torchzoo.commands.dry_run import budget_words, show_plan
from torchzoo.commands.executor_options import NAMES as EXECUTOR_OPTIONS
from torchzoo.commands.executor_options import Engine, add_executor, executor_of, without_executor
from torchzoo.commands.options import add_options, run_request, without_effect
from torchzoo.commands.torchbench_options import add_torchbench_options
from torchzoo.errors import UsageError
from torchzoo.record import Measured, Outcome
from torchzoo.report import compile_stats, one_case, terminal, units
from torchzoo.report.progress import Progress
from torchzoo.report.remarks import not_measured_line
from torchzoo.report.summary import before_the_summary, more_time_for, next_steps, summary
from torchzoo.report.terminal_report import terminal_table
from torchzoo.report.text import json_text
from torchzoo.run.cluster import ClusterSession, new_cluster_run, resumed_cluster_run
from torchzoo.run.experiment import Experiment, here, planned_here, ready
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.plan import AUTO
from torchzoo.run.ray_hosts import ClusterError, RayHosts
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import models_of, part_of
from torchzoo.run.slurm import SlurmJob
from torchzoo.run.tuning import ignore_tried
from torchzoo.store import Run, RunStore, read_run


def add_parser(commands: Any) -> None:
    """Add `run` to argparse's subcommands."""
    parser = commands.add_parser(
        "run",
        help="measure models",
        description="Measure models over modes x devices x backends x precisions. A backend other than eager is "
        "measured beside eager, on the same weights, in turns. Exit status: 0 all measured or skipped with a reason, "
        "1 a case failed, 2 wrong usage.",
    )
    add_options(parser, repeats=1)
    add_executor(parser)
    parser.add_argument(
        "-o", "--output", type=usable_path, metavar="DIR", help="keep the run: records, logs, environment"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the records, a JSON object a line, instead of a table"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "--resume",
        type=usable_path,
        metavar="RUN",
        help="resume a run: measure its missing cases, with its own settings",
    )
    parser.add_argument(
        "--compile-stats", action="store_true", help="show what compilation did (kept of every compiling case anyway)"
    )
    parser.add_argument("--retry-failed", action="store_true", help="with --resume: also repeat the cases that failed")
    parser.add_argument(
        "--part",
        type=part,
        metavar="I/N",
        help="only the Ith of N parts of the models; torchzoo report takes the runs of all parts as one",
    )
    parser.add_argument("--dry-run", action="store_true", help="show the cases that would run, and measure nothing")
    add_torchbench_options(parser)
    parser.set_defaults(command=run, parser=parser)


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """Resume a run, or plan a new one, then run it and show its results. With --dry-run, only show the plan."""
    if arguments.dry_run and arguments.resume is None:
        check_retries(arguments)
        if arguments.json:
            raise UsageError("--dry-run shows the plan as text: leave out --json")
        request = _request(arguments)
        here = planned_here(request) if executor_of(arguments).engine is Engine.LOCAL else None
        _say_what_has_no_effect(arguments, () if here is None else [one.case for one in here[0]])
        show_plan(request, here=here)
        return 0
    if executor_of(arguments).engine is Engine.SLURM:
        return run_in_slurm(arguments)
    with started(arguments) as (session, run_store, is_kept):
        command = ("run",) if isinstance(session, Experiment) else ("run", "--executor", arguments.executor)
        finished = finish(session, run_store, is_kept=is_kept, quiet=arguments.quiet, command=command)
        _show(finished, as_json=arguments.json, quiet=arguments.quiet)
        if arguments.compile_stats:
            stats = terminal.render(compile_stats.document(finished.records))
            terminal.show("", stats, file=sys.stderr if arguments.json else sys.stdout)
        _say_where(finished, is_kept=is_kept, quiet=arguments.quiet)
    return 1 if has_failures(finished) else 0


@contextlib.contextmanager
def started(
    arguments: argparse.Namespace, command: tuple[str, ...] = ()
) -> Iterator[tuple[Experiment | ClusterSession, RunStore, bool]]:
    """The session that the arguments request, ready to run; its store; and whether the run is kept.

    The run records `command`, or the command line of this process.
    """
    if arguments.resume is not None:
        _check_resume(arguments)
        with RunStore(arguments.resume, resume=True) as run_store, contextlib.ExitStack() as stack:
            yield _session(arguments, None, run_store, stack), run_store, True
        return
    check_retries(arguments)
    request = msgspec.structs.replace(_request(arguments), command=command)
    with _run_store(arguments.output) as (run_store, is_kept), contextlib.ExitStack() as stack:
        session = _session(arguments, request, run_store, stack)
        _say_what_has_no_effect(arguments, session.manifest.cases)
        yield session, run_store, is_kept


def run_in_slurm(arguments: argparse.Namespace) -> int:
    """Run the command in a Slurm job, and follow that to its end. Return the exit status of the command there."""
    executor = executor_of(arguments)
    path = arguments.resume or arguments.output
    if path is None:
        raise UsageError("--executor slurm needs -o DIR: a folder that all hosts can write to")
    if arguments.resume is None:
        check_retries(arguments)
        models_of(_request(arguments))
    else:
        _check_resume(arguments)
    with RunStore(path, resume=arguments.resume is not None):
        pass  # the job writes it, and finds what is found here
    nodes = executor.nodes or 1
    hosts = ["--nodes", str(nodes), *(["--host-kind", executor.host_kind] if executor.host_kind else [])]
    resume = [*hosts, "--resume", str(path)]
    words = [*hosts, *without_executor(arguments.words)[1:]]
    job = SlurmJob(path, words, resume, nodes, executor.sbatch, terminal.say)
    try:
        with job:
            return job.follow()
    except (KeyboardInterrupt, ClusterError):
        if not (path / "run.json").exists():
            raise
        sbatch = [f"--sbatch={name}={value}" for name, value in executor.sbatch]
        again = shell_line(["torchzoo", "run", "--executor", "slurm", *sbatch, *resume])
        terminal.say(f"what was measured is kept; measure the rest with: {again}")
        raise


def _check_resume(arguments: argparse.Namespace) -> None:
    obeyed = ("resume", "retry_failed", "json", "quiet", "compile_stats", *EXECUTOR_OPTIONS)
    check_given(arguments, obeyed, "--resume keeps the settings that the run began with")


def _say_what_has_no_effect(arguments: argparse.Namespace, cases: Collection[Case]) -> None:
    for line in without_effect(arguments, cases):
        terminal.say(f"torchzoo: {line}")


def _request(arguments: argparse.Namespace) -> RunRequest:
    request = run_request(arguments)
    if arguments.budget is None and arguments.time_limit is None:
        request = msgspec.structs.replace(request, budget=AUTO)
    return request if arguments.part is None else part_of(request, *arguments.part)


def _session(
    arguments: argparse.Namespace, request: RunRequest | None, run_store: RunStore, stack: contextlib.ExitStack
) -> Experiment | ClusterSession:
    """The session of a new run, or without a request of the run in the store."""
    executor, retry_failed = executor_of(arguments), arguments.retry_failed
    if executor.engine is Engine.LOCAL:
        on_tried = ignore_tried if arguments.quiet else say_tried
        return ready(here(run_store), request, retry_failed=retry_failed, on_tried=on_tried)
    where: dict[str, Any] = {"host_kind": executor.host_kind, "say": terminal.say}
    if request is not None:
        hosts = stack.enter_context(RayHosts(executor.address, request.axes.devices, executor.nodes))
        return new_cluster_run(request, run_store, hosts, **where)
    run = read_run(run_store.path)
    devices = tuple(dict.fromkeys(case.device for case in run.manifest.cases))
    hosts = stack.enter_context(RayHosts(executor.address, devices, executor.nodes))
    return resumed_cluster_run(run, run_store, hosts, retry_failed=retry_failed, **where)


def say_tried(case: Case, outcome: Outcome, samples_per_s: float | None) -> None:
    """Print the result of a batch size that was tried."""
    if isinstance(outcome, Measured):
        assert samples_per_s is not None
        terminal.say(f"tuning {case.label()}: {units.rate(samples_per_s, 'samples')}")
    else:
        terminal.say(f"tuning {case.label()}: {not_measured_line(outcome)}")


def finish(
    session: Experiment | ClusterSession,
    run_store: RunStore,
    *,
    is_kept: bool,
    quiet: bool,
    command: Sequence[str] = ("run",),
) -> Run:
    """Run the remaining cases, with progress unless `quiet`. Return the whole run with its earlier records.

    An interrupt prints the command that resumes the run.
    """
    shared = budget_words(session.manifest.settings.share_s, session.left, session.lanes)
    if shared and not quiet:
        terminal.say(shared)
    total, records = len(session.manifest.cases), list(session.done)
    progress = Progress(total=total, done=len(records), lanes=session.lanes, quiet=quiet)
    try:
        with session.workers, progress:
            for _, record in session.run(progress.stage):
                records.append(record)
                progress.done(record)
    except KeyboardInterrupt:
        if is_kept:
            resume = shell_line(["torchzoo", *command, "--resume", str(run_store.path)])
            terminal.say(f"what was measured is kept; measure the rest with: {resume}")
        raise
    return Run(path=run_store.path, manifest=session.manifest, records=tuple(records))


def has_failures(finished: Run) -> bool:
    """Whether a case failed, even after its timing, or has results other than eager's."""
    results = case_results(finished)
    return any(result.status in (Status.FAILED, Status.INCORRECT) or result.all_failures for result in results)


def _say_where(finished: Run, *, is_kept: bool, quiet: bool) -> None:
    results = case_results(finished)
    has_failed = any(result.all_failures for result in results)
    if is_kept:
        terminal.say(f"run kept in {finished.path}")
    elif has_failed:
        terminal.say(f"logs are kept in {finished.path}")
    if quiet:
        return
    for line in more_time_for(finished, results):
        terminal.say(line)
    if is_kept or has_failed:
        for line in next_steps(results):
            terminal.say(line)
    else:
        terminal.say("not kept: with -o DIR, torchzoo report, show and compare can read the run later")


@contextlib.contextmanager
def _run_store(path: Path | None) -> Iterator[tuple[RunStore, bool]]:
    """A store for the run, and whether it is kept. A temporary folder is kept only if a case failed."""
    if path is not None:
        with RunStore(path) as run_store:
            yield run_store, True
        return
    folder = Path(tempfile.mkdtemp(prefix="torchzoo-run-"))
    keep = False
    try:
        with RunStore(folder) as run_store:
            yield run_store, False
            keep = run_store.has_failures
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _show(finished: Run, *, as_json: bool, quiet: bool = False) -> None:
    """Print one case in detail, or a line for each of many cases and their totals."""
    records, results = finished.records, case_results(finished)
    if as_json:
        for record in records:
            print(json_text(record))
        if len(records) > 1 and not quiet:
            terminal.show(summary([finished], results), file=sys.stderr)
        return
    if len(records) > 1:
        details = map(terminal.Hanging, before_the_summary(finished))
        terminal.show(terminal_table(results), *details, summary([finished], results))
    else:
        terminal.show(terminal.render(one_case.brief(records[0])))
