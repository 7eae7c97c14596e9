"""`torchzoo ab`: measure two software environments in turns, with verdicts."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from torchzoo.analysis.compare import Side
from torchzoo.analysis.judge import REPEATS
from torchzoo.commands.arguments import check_given, share_of, spec_text, usable_path, write
from torchzoo.commands.compare import OK, REGRESSION
from torchzoo.commands.options import add_nightly_index, add_options, run_request
from torchzoo.environments.make import prepare
from torchzoo.environments.parsing import with_index
from torchzoo.errors import UsageError
from torchzoo.history import ab
from torchzoo.history.ab import AbRequest
from torchzoo.record import Record
from torchzoo.report import terminal
from torchzoo.report.remarks import one_line
from torchzoo.report.run_comparison import FORMATS
from torchzoo.run.experiment import ignore
from torchzoo.run.interrupts import terminated_as_interrupted


def add_parser(commands: Any) -> None:
    """Add `ab` to argparse's subcommands."""
    parser = commands.add_parser(
        "ab",
        help="measure two software environments in turns, and say what is faster or slower in the candidate",
        description="Measure the same cases in two software environments, process by process in turns (A B B A), and "
        "give verdicts as `compare` does; from --repeats 10 on, by pairs of processes. A SPEC is a version "
        "(torch==2.14.1; several packages with commas), a wheel (/path/x.whl), a commit of a library's checkout "
        "(timm@/src/timm:abc123), a Python (python=/venv/bin/python), settings (NAME=value), several of these with "
        "commas, or `this`: the environment that torchzoo runs in. Exit status: 1 if something is slower, takes more "
        "memory or newly fails, 0 otherwise, 2 for wrong usage.",
    )
    parser.add_argument("--base", type=spec_text, metavar="SPEC", help="the environment before (default: this)")
    parser.add_argument("--candidate", type=spec_text, metavar="SPEC", help="the environment after (default: this)")
    add_nightly_index(parser)
    add_options(parser, repeats=REPEATS)
    parser.add_argument("--threshold", type=share_of, metavar="P%", help="as for compare")
    parser.add_argument(
        "-o", "--output", type=usable_path, metavar="DIR", help="keep both sides: DIR/base and DIR/candidate are runs"
    )
    parser.add_argument("--resume", type=usable_path, metavar="DIR", help="measure what is missing in DIR")
    parser.add_argument("--format", choices=FORMATS, default="table")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.set_defaults(command=run, parser=parser)


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """Measure both sides, or their missing cases, and show the verdicts."""
    if arguments.resume is not None:
        obeyed = ("resume", "threshold", "format", "quiet")
        check_given(arguments, obeyed, "--resume keeps the settings that the measurement began with")
        return _measure(ab.read_request(arguments.resume), arguments.resume, arguments)
    if arguments.base is None and arguments.candidate is None:
        raise UsageError("say what to compare: --base SPEC, --candidate SPEC (a missing SPEC is this environment)")
    base, candidate = (
        with_index(spec or "this", arguments.nightly_index) for spec in (arguments.base, arguments.candidate)
    )
    request = AbRequest(base=base, candidate=candidate, run=run_request(arguments, repeats=REPEATS))
    if arguments.output is not None:
        ab.begin(request, arguments.output)
        return _measure(request, arguments.output, arguments)
    with tempfile.TemporaryDirectory(prefix="torchzoo-ab-") as folder:
        ab.begin(request, Path(folder))
        return _measure(request, Path(folder), arguments)


def _measure(request: AbRequest, path: Path, arguments: argparse.Namespace) -> int:
    on_record = ignore if arguments.quiet else say_record
    ab.measure_sides(request, prepare(request.base), prepare(request.candidate), path, on_record=on_record)
    comparison = ab.compare_sides(path, threshold=arguments.threshold)
    write(FORMATS[arguments.format](comparison), None)
    if arguments.output is not None or arguments.resume is not None:
        terminal.say(f"kept in {path}: the runs {Side.BASE} and {Side.CANDIDATE}")
    return REGRESSION if comparison.has_regression else OK


def say_record(name: str, record: Record, done: int, total: int) -> None:
    """Print a line on a case that is finished in the environment `name`."""
    terminal.say(f"[{done}/{total}] {name}: {record.case.label()}: {one_line(record)}")
