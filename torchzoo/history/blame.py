"""Find the versions that caused confirmed changes, by one bisection a night.

The change with the clearest effect is bisected. Each culprit is then measured beside the version before it, on all
cases with a confirmed change, to find which of the changes it explains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from torchzoo.analysis.compare import RunComparison, compare_in_turns
from torchzoo.analysis.judge import Finding
from torchzoo.case import Case
from torchzoo.environments.make import prepare
from torchzoo.errors import TorchzooError, UsageError, one_line
from torchzoo.history.ab_evidence import beside_half, make_judge
from torchzoo.history.bisect_log import Asked, BisectLog
from torchzoo.history.bisection import Ending, Standing
from torchzoo.history.candidates import NothingBetween, about_commit, candidates
from torchzoo.history.confirm import Decided, changes_for_the_worse, measure_pair, of_finding
from torchzoo.history.culprits import Culprit, Follower, Result, Step
from torchzoo.history.into_inductor import INSIDE, Inside, applies_to, look_inside
from torchzoo.history.nights import Blamed, Confirmed
from torchzoo.run.experiment import OnRecord, ignore
from torchzoo.run.request import RunRequest
from torchzoo.store import Run, StoreError

#: Narrower intervals (of logarithms) count as this wide, since memory hardly varies.
_LEAST_WIDTH = 1e-3

OnStep = Callable[[Step], None]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A culprit with the comparison that shows its effects."""

    blamed: Blamed
    effects: tuple[Confirmed, ...]  # the changes that it explains, with the figures of the comparison
    comparison: RunComparison


def _clearness(one: Confirmed) -> float:
    ratio = one.ratio
    if ratio is None or ratio.low <= 0:
        return 0.0
    return abs(math.log(ratio.value)) / max(math.log(ratio.high / ratio.low), _LEAST_WIDTH)


def request_of(case: Case, request: RunRequest) -> RunRequest:
    """Return the request of a night, narrowed to one case."""
    return msgspec.structs.replace(request, patterns=(case.model,), suites=(), axes=request.axes.only(case))


class _Bisected(msgspec.Struct, frozen=True, kw_only=True):
    """The change that is bisected, and what its bisection needs."""

    target: Confirmed
    confirmed: tuple[Confirmed, ...]  # all changes, the target among them
    request: RunRequest
    folder: Path
    on_record: OnRecord
    on_step: OnStep


def blame(
    decided: Sequence[Decided],
    request: RunRequest,
    folder: Path,
    *,
    on_record: OnRecord = ignore,
    on_step: OnStep = ignore,
) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """Find the versions that caused the clearest of the confirmed changes.

    Args:
        decided: the results of the A/Bs of a night.
        request: the request of the night.
        folder: of the bisection. Measurements that it holds are not repeated.
        on_record: called with each record.
        on_step: called with each verdict.

    Returns:
        The culprits, and a line for each reason why there is none.
    """
    of_change = {change: one for one in decided for change in one.confirmed}
    target = max(of_change, key=_clearness)
    its = of_change[target]
    work = _Bisected(
        target=target, confirmed=tuple(of_change), request=request, folder=folder, on_record=on_record, on_step=on_step
    )
    remarks: list[str] = []
    try:
        versions = candidates(its.sides.good, its.sides.bad)
    except NothingBetween:
        if not its.sides.is_part:
            return (_direct(its),), ()
        versions = (its.sides.good, its.sides.bad)
    except UsageError as error:
        return (), (f"not bisected: {one_line(error)}",)
    try:
        return tuple(_culprits(work, versions, remarks)), tuple(remarks)
    except TorchzooError as error:
        return (), (*remarks, f"{target.label} could not be bisected: {one_line(error)}")


def _direct(decided: Decided) -> Found:
    """Return tonight's version as the culprit, if no version is between it and the good one."""
    blamed = Blamed(
        before=decided.sides.good,
        specs=(decided.sides.bad,),
        probability=1.0,
        about=about_commit(decided.sides.bad),
        explains=decided.confirmed,
    )
    return Found(blamed=blamed, effects=decided.confirmed, comparison=decided.comparison)


def _culprits(work: _Bisected, versions: tuple[str, ...], remarks: list[str]) -> Iterator[Found]:
    """Yield the culprits. If there is none, the reason is added to `remarks`."""
    result = _result(work, versions)
    if not result.culprits:
        remarks.append(_why_none(work.target, result))
    for number, culprit in enumerate(result.culprits, start=1):
        found = _examined(work, culprit, work.folder / f"culprit-{number}")
        if _is_refuted(found.comparison, culprit, work.target):
            why = f"{culprit.specs[-1]} was suspected; measured again, it is like the version before it"
            remarks.append(f"{work.target.label}: {why}")
        else:
            yield found


def _result(work: _Bisected, versions: tuple[str, ...]) -> Result:
    is_begun = (work.folder / "bisect.json").is_file()
    with BisectLog(work.folder, resume=is_begun) as log:
        asked = Asked(
            good=versions[0],
            bad=versions[-1],
            versions=versions,
            request=request_of(work.target.case, work.request),
            kind=work.target.kind,
        )
        if is_begun:
            before = log.asked()
            if msgspec.structs.replace(asked, versions=before.versions) != before:  # an index may offer others by now
                raise StoreError(f"{work.folder} holds another bisection, begun by an earlier call: remove this folder")
            asked = before
        else:
            log.begin(asked)
        judge = make_judge(asked, work.folder / "records", work.on_record)
        return Follower(asked=asked, log=log, judge=judge, show=work.on_step).follow()


def _examined(work: _Bisected, culprit: Culprit, folder: Path) -> Found:
    """Measure the effect of a culprit on each confirmed case. The bisected case always counts as explained."""
    target, confirmed = work.target, work.confirmed
    cases = tuple(dict.fromkeys(one.case for one in confirmed))
    base, candidate = measure_pair(
        culprit.before, culprit.specs[-1], cases, work.request, folder, on_record=work.on_record
    )
    comparison = compare_in_turns(base, candidate)
    worse = {(one.case, one.kind): one for one in changes_for_the_worse(comparison, base, candidate, night="")}
    explains = tuple(one for one in confirmed if one is target or (one.case, one.kind) in worse)
    blamed = Blamed(
        before=culprit.before,
        specs=culprit.specs,
        probability=culprit.probability,
        about=about_commit(culprit.specs[-1]),
        explains=explains,
        inside=_inside(target, culprit, base, candidate, folder),
    )
    effects = tuple(worse.get((one.case, one.kind)) or _as_measured(comparison, one) for one in explains)
    return Found(blamed=blamed, effects=effects, comparison=comparison)


def _as_measured(comparison: RunComparison, one: Confirmed) -> Confirmed:
    """Return a change with the figures of a comparison that shows it, but not clearly enough for a verdict."""
    finding = _finding(comparison, one)
    if finding is None:
        return msgspec.structs.replace(one, words=f"{one.words} (between the two nights)")
    return of_finding(finding, one.base)


def _finding(comparison: RunComparison, one: Confirmed) -> Finding | None:
    return next((f for f in comparison.findings if (f.case, f.metric) == (one.case, one.kind.metric)), None)


def _is_refuted(comparison: RunComparison, culprit: Culprit, target: Confirmed) -> bool:
    """Whether the culprit, compared with the version before it, lacks the change that the search found."""
    if culprit.ratio is None:
        return False
    finding = _finding(comparison, target)
    return finding is not None and beside_half(finding, math.log(culprit.ratio.value)) is Standing.GOOD


def _inside(target: Confirmed, culprit: Culprit, base: Run, candidate: Run, folder: Path) -> Inside | None:
    """Find the part of inductor that is at fault; None if the culprit is not one version, or `applies_to` says no."""
    if not (culprit.is_exact and applies_to(target.kind, target.case)):
        return None
    return look_inside(target.kind, target.case, base, candidate, prepare(culprit.specs[0]), folder / INSIDE)


def _why_none(target: Confirmed, result: Result) -> str:
    reasons = {
        Ending.UNDECIDED: "the verdicts contradict each other",
        Ending.UNMEASURABLE: f"the bad version could not be judged: {result.reason}",
    }
    why = reasons.get(result.ended, "the bad version does not differ from the good one when they are measured again")
    return f"no version was found for {target.label}: {why}"
