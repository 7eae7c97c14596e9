"""Run one night of a watch: run the suite, propose, confirm, bisect, write the issues.

Each step reads what is on disk, and measures only what is missing. So the same steps continue a night that was killed
at any moment.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from torchzoo.analysis.cases import Status, case_results
from torchzoo.analysis.judge import RECENT_NIGHTS
from torchzoo.environments.make import prepare
from torchzoo.environments.parsing import canonical, parse
from torchzoo.errors import TorchzooError, attempt, one_line
from torchzoo.history.blame import blame
from torchzoo.history.changes import Proposal, counts_of
from torchzoo.history.confirm import confirm
from torchzoo.history.issues import write_issues
from torchzoo.history.nights import (
    ASKED,
    NIGHT,
    NIGHTS,
    RUN,
    Night,
    NightAsked,
    NightStatus,
    NightWork,
    Options,
    begin,
    finish,
    finished_nights,
    is_measured,
    night_folders,
    read_night,
)
from torchzoo.history.proposals import propose
from torchzoo.history.summaries import read_history
from torchzoo.report.units import counted
from torchzoo.run import experiment
from torchzoo.run.experiment import Place
from torchzoo.store import Run, read_run


def watch(options: Options, now: datetime) -> Night:
    """Run a new night named by `now`, or continue the last one if it was interrupted.

    The folder must be locked (`nights.locked`).
    """
    folders = night_folders(options.root)
    if folders and not (folders[-1] / NIGHT).is_file():
        asked = read_night(folders[-1] / ASKED, NightAsked)
        work = NightWork(folder=folders[-1], asked=asked, options=options, remarks=[])
        if _goes_on(work):
            return _night(work)
    asked = NightAsked(spec=options.spec, software=canonical(parse(options.spec)), request=options.request)
    work = NightWork(folder=begin(options.root, asked, now), asked=asked, options=options, remarks=[])
    try:
        _run(work)
    except TorchzooError:
        if not (work.folder / RUN / "run.json").is_file():  # nothing was measured, so there is nothing to continue
            shutil.rmtree(work.folder)
        raise
    return _night(work)


def _goes_on(work: NightWork) -> bool:
    """Complete the run of a night that was interrupted. If that fails, the night is closed.

    The software stays the same, although a branch may have moved on.
    """
    asked, options, stamp = work.asked, work.options, work.folder.name
    if (asked.spec, asked.request) != (options.spec, options.request):
        why = "it was begun with other models, options or software"
    else:
        options.show(f"{stamp}: going on with this night, which was cut short")
        try:
            _run(work)
        except TorchzooError as error:
            why = one_line(error)
        else:
            return True
    remark = f"the night was cut short, and can't be gone on with: {why}"
    night = Night(stamp=stamp, status=NightStatus.UNDECIDED, software=asked.software, remarks=(remark,))
    finish(work.folder, night)
    options.show(f"{stamp}: {remark}")
    return False


def _run(work: NightWork) -> None:
    path = work.folder / RUN
    if not is_measured(path):
        places = {"run": Place(software=prepare(work.asked.software), folder=path)}
        experiment.measure(work.asked.request, places, on_record=work.options.on_record)


def _night(work: NightWork) -> Night:
    stamp, software = work.folder.name, work.asked.software
    before = [night for night in finished_nights(work.options.root) if night.stamp < stamp]
    run = read_run(work.folder / RUN)
    results = case_results(run)
    counts = {status: sum(result.status is status for result in results) for status in Status}
    words = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    work.options.show(f"{stamp}: measured {counted(len(results), 'case')} in {software}: {words}")
    proposed = _proposals(work, before)
    decided = confirm(work, proposed, before, run)
    undecided = [proposal for one in decided for proposal in one.undecided]
    status = NightStatus.UNDECIDED if work.remarks or undecided else NightStatus.GOOD
    found = blame(work, decided) if work.options.bisects else ()
    issues = write_issues(work, found, decided)
    confirmed = tuple(change for one in decided for change in one.confirmed)
    unclear = [f"the A/B could not tell: {proposal.label}" for proposal in undecided]
    night = Night(
        stamp=stamp,
        status=NightStatus.REGRESSED if confirmed else status,
        software=software,
        proposed=proposed,
        confirmed=confirmed,
        blamed=tuple(one.blamed for one in found if one.blamed is not None),
        issues=tuple(issues),
        remarks=(*work.remarks, *unclear),
    )
    finish(work.folder, night)
    return night


def _proposals(work: NightWork, before: Sequence[Night]) -> tuple[Proposal, ...]:
    root, stamp = work.options.root, work.folder.name
    history = read_history([root / NIGHTS])
    for problem in history.problems.values():
        work.options.show(f"not all of the history can be read: {problem}")
    known = [change for night in before for change in night.confirmed]
    nights = [one.name for one in night_folders(root) if (one / RUN / "run.json").is_file() and one.name <= stamp]
    recent = {night: attempt(partial(read_run, root / NIGHTS / night / RUN)) for night in nights[-RECENT_NIGHTS - 1 :]}
    counts = {night: counts_of(case_results(run)) for night, run in recent.items() if isinstance(run, Run)}
    found = propose(history.series(), stamp, known, counts)
    for one in found:
        work.options.show(f"proposed: {one.label}: {one.why}")
    if not found:
        earlier = len(nights) - 1
        why = f"no case is worse than in {counted(earlier, 'earlier night')}" if earlier else "this is the first night"
        work.options.show(f"nothing is proposed: {why}")
    return found
