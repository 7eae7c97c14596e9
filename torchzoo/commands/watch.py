"""`torchzoo watch`: run a suite nightly, find the version that caused a regression, and write an issue about it."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime
from typing import Any

from torchzoo.commands.ab import say_record
from torchzoo.commands.arguments import recorded_path, spec_text
from torchzoo.commands.options import add_nightly_index, add_options, run_request
from torchzoo.environments.parsing import with_index
from torchzoo.errors import UsageError
from torchzoo.history import nights
from torchzoo.history.candidates import short_name
from torchzoo.history.culprits import Step, evidence_text
from torchzoo.history.nights import NIGHTS, Night, NightStatus, Options
from torchzoo.history.watch import watch
from torchzoo.report import terminal
from torchzoo.report.units import counted
from torchzoo.run.experiment import ignore
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.plan import AUTO

OK, REGRESSION = 0, 1
FILE, GITHUB = "file", "github"


def add_parser(commands: Any) -> None:
    """Add `watch` to argparse's subcommands."""
    parser = commands.add_parser(
        "watch",
        help="a nightly run: what became slower or larger, since which version, and an issue about it",
        description="One call is one night. Run the suite; propose what is worse than in earlier nights of the same "
        "machine; confirm it by an A/B of tonight's software and the earlier one, in turns; bisect what is confirmed; "
        "write an issue. DIR keeps everything. The next call continues an interrupted night. Exit "
        "status: 0 nothing was confirmed (the night is good; or undecided, as the last line says then), 1 a regression "
        "was confirmed, 2 wrong usage.",
    )
    parser.add_argument("folder", type=recorded_path, metavar="DIR", help="the folder of all nights")
    add_options(parser, repeats=1)
    parser.add_argument(
        "--software",
        type=spec_text,
        default="this",
        metavar="SPEC",
        help="the environment to run in, a SPEC as for ab. A checkout's HEAD (timm@/src/timm:HEAD) is the commit that "
        "it is tonight (default: this)",
    )
    add_nightly_index(parser)
    parser.add_argument("--no-bisect", action="store_true", help="do not look for the version that did it")
    parser.add_argument(
        "--issue",
        choices=[FILE, GITHUB],
        default=FILE,
        help="only write the issue to a file, or also post it with gh (default: file)",
    )
    parser.add_argument("--repo", metavar="OWNER/NAME", help="where to post (default: as gh finds it)")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.set_defaults(command=run, parser=parser)


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """Run one night. Return `REGRESSION` or `OK`."""
    if arguments.repo is not None and arguments.issue != GITHUB:
        raise UsageError("--repo goes with --issue github")
    if arguments.repo is not None and not re.fullmatch(r"([\w.-]+/)?[\w.-]+/[\w.-]+", arguments.repo):
        raise UsageError(f"--repo: '{arguments.repo}' is no OWNER/NAME")
    request = run_request(arguments)
    if AUTO in request.axes.batch_sizes:
        raise UsageError("--bs auto could choose other batches each night: give numbers, smoke or default")
    options = Options(
        root=arguments.folder.absolute(),
        spec=with_index(arguments.software, arguments.nightly_index),
        request=request,
        bisects=not arguments.no_bisect,
        repository=arguments.repo,
        posts=arguments.issue == GITHUB,
        show=terminal.show_line,
        on_record=ignore if arguments.quiet else say_record,
        on_step=ignore if arguments.quiet else _say_step,
    )
    with nights.locked(options.root):
        try:
            night = watch(options, datetime.now(UTC))
        except KeyboardInterrupt:
            terminal.say("torchzoo: all that was measured is kept; the same command goes on with this night")
            raise
    terminal.show_line(_end(night, options))
    return REGRESSION if night.status is NightStatus.REGRESSED else OK


def _say_step(step: Step) -> None:
    entry = step.entry
    terminal.say(f"{short_name(entry.midpoint)}: {evidence_text(entry.evidence)}")


def _end(night: Night, options: Options) -> str:
    """The last line: the night's status, and the user's next step."""
    folder = options.root / NIGHTS / night.stamp
    if night.status is NightStatus.GOOD:
        return f"good: nothing was confirmed; next: call this again tomorrow (kept in {folder})"
    if night.status is NightStatus.UNDECIDED:
        return f"undecided: nothing was confirmed, and not all could be decided: see {folder / nights.NIGHT}"
    changes = counted(len(night.confirmed), "change")
    if options.posts and not any(one.startswith("issue-") for one in night.issues):
        return f"regressed: {changes}, {counted(len(night.issues), 'issue')} posted; all is kept in {folder}"
    return f"regressed: {changes}; next: read what is in {folder}, and file the issues"
