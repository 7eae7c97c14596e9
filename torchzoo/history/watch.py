"""Run one night of a watch: run the suite, propose, confirm, bisect, write the issues.

Each step reads what is on disk, and measures only what is missing. So the same steps continue a night that was killed
at any moment.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from torchzoo.analysis.cases import Status, case_results
from torchzoo.analysis.judge import RECENT_NIGHTS
from torchzoo.environments.make import prepare
from torchzoo.environments.parsing import canonical, parse
from torchzoo.errors import TorchzooError, attempt, one_line
from torchzoo.history.blame import Found, OnStep, blame
from torchzoo.history.confirm import REPEATS, Decided, Group, MeasuredGroup, decide, groups_of, measure_pair
from torchzoo.history.issues import address_of, post, write_issues
from torchzoo.history.nights import (
    NIGHTS,
    RUN,
    Blamed,
    Night,
    NightAsked,
    NightStatus,
    begin,
    finish,
    finished_nights,
    is_measured,
    night_folders,
    read_asked,
    run_of,
    unfinished,
)
from torchzoo.history.proposals import Known, Proposal, counts_of, propose
from torchzoo.history.software import Sides, sides_of
from torchzoo.history.summaries import read_history
from torchzoo.machine.differences import machine_differences
from torchzoo.record import Manifest
from torchzoo.run import experiment
from torchzoo.run.experiment import OnRecord, Place
from torchzoo.run.request import RunRequest
from torchzoo.store import Run, StoreError, read_run


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a call of `torchzoo watch`."""

    root: Path
    spec: str
    request: RunRequest
    bisects: bool = True
    posts: bool = False  # whether issues are posted with gh, and not only written
    repository: str | None = None  # OWNER/NAME to post to; None: as gh finds it


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """The callbacks that show progress."""

    line: Callable[[str], None]
    record: OnRecord = experiment.ignore
    step: OnStep = experiment.ignore


def watch(options: Options, now: datetime, shown: Shown) -> Night:
    """Run a new night, or continue the last one if it was interrupted. The folder must be locked (`nights.locked`).

    Args:
        options: of the call.
        now: names a new night.
        shown: called with what was measured, proposed, confirmed and found.

    Raises:
        TorchzooError: the suite can't be run; the message is one line.
    """
    folder = unfinished(options.root)
    if folder is not None and _goes_on(folder, options, shown):
        return _night(folder, options, shown)
    asked = NightAsked(spec=options.spec, software=canonical(parse(options.spec)), request=options.request)
    folder = begin(options.root, asked, now)
    try:
        _run(folder, asked, shown)
    except TorchzooError:
        if not (folder / RUN / "run.json").is_file():  # nothing was measured, so there is nothing to continue
            shutil.rmtree(folder)
        raise
    return _night(folder, options, shown)


def _goes_on(folder: Path, options: Options, shown: Shown) -> bool:
    """Complete the run of a night that was interrupted. If that fails, the night is closed.

    The software stays the same, although a branch may have moved on.
    """
    asked = read_asked(folder)
    if (asked.spec, asked.request) != (options.spec, options.request):
        why = "it was begun with other models, options or software"
    else:
        shown.line(f"{folder.name}: going on with this night, which was cut short")
        try:
            _run(folder, asked, shown)
        except TorchzooError as error:
            why = one_line(error)
        else:
            return True
    remark = f"the night was cut short, and can't be gone on with: {why}"
    finish(
        folder,
        Night(stamp=folder.name, status=NightStatus.UNDECIDED, software=asked.software, remarks=(remark,)),
    )
    shown.line(f"{folder.name}: {remark}")
    return False


def _night(folder: Path, options: Options, shown: Shown) -> Night:
    """Take the steps after the run, and return the result."""
    root, stamp, asked = options.root, folder.name, read_asked(folder)
    run = read_run(folder / RUN)
    before = [night for night in finished_nights(root) if night.stamp < stamp]
    shown.line(_run_text(stamp, asked, run))
    proposed = _proposals(root, stamp, before, shown)
    decided, refused = _confirm(folder, proposed, before, asked, shown)
    remarks = list(refused)
    found = _blame(folder, decided, asked.request, options, remarks, shown)
    issues = write_issues(folder, found, decided, remarks)
    places = [_posted(path, title, options, remarks, shown) for path, title in issues]
    confirmed = tuple(one for each in decided for one in each.confirmed)
    open_ones = [proposal for one in decided for proposal in one.undecided]
    remarks += [f"the A/B could not tell: {one.case.label()}: {one.kind.words}" for one in open_ones]
    status = NightStatus.UNDECIDED if refused or open_ones else NightStatus.GOOD
    night = Night(
        stamp=stamp,
        status=NightStatus.REGRESSED if confirmed else status,
        software=asked.software,
        proposed=proposed,
        confirmed=confirmed,
        blamed=tuple(one.blamed for one in found),
        issues=tuple(places),
        remarks=tuple(remarks),
    )
    finish(folder, night)
    return night


def counted(number: int, what: str) -> str:
    """Return `1 case` or `2 cases`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# --- the run ---


def _run(folder: Path, asked: NightAsked, shown: Shown) -> None:
    path = folder / RUN
    if is_measured(path):
        return
    places = {"run": Place(software=prepare(asked.software), folder=path)}
    experiment.measure(asked.request, places, on_record=shown.record)


def _run_text(stamp: str, asked: NightAsked, run: Run) -> str:
    results = case_results(run)
    counts = {status: sum(result.status is status for result in results) for status in Status}
    words = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return f"{stamp}: measured {counted(len(results), 'case')} in {asked.software}: {words}"


# --- proposals ---


def _proposals(root: Path, stamp: str, before: Sequence[Night], shown: Shown) -> tuple[Proposal, ...]:
    folders = [folder / RUN for folder in night_folders(root) if (folder / RUN / "run.json").is_file()]
    history = read_history([root / NIGHTS])
    for problem in history.problems.values():
        shown.line(f"not all of the history can be read: {problem}")
    series = history.series()
    known = [Known(case=one.case, kind=one.kind, base=one.base) for night in before for one in night.confirmed]
    names = [folder.parent.name for folder in folders if folder.parent.name <= stamp][-RECENT_NIGHTS - 1 :]
    recent = {name: attempt(partial(run_of, root, name)) for name in names}  # unreadable runs were reported above
    counts = {name: counts_of(case_results(run)) for name, run in recent.items() if isinstance(run, Run)}
    found = propose(series, stamp, known, counts)
    for one in found:
        shown.line(f"proposed: {one.case.label()}: {one.kind.words}: {one.why}")
    if not found:
        earlier = len([folder for folder in folders if folder.parent.name < stamp])
        why = f"no case is worse than in {counted(earlier, 'earlier night')}" if earlier else "this is the first night"
        shown.line(f"nothing is proposed: {why}")
    return found


# --- confirmation ---


def _confirm(
    folder: Path, proposed: Sequence[Proposal], before: Sequence[Night], asked: NightAsked, shown: Shown
) -> tuple[tuple[Decided, ...], tuple[str, ...]]:
    """Decide the proposals by A/Bs. Return also why some of them could not be decided."""
    software = {night.stamp: night.software for night in before}
    tonight = read_run(folder / RUN).manifest
    measured, refused = _measured(folder, groups_of(proposed), software, asked, tonight, shown)
    decided = decide(measured)
    for one in decided:
        for line in _decided_lines(one):
            shown.line(line)
    return decided, tuple(refused)


def _measured(
    folder: Path,
    groups: Sequence[Group],
    software: Mapping[str, str],
    asked: NightAsked,
    tonight: Manifest,
    shown: Shown,
) -> tuple[list[MeasuredGroup], list[str]]:
    """Measure groups in turns. Return also why some could not be measured."""
    measured: list[MeasuredGroup] = []
    refused: list[str] = []
    for number, group in enumerate(groups, start=1):
        cases = f"{counted(len(group.cases), 'case')} beside the night {group.base}"
        try:
            sides = _sides(folder, group, software, asked.software, tonight)
            if sides.why_not:
                refused.append(f"{cases} could not be decided: {sides.why_not}")
                shown.line(refused[-1])
                continue
            shown.line(
                f"measuring {cases} in turns, with {REPEATS} processes of each: {sides.base} and {sides.candidate}"
            )
            place = folder / ("confirm" if number == 1 else f"confirm-{number}")
            runs = measure_pair(sides.base, sides.candidate, group.cases, asked.request, place, on_record=shown.record)
            _check_software(tonight, runs[1].manifest)
            measured.append(MeasuredGroup(group=group, sides=sides, base=runs[0], candidate=runs[1]))
        except TorchzooError as error:
            refused.append(f"{cases} could not be decided: {one_line(error)}")
            shown.line(refused[-1])
    return measured, refused


def _sides(folder: Path, group: Group, software: Mapping[str, str], spec: str, tonight: Manifest) -> Sides:
    root = folder.parent.parent
    if group.base not in software:
        raise StoreError(f"{root / NIGHTS / group.base} says not what its software was")
    return sides_of(software[group.base], run_of(root, group.base).manifest, spec, tonight)


def _check_software(tonight: Manifest, candidate: Manifest) -> None:
    """Raise `StoreError` if the environment changed since the run, as it may if a night was interrupted."""
    changed = [f"{d.name} was {d.base}, is {d.candidate}" for d in machine_differences(tonight, candidate)]
    if changed:
        raise StoreError(f"the environment changed after the run of this night: {'; '.join(changed)}")


def _decided_lines(decided: Decided) -> list[str]:
    lines = [f"confirmed: {one.label}: {one.words}" for one in decided.confirmed]
    confirmed = {(one.case, one.kind) for one in decided.confirmed}
    for one in decided.group.proposals:
        if (one.case, one.kind) not in confirmed:
            word = "undecided" if one in decided.undecided else "not confirmed"
            lines.append(f"{word}: {one.case.label()}: {one.kind.words}")
    return lines


# --- culprits ---


def _blame(
    folder: Path,
    decided: Sequence[Decided],
    request: RunRequest,
    options: Options,
    remarks: list[str],
    shown: Shown,
) -> tuple[Found, ...]:
    """Return the culprits of the clearest confirmed change. Reasons for having none are added to `remarks`."""
    if not options.bisects or not any(one.confirmed for one in decided):
        return ()
    found, reasons = blame(decided, request, folder / "bisect", on_record=shown.record, on_step=shown.step)
    remarks += reasons
    for line in [*(_blamed_text(one.blamed) for one in found), *reasons]:
        shown.line(line)
    return found


def _blamed_text(blamed: Blamed) -> str:
    about = f" ({blamed.about})" if blamed.about else ""
    which = f"one of {len(blamed.specs)} versions up to " if len(blamed.specs) > 1 else ""
    return f"found: {which}{blamed.specs[-1]}{about}: {counted(len(blamed.explains), 'change')}"


# --- issues ---


def _posted(path: Path, title: str, options: Options, remarks: list[str], shown: Shown) -> str:
    """Return where the issue is: its address if it is to be posted and could be, else its file."""
    shown.line(f"issue: {title}")
    if options.posts and (problem := post(path, title, options.repository)):
        remarks.append(f"{path.name} was not posted: {problem}")
        shown.line(remarks[-1])
    if address := address_of(path):
        shown.line(f"  {address}")
        return address
    shown.line(f"  {path}")
    return path.name
