"""`torchzoo narrow`: which part of inductor makes the results of a run's cases wrong."""

from __future__ import annotations

import argparse
from typing import Any

from torchzoo.analysis.cases import CaseResult, Status, read_report_data
from torchzoo.analysis.find_case import find_case
from torchzoo.commands.arguments import usable_path
from torchzoo.errors import UsageError
from torchzoo.files import safe_name
from torchzoo.history.environments import prepare
from torchzoo.history.into_inductor import NO_ANSWER, applies_to, look_inside
from torchzoo.history.proposals import Kind
from torchzoo.report import terminal
from torchzoo.store import Run

ALL_FOUND, SOME_NOT_FOUND = 0, 1
#: The folder within the run that keeps the answers.
FOLDER = "narrowed"


def add_parser(commands: Any) -> None:
    """Add `narrow` to argparse's subcommands."""
    parser = commands.add_parser(
        "narrow",
        help="find the part of inductor that makes results wrong",
        description="For each case of a run whose results `--check` found incorrect: which result is wrong and by how "
        "much, and which part of inductor does it, by PyTorch's own bisector. It compiles a case many times, which "
        f"takes minutes. Answers are kept in RUN/{FOLDER} and not looked for again. Exit status: 0 a part was found "
        "for each case, 1 not for all, 2 wrong usage.",
    )
    parser.add_argument("path", type=usable_path, metavar="RUN", help="a folder that `torchzoo run -o` wrote")
    parser.add_argument(
        "case",
        nargs="*",
        metavar="CASE",
        help="words that only this case has, as reports print them (default: all incorrect cases)",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Narrow down the incorrect cases, one after the other.

    Raises:
        StoreError: a run that can't be read.
        UsageError: no case or several match, or its results are not incorrect.
    """
    data = read_report_data([arguments.path])
    (read,) = data.runs
    if read.damage:
        terminal.say(f"torchzoo: {read.damage}")
    chosen = [result for result in data.cases if result.status is Status.INCORRECT]
    if arguments.case:
        named = find_case(data.cases, arguments.case)
        if named not in chosen:
            raise UsageError(f"{named.case.label()} is {named.status}: only incorrect results are narrowed down")
        chosen = [named]
    if not chosen:
        terminal.show_line("no case of this run has incorrect results")
    found = [_narrowed(result, read) for result in chosen]
    return ALL_FOUND if all(found) else SOME_NOT_FOUND


def _narrowed(result: CaseResult, read: Run) -> bool:
    """Show what is wrong and which part of inductor does it. Returns whether that was found."""
    label = result.case.label()
    terminal.show_line(f"{label}: {result.reason}")
    if not applies_to(Kind.INCORRECT, result.case) or result.case.world > 1:
        terminal.show_line("  only cases of one rank with the backend inductor can be narrowed down")
        return False
    terminal.say(f"torchzoo: inductor's own bisector looks into {label}: it compiles the case many times")
    folder = read.path / FOLDER
    folder.mkdir(exist_ok=True)
    kept = folder / f"{safe_name(label)}.json"
    found = look_inside(Kind.INCORRECT, result.case, read, read, prepare("this"), kept)
    terminal.show_line(f"  {found.words}")
    if found.words.startswith(NO_ANSWER):
        terminal.show_line(f"  remove {kept} to look again")
        return False
    if found.without_it:
        terminal.show_line(f"  without it: {found.without_it} {result.command}")
    terminal.show_line(f"  a small reproduction: {result.command} --debug DIR, then DIR/*/reproduce.py --minify")
    return True
