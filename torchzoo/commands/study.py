"""`torchzoo study`: measure what others have published, and write a document with both figures side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torchzoo.analysis.cases import case_results, read_report_data
from torchzoo.commands.arguments import check_given, check_retries, part
from torchzoo.commands.run import finish
from torchzoo.commands.userbenchmark import add_plan_options, dry_run, request_of, show_list
from torchzoo.report import terminal, terminal_report
from torchzoo.run.experiment import Experiment, here, ready
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import part_of
from torchzoo.store import RunStore, StoreError, write_whole
from torchzoo.studies import study, userbenchmark
from torchzoo.studies.study import Study
from torchzoo.studies.userbenchmark import Choice

#: The default folder of documents. docs/studies is for the runs that are kept in the repository.
DOCUMENTS = Path("studies")
WRITTEN = {"source": "--from"}


def add_parser(commands: Any) -> None:
    """Add `study` to argparse's subcommands. Options of `torchzoo run` mean the same here."""
    parser = commands.add_parser(
        "study",
        help="measure what others have published, and write both figures side by side",
        description="Run the plan of a study, keep the run in DIR/NAME, and write the document DIR/NAME.md; without a "
        "NAME, list the studies. Where options add cases that the plan does not have, the run is reported as any other "
        "is, without the published figures.",
    )
    add_plan_options(parser, example="paper_breakdown", output=f"the documents' folder (default: {DOCUMENTS})")
    parser.add_argument(
        "--part",
        type=part,
        metavar="I/N",
        help="only the Ith of N parts of the models; --from joins the runs of all parts",
    )
    parser.set_defaults(command=run, parser=parser)


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """List the studies, show a plan, run or resume a study, or only write a document. Return the exit status."""
    if arguments.name is None:
        check_given(arguments, (), "without a NAME the studies are listed", WRITTEN)
        return show_list(userbenchmark.summaries(studies=True))
    chosen_study = study.load(arguments.name)
    folder = arguments.output or DOCUMENTS
    if arguments.source is not None:
        check_given(arguments, ("name", "source", "output"), "--from only reads", WRITTEN)
        _write(chosen_study, arguments.source, folder)
        return 0
    if arguments.resume is not None:
        obeyed = ("name", "resume", "retry_failed", "output", "quiet")
        check_given(arguments, obeyed, "--resume goes on as it was begun", WRITTEN)
        with RunStore(arguments.resume, resume=True) as store:
            relocated = partial(study.at_home, chosen_study)
            session = ready(here(store), retry_failed=arguments.retry_failed, relocated=relocated)
            folder = arguments.output or store.path.parent
            return _execute(chosen_study, session, store, folder, quiet=arguments.quiet)
    check_retries(arguments)

    def plan(choice: Choice) -> RunRequest:
        request = chosen_study.plan(choice)
        return request if arguments.part is None else part_of(request, *arguments.part)

    if arguments.dry_run:
        return dry_run(plan, arguments)
    with RunStore(folder / chosen_study.name) as store:
        session = ready(here(store), request_of(plan, arguments, store.path))
        return _execute(chosen_study, session, store, folder, quiet=arguments.quiet)


def _execute(chosen_study: Study, session: Experiment, store: RunStore, folder: Path, *, quiet: bool) -> int:
    """Run the rest of the session. Then write the document; report the run if it has other cases than the plan."""
    finished = finish(session, store, is_kept=True, quiet=quiet, command=("study", chosen_study.name))
    terminal.say(f"run kept in {store.path}")
    if study.is_of_the_plan(chosen_study, finished):
        _write(chosen_study, [store.path], folder)
    else:
        terminal_report.write(read_report_data([store.path]), sys.stdout)
        terminal.say(
            f"torchzoo: some cases are not in the plan of {chosen_study.name}, so published figures are left out; "
            f"`torchzoo study {chosen_study.name} --from RUN` writes the document of the others"
        )
    return 1 if any(result.all_failures for result in case_results(finished)) else 0


def _write(chosen_study: Study, sources: Sequence[Path], folder: Path) -> None:
    read = study.read_runs(chosen_study, sources)
    runs = [study.of_the_plan(chosen_study, run) for run in read]
    for whole, run in zip(read, runs, strict=True):
        if others := len(whole.manifest.cases) - len(run.manifest.cases):
            terminal.say(f"torchzoo: left out: {others} cases of {run.path} that {chosen_study.name} does not have")
    made = study.document(chosen_study, runs, study.read_reasons(sources))
    path = folder / f"{chosen_study.name}.md"
    try:
        userbenchmark.write(path, made.text)
        if made.picture is not None:
            write_whole(folder / study.picture_name(chosen_study), f"{made.picture}\n".encode())
    except OSError as error:
        raise StoreError(f"can't write {path}: {error.strerror}") from error
