"""Find the versions that caused confirmed changes, by one bisection a night.

The change with the clearest effect is bisected. Each culprit is then measured beside the version before it, on all
cases with a confirmed change, to find which of the changes it explains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from torchzoo.analysis.compare import RunComparison, compare_in_turns
from torchzoo.analysis.judge import Finding
from torchzoo.errors import TorchzooError, UsageError, one_line
from torchzoo.history.ab_evidence import AbJudge, is_there
from torchzoo.history.bisection import Ending, Standing
from torchzoo.history.candidates import NothingBetween, about_commit, candidates
from torchzoo.history.changes import Confirmed, changes_for_the_worse
from torchzoo.history.confirm import Decided, measure_pair
from torchzoo.history.culprits import ASKED, Asked, BisectLog, Culprit, Result, find_culprits
from torchzoo.history.into_inductor import INSIDE, applies_to, look_inside
from torchzoo.history.issues import Issue
from torchzoo.history.nights import Blamed, NightWork
from torchzoo.report.units import counted
from torchzoo.store import StoreError

#: Narrower intervals (of logarithms) count as this wide, since memory hardly varies.
_LEAST_WIDTH = 1e-3


def blame(work: NightWork, decided: Sequence[Decided]) -> tuple[Issue, ...]:
    """Return the issues on the versions that caused the clearest of the confirmed changes.

    Reasons why there is none become remarks.
    """
    of_change = {change: one for one in decided for change in one.confirmed}
    if not of_change:
        return ()
    target = max(of_change, key=_clearness)
    its = of_change[target]
    good, bad = its.sides.good, its.sides.bad
    try:
        versions = candidates(good, bad)
    except NothingBetween:
        if not its.sides.is_part:
            about = about_commit(bad)
            blamed = Blamed(before=good, specs=(bad,), probability=1.0, about=about, explains=its.confirmed)
            return (_issue(work, blamed, its.confirmed, its.comparison),)
        versions = (good, bad)
    except UsageError as error:
        work.remark(f"not bisected: {one_line(error)}")
        return ()
    try:
        return tuple(_culprits(work, target, tuple(of_change), versions))
    except TorchzooError as error:
        work.remark(f"{target.label} could not be bisected: {one_line(error)}")
        return ()


def _clearness(one: Confirmed) -> float:
    ratio = one.ratio
    if ratio is None or ratio.low <= 0:
        return 0.0
    return abs(math.log(ratio.value)) / max(math.log(ratio.high / ratio.low), _LEAST_WIDTH)


def _culprits(
    work: NightWork, target: Confirmed, confirmed: Sequence[Confirmed], versions: tuple[str, ...]
) -> Iterator[Issue]:
    result = _bisected(work, target, versions)
    if not result.culprits:
        reasons = {
            Ending.UNDECIDED: "the verdicts contradict each other",
            Ending.UNMEASURABLE: f"the bad version could not be judged: {result.reason}",
        }
        same = "the bad version does not differ from the good one when they are measured again"
        work.remark(f"no version was found for {target.label}: {reasons.get(result.ended, same)}")
    for number, culprit in enumerate(result.culprits, start=1):
        issue = _examined(work, culprit, target, confirmed, work.folder / "bisect" / f"culprit-{number}")
        if issue is None:
            why = f"{culprit.specs[-1]} was suspected; measured again, it is like the version before it"
            work.remark(f"{target.label}: {why}")
        else:
            yield issue


def _bisected(work: NightWork, target: Confirmed, versions: tuple[str, ...]) -> Result:
    folder, request = work.folder / "bisect", work.asked.request
    axes = request.axes.only(target.case)
    asked = Asked(
        good=versions[0],
        bad=versions[-1],
        versions=versions,
        request=msgspec.structs.replace(request, patterns=(target.case.model,), suites=(), axes=axes),
        kind=target.kind,
    )
    is_begun = (folder / ASKED).is_file()
    with BisectLog.opened(folder, resume=is_begun) as log:
        if not is_begun:
            log.begin(asked)
        before = log.asked()
        if msgspec.structs.replace(asked, versions=before.versions) != before:  # an index may offer others by now
            raise StoreError(f"{folder} holds another bisection, begun by an earlier call: remove this folder")
        judge = AbJudge(before, folder / "records", work.options.on_record)
        return find_culprits(before, log, judge.judge, show=work.options.on_step)


def _examined(
    work: NightWork, culprit: Culprit, target: Confirmed, confirmed: Sequence[Confirmed], folder: Path
) -> Issue | None:
    """Measure the effect of a culprit on each confirmed case. Return None if it lacks the change that was bisected."""
    bad = culprit.specs[-1]
    cases = tuple(dict.fromkeys(one.case for one in confirmed))
    specs, on_record = (culprit.before, bad), work.options.on_record
    base, candidate = measure_pair(*specs, cases, work.asked.request, folder, on_record=on_record)
    comparison = compare_in_turns(base, candidate)
    if is_refuted(comparison, culprit, target):
        return None
    worse = changes_for_the_worse(comparison, base, candidate)
    explains = tuple(one for one in confirmed if one is target or one.key in worse)
    inside = None
    if culprit.is_exact and applies_to(target.kind, target.case):
        inside = look_inside(target.kind, target.case, base, candidate, bad, folder / INSIDE)
    blamed = Blamed(
        before=culprit.before,
        specs=culprit.specs,
        probability=culprit.probability,
        about=about_commit(bad),
        explains=explains,
        inside=inside,
    )
    return _issue(work, blamed, (worse.get(one.key) or _as_measured(comparison, one) for one in explains), comparison)


def _issue(work: NightWork, blamed: Blamed, changes: Iterable[Confirmed], comparison: RunComparison) -> Issue:
    bad = blamed.specs[-1]
    which = f"one of {len(blamed.specs)} versions up to {bad}" if len(blamed.specs) > 1 else bad
    about = f" ({blamed.about})" if blamed.about else ""
    work.options.show(f"found: {which}{about}: {counted(len(blamed.explains), 'change')}")
    return Issue(
        night=work.folder.name,
        changes=tuple(changes),
        base=blamed.before,
        candidate=bad,
        blamed=blamed,
        comparison=comparison,
    )


def _finding(comparison: RunComparison, one: Confirmed) -> Finding | None:
    return next((f for f in comparison.findings if (f.case, f.metric) == (one.case, one.kind.metric)), None)


def is_refuted(comparison: RunComparison, culprit: Culprit, target: Confirmed) -> bool:
    """Whether the culprit, compared with the version before it, lacks the change that the search found."""
    finding = _finding(comparison, target)
    if finding is None or culprit.ratio is None:
        return False
    return is_there(finding, math.log(culprit.ratio.value)) is Standing.GOOD


def _as_measured(comparison: RunComparison, one: Confirmed) -> Confirmed:
    """Return a change with the figures of a comparison that shows it, but not clearly enough for a verdict."""
    finding = _finding(comparison, one)
    if finding is None:
        return msgspec.structs.replace(one, words=f"{one.words} (between the two nights)")
    return Confirmed.of(finding)
