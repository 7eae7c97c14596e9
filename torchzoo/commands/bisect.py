"""`torchzoo bisect`: find the first bad version of a package, or the part of inductor that makes results wrong."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchzoo.analysis.cases import CaseResult, Status, find_case, read_report_data
from torchzoo.commands.ab import say_record
from torchzoo.commands.arguments import (
    check_given,
    positive_int,
    recorded_path,
    say_damage,
    share_of,
    spec_text,
    usable_path,
)
from torchzoo.commands.options import OPTIONS, add_nightly_index, add_options, run_request
from torchzoo.environments.make import prepare
from torchzoo.environments.parsing import with_index
from torchzoo.errors import UsageError
from torchzoo.files import safe_name
from torchzoo.history.ab_evidence import AbJudge
from torchzoo.history.bisection import Ending
from torchzoo.history.candidates import about_commit, candidates, short_name
from torchzoo.history.changes import Kind
from torchzoo.history.culprits import Asked, BisectLog, Culprit, Result, Step, evidence_text, find_culprits
from torchzoo.history.inductor_script import NO_ANSWER, Inside
from torchzoo.history.into_inductor import INSIDE, applies_to, look_inside
from torchzoo.report import terminal, units
from torchzoo.run.experiment import ignore
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.settings import Pass
from torchzoo.store import Run
from torchzoo.zoo.catalog import find_models

FOUND, NOT_FOUND = 0, 1
#: The folder within a run for the results of --inside-inductor.
NARROWED = "narrowed"
#: The pass of a run that finds each kind of change.
PASS_OF = {Kind.INCORRECT: Pass.CHECK_ONLY, Kind.LEAKING: Pass.LEAK_CHECK}

#: Options of `torchzoo run` that choose and limit the case.
OF_RUN = {"models", "models_dir", *OPTIONS} - {"repeats", "jobs", "alone_timeout", "debug", "trace"}


def add_parser(commands: Any) -> None:
    """Add `bisect` to argparse's subcommands."""
    parser = commands.add_parser(
        "bisect",
        help="find the first bad version of a package between a good and a bad one",
        description="Measure versions between a good and a bad one, each beside the good one, until the first bad one "
        "is known with 95% probability. The case is one model and one value of each axis. A SPEC is a version "
        "(torch==2.14.1) or a commit of a checkout (timm@/src/timm:COMMIT). Exit status: 0 the first bad version was "
        "found, 1 it was not (there is no change, or only versions are left that can't be measured), 2 wrong usage. "
        "With --inside-inductor RUN no version is measured.",
    )
    parser.add_argument("--good", type=spec_text, metavar="SPEC", help="a version without the change")
    parser.add_argument(
        "--bad", type=spec_text, metavar="SPEC", help="a newer version of the same package, with the change"
    )
    parser.add_argument(
        "--metric",
        choices=[kind.value for kind in Kind],
        default=Kind.LATENCY.value,
        help="what changed: a metric, or what becomes of the case (default: latency)",
    )
    parser.add_argument(
        "--threshold",
        type=share_of,
        metavar="P%",
        help="the least difference that counts as the change, such as 7%% (default: what the noise allows)",
    )
    parser.add_argument(
        "--lanes", type=positive_int, metavar="K", help="versions that are judged at the same time (default: 1)"
    )
    add_nightly_index(parser)
    parser.add_argument("--pre", action="store_true", help="release candidates are versions, too")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument("-o", "--output", type=recorded_path, metavar="DIR", help="keep all verdicts and records there")
    parser.add_argument(
        "--resume", type=usable_path, metavar="DIR", help="go on with a bisection; nothing is measured twice"
    )
    parser.add_argument(
        "--inside-inductor",
        type=usable_path,
        metavar="RUN",
        help="instead, find the part of inductor that makes the results of a kept run's cases wrong, for those that "
        "`--check` found incorrect, by PyTorch's own bisector. MODEL then stands for words that only one case has. A "
        f"case is compiled many times, which takes minutes; answers are kept in RUN/{NARROWED} and not looked for "
        "again. Exit status: 0 a part was found for each case, 1 not for all",
    )
    _add_options_of_run(parser)
    parser.set_defaults(command=run, parser=parser)


def _add_options_of_run(parser: argparse.ArgumentParser) -> None:
    """Add the options of `torchzoo run` that `OF_RUN` names. The others have their defaults."""
    of_run = argparse.ArgumentParser()
    add_options(of_run, repeats=1)
    own = {action.dest for action in parser._actions}
    for action in of_run._actions:
        if action.dest in OF_RUN:
            parser._add_action(action)
        elif action.dest not in own:
            parser.set_defaults(**{action.dest: action.default})


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """Begin or continue a bisection, and show each verdict and the result; or look inside inductor."""
    if arguments.inside_inductor is not None:
        check_given(arguments, ("inside_inductor", "models"), "--inside-inductor reads a kept run")
        return _look_into(arguments.inside_inductor, arguments.models)
    folder = arguments.resume if arguments.resume is not None else arguments.output
    if folder is None:
        raise UsageError("name a folder for the verdicts with -o DIR, or a bisection to continue with --resume DIR")
    if arguments.resume is not None:
        check_given(arguments, ("resume", "lanes", "quiet"), "--resume keeps what the bisection began with")
    begun = _asked(arguments) if arguments.resume is None else None
    with BisectLog.opened(folder, resume=begun is None) as log:
        asked = begun or log.asked()
        asked = msgspec.structs.replace(asked, lanes=arguments.lanes or asked.lanes)
        judge = AbJudge(asked, folder / "records", ignore if arguments.quiet else say_record)
        if begun is not None:
            for spec in (asked.versions[0], asked.versions[-1]):
                prepare(spec)  # an end that can't be made is an error, and no skipped version
            log.begin(asked)
        _say_known(log)
        terminal.show_line(f"{len(asked.versions)} versions from {asked.versions[0]} to {asked.versions[-1]}")
        try:
            result = find_culprits(asked, log, judge.judge, show=_shower(asked), show_culprit=_say_culprit)
            insides = _insides(result, asked, judge, folder)
        except KeyboardInterrupt:
            terminal.say(f"torchzoo: all verdicts are kept; go on with: torchzoo bisect --resume {folder}")
            raise
    for line in _result_lines(result, insides, asked):
        terminal.show_line(line)
    return FOUND if any(culprit.is_exact for culprit in result.culprits) else NOT_FOUND


def _insides(result: Result, asked: Asked, judge: AbJudge, folder: Path) -> list[Inside | None]:
    found: list[Inside | None] = []
    good = asked.versions[0]
    for number, culprit in enumerate(result.culprits, start=1):
        inside, bad = None, culprit.specs[-1]
        runs = judge.runs(good, bad) if culprit.is_exact else None
        case = runs[1].manifest.cases[0] if runs is not None else None
        if runs is not None and case is not None and applies_to(asked.kind, case):
            terminal.say(f"torchzoo: inductor's own bisector looks into {bad}: it compiles the case many times")
            inside = look_inside(asked.kind, case, *runs, bad, folder / f"{number}-{INSIDE}")
        found.append(inside)
        good = bad
    return found


# --- inside of inductor, for the incorrect cases of a kept run ---


def _look_into(path: Path, words: Sequence[str]) -> int:
    """Find the responsible part of inductor for each incorrect case, or for the case that has these words."""
    data = read_report_data([path])
    (read,) = data.runs
    say_damage(read)
    chosen = [result for result in data.cases if result.status is Status.INCORRECT]
    if words:
        named = find_case(data.cases, words)
        if named not in chosen:
            raise UsageError(f"{named.case.label()} is {named.status}: --inside-inductor is for incorrect results")
        chosen = [named]
    if not chosen:
        terminal.show_line("no case of this run has incorrect results")
    found = [_show_inside(result, read) for result in chosen]
    return FOUND if all(found) else NOT_FOUND


def _show_inside(result: CaseResult, read: Run) -> bool:
    """Show the fault of a case and the responsible part of inductor. Return whether the part was found."""
    label = result.case.label()
    terminal.show_line(f"{label}: {result.reason}")
    if not applies_to(Kind.INCORRECT, result.case) or result.case.world > 1:
        terminal.show_line("  inductor's own bisector takes only cases of one rank with the backend inductor")
        return False
    terminal.say(f"torchzoo: inductor's own bisector looks into {label}: it compiles the case many times")
    folder = read.path / NARROWED
    folder.mkdir(exist_ok=True)
    kept = folder / f"{safe_name(label)}.json"
    found = look_inside(Kind.INCORRECT, result.case, read, read, "this", kept)
    terminal.show_line(f"  {found.words}")
    if found.words.startswith(NO_ANSWER):
        terminal.show_line(f"  remove {kept} to look again")
        return False
    if found.without_it:
        terminal.show_line(f"  without it: {found.without_it} {result.command}")
    terminal.show_line(f"  a small reproduction: {result.command} --debug DIR, then DIR/*/reproduce.py --minify")
    return True


# --- the request ---


def _asked(arguments: argparse.Namespace) -> Asked:
    if arguments.good is None or arguments.bad is None:
        raise UsageError("name both versions: --good SPEC --bad SPEC")
    kind = Kind(arguments.metric)
    request = run_request(arguments)
    if kind in PASS_OF:
        settings = msgspec.structs.replace(request.settings, passes=(PASS_OF[kind],))
        request = msgspec.structs.replace(request, settings=settings)
    models = find_models(arguments.models_dir).select(request.patterns)
    one_device = msgspec.structs.replace(request.axes, devices=request.axes.devices or ("",), repeats=1)
    if len(models) != 1 or len(list(one_device.combinations())) > 1:
        raise UsageError("a bisection follows one case: name one model, and one value of each axis")
    good, bad = (with_index(spec, arguments.nightly_index) for spec in (arguments.good, arguments.bad))
    return Asked(
        good=good,
        bad=bad,
        versions=candidates(good, bad, pre_releases=arguments.pre),
        request=request,
        words=tuple(_words(arguments)),
        kind=kind,
        threshold=arguments.threshold,
        lanes=arguments.lanes or 1,
        pre_releases=arguments.pre,
    )


def _words(arguments: argparse.Namespace) -> Iterable[str]:
    """The words that select the same case: the model, the options of `OF_RUN` that are not defaults, the pass."""
    yield from arguments.models
    for action in arguments.parser._actions:
        value = getattr(arguments, action.dest, None)
        if action.dest not in OF_RUN or not action.option_strings or value == action.default:
            continue
        for one in value if isinstance(value, list) else [value]:
            yield action.option_strings[-1]
            yield ",".join(map(str, one)) if isinstance(one, tuple) else str(one)
    if (needed := PASS_OF.get(Kind(arguments.metric))) is not None:
        yield f"--{needed.replace('_', '-')}"


# --- output ---


def _say_known(log: BisectLog) -> None:
    entries, remark = log.entries()
    if remark:
        terminal.say(f"torchzoo: {remark}")
    if entries:
        verdicts = "1 verdict is" if len(entries) == 1 else f"{len(entries)} verdicts are"
        terminal.say(f"torchzoo: {verdicts} kept from before")


def _say_culprit(culprit: Culprit) -> None:
    found = f"{short_name(culprit.specs[-1])} ({_percent(culprit.probability)})"
    terminal.say(f"torchzoo: first bad: {found}; now whether it explains all of the change")


def _shower(asked: Asked) -> Callable[[Step], None]:
    """A function that shows a line for each verdict: `2.13.0  bad 1.200x [1.180, 1.220]; first bad: 2.13.0 (87%)`."""
    width = max(len(short_name(spec)) for spec in asked.versions)

    def show(step: Step) -> None:
        entry = step.entry
        beside = f" (beside {short_name(entry.good)})" if entry.good != asked.versions[0] else ""
        best = f"first bad: {short_name(step.best) if step.best else 'none'} ({_percent(step.probability)})"
        terminal.show_line(f"{short_name(entry.midpoint):<{width}}  {evidence_text(entry.evidence)}{beside}; {best}")

    return show


def _percent(probability: float) -> str:
    """Whole percents, rounded down, at most 99%, since nothing is certain."""
    return f"{math.floor(min(probability, 0.999) * 100)}%"


def _result_lines(result: Result, insides: Sequence[Inside | None], asked: Asked) -> Iterable[str]:
    for culprit, inside in zip(result.culprits, insides, strict=True):
        yield from _culprit_lines(culprit, inside, asked)
    bad = asked.bad
    reason = f": {result.reason}" if result.reason else ""
    if result.culprits:
        unknown = "Whether more changes follow is not known:"
        rest = {
            Ending.UNMEASURABLE: f"{unknown} {bad} could not be judged beside the last culprit{reason}",
            Ending.UNDECIDED: f"{unknown} the verdicts contradict each other",
        }
        if result.ended in rest:
            yield rest[result.ended]
    elif result.ended is Ending.UNMEASURABLE:
        yield f"Nothing was found: {bad} could not be judged{reason}"
    elif result.ended is Ending.UNDECIDED:
        some = f"{result.left[0]} to {result.left[-1]}"
        yield f"Nothing was found: the verdicts contradict each other. The first bad version is probably in {some}"
    else:
        yield f"Nothing was found: {asked.kind.words} of {bad} does not differ from {asked.good}"


def _culprit_lines(culprit: Culprit, inside: Inside | None, asked: Asked) -> Iterable[str]:
    name = asked.kind.words
    figure = f"{name} {units.factor(culprit.ratio, decimals=3)}" if culprit.ratio is not None else name
    sure = f"{_percent(culprit.probability)} sure"
    last = culprit.specs[-1]
    if culprit.is_exact:
        yield f"First bad version: {last}: {figure} ({sure})"
        about = about_commit(last)
        if about:
            yield f"  {about}"
    else:
        yield f"The first bad version is one of {len(culprit.specs)}: {figure} ({sure})"
        yield f"  {', '.join(culprit.specs)}"
        yield f"  All of them but {last} could not be judged"
    if inside is not None:
        yield f"  in inductor: {inside.words}"
    if inside is not None and inside.without_it:
        yield f"  without that part: {inside.without_it}"
    command = ["torchzoo", "ab", "--base", culprit.before, "--candidate", last, *asked.words]
    yield f"  reproduce: {shlex.join(command)}"
