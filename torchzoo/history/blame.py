"""Find the versions that caused confirmed changes, by bisections and by an A/B of each culprit over all cases.

The case with the clearest effect is bisected. The culprit and the version before it are then measured on all confirmed
cases, to find which of these changes it explains. The changes that remain are bisected again.
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
from torchzoo.history.turns import OnRecord, ignore
from torchzoo.run.request import RunRequest
from torchzoo.store import Run, StoreError

#: The most bisections for the changes that one A/B confirmed.
MOST_BISECTIONS = 3
#: Narrower intervals (of logarithms) count as this wide, since memory hardly varies.
_LEAST_WIDTH = 1e-3

OnStep = Callable[[Step], None]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A culprit with the comparison that shows its effects."""

    blamed: Blamed
    effects: tuple[Confirmed, ...]  # the changes that it explains, with the figures of the comparison
    comparison: RunComparison


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the bisections of a group."""

    found: tuple[Found, ...] = ()
    left: tuple[Confirmed, ...] = ()  # no version was found for these
    remarks: tuple[str, ...] = ()  # why not


def clearest(confirmed: Sequence[Confirmed]) -> Confirmed:
    """Return the change with the largest effect relative to its interval. Changes of status come last."""
    return max(confirmed, key=_clearness)


def _clearness(one: Confirmed) -> float:
    ratio = one.ratio
    if ratio is None or ratio.low <= 0:
        return 0.0
    return abs(math.log(ratio.value)) / max(math.log(ratio.high / ratio.low), _LEAST_WIDTH)


def request_of(case: Case, request: RunRequest) -> RunRequest:
    """Return the request of a night, narrowed to one case."""
    return msgspec.structs.replace(request, patterns=(case.model,), suites=(), axes=request.axes.only(case))


class _Shared(msgspec.Struct, frozen=True, kw_only=True):
    decided: Decided
    request: RunRequest
    on_record: OnRecord
    on_step: OnStep


def explain(
    decided: Decided,
    request: RunRequest,
    folders: Sequence[Path],
    *,
    on_record: OnRecord = ignore,
    on_step: OnStep = ignore,
) -> Explained:
    """Find the versions that caused the confirmed changes. A failure becomes a remark, and does not stop the others.

    Args:
        decided: the result of an A/B of two SPECs.
        request: the request of the night.
        folders: one for each bisection. Measurements that they hold are not repeated.
        on_record: called with each record.
        on_step: called with each verdict.
    """
    work = _Shared(decided=decided, request=request, on_record=on_record, on_step=on_step)
    try:
        versions = candidates(decided.sides.good, decided.sides.bad)
    except NothingBetween:
        versions = (decided.sides.good, decided.sides.bad)
        if not decided.sides.is_part:
            return Explained(found=(_direct(decided),))
    except UsageError as error:
        return Explained(left=decided.confirmed, remarks=(f"not bisected: {one_line(error)}",))
    found: list[Found] = []
    remarks: list[str] = []
    left, given_up = list(decided.confirmed), list[Confirmed]()
    for folder in folders:
        open_ones = [one for one in left if one not in given_up]
        if not open_ones:
            break
        target = clearest(open_ones)
        given_up.append(target)
        try:
            for one in _culprits(work, target, versions, folder, remarks):
                found = joined(found, one)
                left = [each for each in left if each not in one.blamed.explains]
        except TorchzooError as error:
            remarks.append(f"{target.label} could not be bisected: {one_line(error)}")
    open_ones = [one for one in left if one not in given_up]
    if open_ones:
        remarks.append(f"not bisected, after {len(folders)} bisections: {', '.join(one.label for one in open_ones)}")
    return Explained(found=tuple(found), left=tuple(left), remarks=tuple(remarks))


def joined(found: Sequence[Found], new: Found) -> list[Found]:
    """Return `found` with `new`, merged if a bisection ended at a known culprit.

    The figures are those of `new`; changes that only the earlier culprit explains keep theirs.
    """
    key = (new.blamed.before, new.blamed.specs)
    known = next((one for one in found if (one.blamed.before, one.blamed.specs) == key), None)
    if known is None:
        return [*found, new]
    effects = {(one.case, one.kind): one for one in (*known.effects, *new.effects)}
    blamed = msgspec.structs.replace(
        new.blamed,
        probability=max(known.blamed.probability, new.blamed.probability),
        explains=tuple(dict.fromkeys((*known.blamed.explains, *new.blamed.explains))),
        inside=known.blamed.inside or new.blamed.inside,
    )
    both = Found(blamed=blamed, effects=tuple(effects.values()), comparison=new.comparison)
    return [both if one is known else one for one in found]


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


def _culprits(
    work: _Shared, target: Confirmed, versions: tuple[str, ...], folder: Path, remarks: list[str]
) -> Iterator[Found]:
    """Yield the culprits of one bisection. If there is none, the reason is added to `remarks`."""
    result = _bisected(work, target, versions, folder)
    if not result.culprits:
        remarks.append(_why_none(target, result))
    for number, culprit in enumerate(result.culprits, start=1):
        found = _examined(work, culprit, target, folder / f"culprit-{number}")
        if _is_refuted(found.comparison, culprit, target):
            spec = culprit.specs[-1]
            remarks.append(f"{target.label}: {spec} was suspected; measured again, it is like the version before it")
        else:
            yield found


def _bisected(work: _Shared, target: Confirmed, versions: tuple[str, ...], folder: Path) -> Result:
    is_begun = (folder / "bisect.json").is_file()
    with BisectLog(folder, resume=is_begun) as log:
        asked = Asked(
            good=versions[0],
            bad=versions[-1],
            versions=versions,
            request=request_of(target.case, work.request),
            kind=target.kind,
        )
        if is_begun:
            before = log.asked()
            if msgspec.structs.replace(asked, versions=before.versions) != before:  # an index may offer others by now
                raise StoreError(f"{folder} holds another bisection, begun by an earlier call: remove this folder")
            asked = before
        else:
            log.begin(asked)
        judge = make_judge(asked, folder / "records", work.on_record)
        return Follower(asked=asked, log=log, judge=judge, show=work.on_step).follow()


def _examined(work: _Shared, culprit: Culprit, target: Confirmed, folder: Path) -> Found:
    """Measure the effect of a culprit on each confirmed case. The bisected case always counts as explained."""
    confirmed = work.decided.confirmed
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
