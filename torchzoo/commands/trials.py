"""`torchzoo userbenchmark` for those that ask fresh processes: run them, then write the report."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from torchzoo.analysis.reproduce import shell_line
from torchzoo.case import Case
from torchzoo.commands.arguments import check_given, check_retries
from torchzoo.commands.dry_run import show_plan
from torchzoo.errors import UsageError
from torchzoo.measure.fresh import Took, Turn
from torchzoo.record import Failed
from torchzoo.report import terminal
from torchzoo.report.remarks import not_measured_line
from torchzoo.run.request import RunRequest
from torchzoo.run.trial_store import TrialStore, read_joined_trials, read_trials
from torchzoo.run.trials import TrialSession, TurnsOf, new_trials, resumed_trials
from torchzoo.store import StoreError
from torchzoo.studies import userbenchmark
from torchzoo.studies.userbenchmark import UserBenchmark

WRITTEN = {"source": "--from"}


def run(
    benchmark: UserBenchmark,
    turns_of: TurnsOf,
    arguments: argparse.Namespace,
    request_of: Callable[[Path], RunRequest],
) -> int:
    """Report on kept trials, go on with some, or run a plan. Returns the exit status.

    Args:
        benchmark: with functions for fresh processes.
        turns_of: the processes of a case.
        arguments: what the parser of `torchzoo userbenchmark` returned.
        request_of: the plan as the arguments ask for it, given the folder that keeps the results.
    """
    if arguments.source is not None:
        check_given(arguments, ("name", "source", "output"), "--from only reads", WRITTEN)
        _report(benchmark, arguments.source, arguments.output)
        return 0
    if arguments.resume is not None:
        obeyed = ("name", "resume", "retry_failed", "quiet")
        check_given(arguments, obeyed, "--resume goes on as it was begun", WRITTEN)
        with TrialStore(arguments.resume, resume=True) as store:
            kept = read_trials(arguments.resume)
            session = resumed_trials(kept, turns_of, retry_failed=arguments.retry_failed)
            return _execute(benchmark, turns_of, session, store, quiet=arguments.quiet)
    check_retries(arguments)
    for name, given in (("--jobs", arguments.jobs), ("--devices", arguments.devices)):
        if given is not None and not benchmark.several_at_once:
            raise UsageError(f"leave out {name}: the processes of {benchmark.name} run one after the other, alone")
    if benchmark.one_a_device and (arguments.jobs or 1) > len(arguments.devices or (0,)):
        raise UsageError(
            f"--jobs {arguments.jobs}: {benchmark.name} times steps, so a device has one process at a time; "
            "name as many with --devices"
        )
    if arguments.dry_run:
        with tempfile.TemporaryDirectory() as scratch:
            show_plan(request_of(Path(scratch)), turns_of)
        return 0
    if arguments.output is None:
        raise UsageError("name the folder that keeps the results and the report with -o DIR, or one with --from DIR")
    with TrialStore(arguments.output) as store:
        session = new_trials(request_of(store.path), store, turns_of)
        return _execute(benchmark, turns_of, session, store, quiet=arguments.quiet)


def _execute(
    benchmark: UserBenchmark, turns_of: TurnsOf, session: TrialSession, store: TrialStore, *, quiet: bool
) -> int:
    def show(case: Case, turn: Turn) -> None:
        if not quiet:
            terminal.say(f"{case.label()}: {turn.variant}, {turn.number + 1}")

    try:
        for record in session.run(store, turns_of, show):
            if not quiet and not isinstance(record.outcome, Took):
                terminal.say(f"{record.case.label()} {record.variant}: {not_measured_line(record.outcome)}")
    except KeyboardInterrupt:
        again = shell_line(["torchzoo", "userbenchmark", benchmark.name, "--resume", str(store.path)])
        terminal.say(f"what was measured is kept; the rest of it: {again}")
        raise
    terminal.say(f"results kept in {store.path}")
    _report(benchmark, [store.path], store.path)
    return 1 if any(isinstance(record.outcome, Failed) for record in read_trials(store.path).records) else 0


def _report(benchmark: UserBenchmark, sources: Sequence[Path], output: Path | None) -> None:
    found = read_joined_trials(sources)
    if not found.records:
        again = shell_line(["torchzoo", "userbenchmark", benchmark.name, "--resume", str(found.path)])
        raise StoreError(f"{', '.join(map(str, sources))}: no results yet: go on with `{again}`")
    userbenchmark.print_or_write(userbenchmark.document(benchmark, found), output)
