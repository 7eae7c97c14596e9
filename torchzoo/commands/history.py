"""`torchzoo history`: questions about many runs over time."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchzoo.analysis.judge import CHANGE_POINT_P_VALUE, CHANGE_POINT_WINDOW
from torchzoo.analysis.run_figures import Metric
from torchzoo.analysis.series import Series
from torchzoo.analysis.time_use import SPEED_FIGURES
from torchzoo.case import AXES
from torchzoo.commands.arguments import choices, share_of, usable_path, whole, words, write
from torchzoo.commands.options import axis_help, axis_reader
from torchzoo.errors import UsageError, nearest
from torchzoo.history.summaries import History, read_history
from torchzoo.report import terminal
from torchzoo.report.document import Block, Items
from torchzoo.report.text import json_text

if TYPE_CHECKING:
    from torchzoo.analysis.change_points import ChangePoint

OK, REGRESSION = 0, 1
RUNS = "runs"  # the folder of runs, if none is named
TIME = "time"  # another word for the latency
MOST_PROBLEMS = 20  # most lines on folders that can't be read


def add_parser(commands: Any) -> None:
    """Add `history` and its own subcommands to argparse's subcommands."""
    history = commands.add_parser(
        "history",
        help="many runs over time: series, change points, what changed between versions",
        description="Questions about many runs. Their summaries are kept in a hidden folder beside the runs, which can "
        "be deleted. A change point is a suggestion; measure both versions side by side to confirm it.",
    )
    parts = history.add_subparsers(metavar="COMMAND", required=True)
    _add_show(parts)
    _add_regressions(parts)
    _add_page(parts)
    _add_speed(parts)


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--runs",
        type=usable_path,
        action="append",
        metavar="DIR",
        help=f"the folder that holds the runs, at any depth; may be repeated (default: {RUNS})",
    )


#: The axes by which cases can be chosen.
_FILTERS = [axis for axis in AXES if axis.name != "seed"]
_METRIC: dict[str, Any] = {"metavar": "M[,M]", "help": f"{', '.join(Metric)}; {TIME} is latency (default: all)"}


def _add_axes(parser: argparse.ArgumentParser) -> None:
    for axis in _FILTERS:
        parser.add_argument(
            *axis.options,
            dest=axis.name,
            type=axis_reader(axis),
            metavar=axis.metavar,
            help=f"{axis_help(axis)} (default: all)",
        )
    parser.add_argument("--machine", metavar="TEXT", help="kinds of machine with this in their name, such as H200")
    parser.add_argument("--metric", **_METRIC)


def _add_detection(parser: argparse.ArgumentParser) -> None:
    at_most = f"the greatest p-value of a change point (default: {CHANGE_POINT_P_VALUE:g})"
    parser.add_argument("--p-value", type=_probability, default=CHANGE_POINT_P_VALUE, metavar="P", help=at_most)
    at_once = f"how many runs are searched at once (default: {CHANGE_POINT_WINDOW})"
    parser.add_argument("--window", type=whole(4, 10_000), default=CHANGE_POINT_WINDOW, metavar="N", help=at_once)
    least = "the least change that counts, such as 5%% (default: any)"
    parser.add_argument("--least-magnitude", type=share_of, metavar="P%", help=least)


def _add_show(parts: Any) -> None:
    parser = parts.add_parser(
        "show",
        help="a case over time, with intervals, changes of software and change points",
        description="One series: each run with its value and interval, what changed in the software, and the change "
        "points. If the choice has several series, a line for each.",
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a name, or a glob ('hf_*')")
    _add_axes(parser)
    _add_detection(parser)
    _add_last(parser)
    parser.add_argument("--json", action="store_true", help="all points of all chosen series, in seconds and bytes")
    _add_where(parser)
    parser.set_defaults(command=show_command)


def _add_last(parser: argparse.ArgumentParser) -> None:
    text = "runs to list; 0 for all (default: 30)"
    parser.add_argument("--last", type=whole(0, 10**9), default=30, metavar="N", help=text)


def _add_regressions(parts: Any) -> None:
    parser = parts.add_parser(
        "regressions",
        help="what changed between two versions, dates or runs",
        description="Compare the runs of V with those of W, each case on its own kind of machine, with the test of "
        "`torchzoo compare`. Of each side up to ten runs for a kind of machine count: those next to the other side. "
        "Exit status: 1 if something is slower, takes more memory or newly fails, 0 otherwise, 2 for wrong usage.",
    )
    what = "a version of torch (2.15.0) or of a package (timm==1.0.20), a date (2026-11-22), the folder of a run, or "
    what += "a night of `torchzoo watch` (20261122T020000Z)"
    parser.add_argument("--from", dest="base", required=True, metavar="V", help=what)
    parser.add_argument("--to", dest="candidate", required=True, metavar="W", help="the other side, as for --from")
    parser.add_argument(
        "--threshold",
        type=share_of,
        metavar="P%",
        help="the least difference that matters, such as 7%% (default: what each case's noise allows)",
    )
    parser.add_argument("--metric", **_METRIC)
    parser.add_argument("--json", action="store_true", help="all findings, in seconds and bytes")
    _add_where(parser)
    parser.set_defaults(command=regressions_command)


def _add_page(parts: Any) -> None:
    parser = parts.add_parser(
        "page",
        help="all series as one HTML file that opens offline",
        description="One HTML file: a small chart for each series, and on a click the series with intervals, changes "
        "of software and change points.",
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a name, or a glob ('hf_*') (default: all)")
    _add_axes(parser)
    _add_detection(parser)
    parser.add_argument("-o", "--output", type=usable_path, required=True, metavar="FILE", help="the file to write")
    _add_where(parser)
    parser.set_defaults(command=page_command)


def _add_speed(parts: Any) -> None:
    parser = parts.add_parser(
        "speed",
        help="how fast whole runs were: cases a minute, share in measuring windows, CPU time a case",
        description="The speed of the suite itself: for each whole run the cases that it measured in a minute, the "
        "part of its time that lanes spent in measuring windows, and the CPU time of the workers for a case. Runs of "
        "the same cases, settings, lanes and kind of machine are one table, with change points.",
    )
    _add_detection(parser)
    _add_last(parser)
    parser.add_argument("--json", action="store_true", help="all runs, unrounded")
    _add_where(parser)
    parser.set_defaults(command=speed_command)


# --- commands ---


def show_command(arguments: argparse.Namespace) -> int:
    """Show one series, or a line for each of several."""
    from torchzoo.report import over_time as report

    found = _with_change_points(_series(arguments), arguments)
    if arguments.json:
        print(report.series_json(found), end="")
    elif len(found) == 1:
        terminal.show(terminal.render(report.one_series(*found[0], last=arguments.last)))
    else:
        terminal.show(terminal.render(report.many_series(found)))
    return OK


def regressions_command(arguments: argparse.Namespace) -> int:
    """Show what changed between two versions. Return `REGRESSION` or `OK`."""
    from torchzoo.history.versions import compare_versions, side
    from torchzoo.report import over_time as report

    metrics = _metrics(arguments.metric)
    history = _history(arguments)
    sides = [side(history.runs, word) for word in (arguments.base, arguments.candidate)]
    comparison = compare_versions(history, *sides, metrics=metrics, threshold=arguments.threshold)
    if arguments.json:
        print(json_text(comparison, indent=1))
        return REGRESSION if comparison.has_regression else OK
    about = [
        f"from {report.side_text(comparison.base.name, comparison.base.runs)}",
        f"to {report.side_text(comparison.candidate.name, comparison.candidate.runs)}",
    ]
    if comparison.software:
        about.append(f"software: {report.software_text(comparison.software)}")
    blocks: list[Block] = [Items(tuple(about))]
    for one in comparison.machines:
        blocks += report.machine_changes(one.machine, one.findings, one.changes, one.still_failing)
    terminal.show(terminal.render(blocks))
    return REGRESSION if comparison.has_regression else OK


def page_command(arguments: argparse.Namespace) -> int:
    """Write the page."""
    from torchzoo.report.html.history_page import page

    found = _with_change_points(_series(arguments), arguments)
    write(page(found), arguments.output)
    terminal.say(f"written to {arguments.output}")
    return OK


def speed_command(arguments: argparse.Namespace) -> int:
    """Show the speed of whole runs."""
    from torchzoo.report import over_time as report

    speeds = _history(arguments).speeds()
    if not speeds:
        raise UsageError("no run here has measured its cases to the end: go on with `torchzoo run --resume RUN`")
    found = [
        (one, {figure: _change_points(one.values(figure), arguments) for figure in SPEED_FIGURES}) for one in speeds
    ]
    if arguments.json:
        print(report.speeds_json(found), end="")
    else:
        terminal.show(terminal.render(report.run_speeds(found, last=arguments.last)))
    return OK


# --- the meaning of the arguments ---


def _history(arguments: argparse.Namespace) -> History:
    folders = arguments.runs or [Path(RUNS)]
    if not arguments.runs and not folders[0].is_dir():
        raise UsageError(f"no folder '{RUNS}' here: name the folder that holds your runs with --runs DIR")
    history = read_history(folders)
    for number, (path, problem) in enumerate(history.problems.items()):
        if number == MOST_PROBLEMS:
            terminal.say(f"torchzoo: {len(history.problems) - number} more folders can't be read")
            break
        terminal.say(f"torchzoo: {problem if path in problem else f'{path}: {problem}'}")
    if not history.runs:
        raise UsageError(f"no runs in {', '.join(map(str, folders))}: keep some with `torchzoo run ... -o DIR/NAME`")
    return history


def _series(arguments: argparse.Namespace) -> list[Series]:
    history = _history(arguments)
    models = _models(history, arguments.models) if arguments.models else None
    wanted = {"model": models, "machine": _machines(history, arguments.machine, models)}
    for axis in _FILTERS:
        values = getattr(arguments, axis.name)
        wanted[axis.name] = None if values is None else [str(value) for value in values]
    found = history.series(wanted, _metrics(arguments.metric))
    if not found:
        some = history.series({"model": models})
        labels = list(dict.fromkeys(f"{one.case.label()} on {one.machine}" for one in some))
        more = f" and {len(labels) - 8} more" if len(labels) > 8 else ""
        raise UsageError(f"no case has these axes; there are {'; '.join(labels[:8])}{more}")
    return [one for one in found if one.last is not None] or found


def _machines(history: History, text: str | None, models: Sequence[str] | None) -> list[str] | None:
    if text is None:
        return None
    known = sorted({one.machine for summary in history.summaries.values() for one in summary.cases(models)})
    found = [name for name in known if text.lower() in name.lower()]
    if not found:
        raise UsageError(f"no machine has '{text}' in its name; known: {'; '.join(known)}")
    return found


def _models(history: History, patterns: Sequence[str]) -> tuple[str, ...]:
    known = history.models
    found = []
    for pattern in patterns:
        names = [name for name in known if fnmatchcase(name, pattern)]
        if not names:
            hint = nearest(pattern, known, otherwise=f"they have {', '.join(known[:8])}{' ...' if known[8:] else ''}")
            raise UsageError(f"no model '{pattern}' in the runs: {hint}")
        found += names
    return tuple(dict.fromkeys(found))


def _metrics(text: str | None) -> tuple[Metric, ...]:
    if text is None:
        return tuple(Metric)
    named = [Metric.LATENCY.value if word == TIME else word for word in words(text)]
    return choices(",".join(named), Metric, "metric")


def _with_change_points(
    found: Sequence[Series], arguments: argparse.Namespace
) -> list[tuple[Series, tuple[ChangePoint, ...]]]:
    return [(series, _change_points(series.values, arguments)) for series in found]


def _change_points(values: Sequence[float], arguments: argparse.Namespace) -> tuple[ChangePoint, ...]:
    from torchzoo.analysis.change_points import change_points

    least = arguments.least_magnitude or 0.0
    return change_points(values, window=arguments.window, p_value=arguments.p_value, least_magnitude=least)


def _probability(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) < 1:
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a number between 0 and 1, such as 0.0001, found '{text}'")
