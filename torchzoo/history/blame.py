"""From what an A/B confirmed to the versions that did it: bisections, and for each culprit an A/B over all cases.

The case with the clearest effect is bisected. The culprit and the version before it are then measured on all confirmed
cases, which says what else it explains. What is left is bisected again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from torchzoo.analysis.compare import Change, RunComparison
from torchzoo.analysis.findings import Metric
from torchzoo.case import Case
from torchzoo.errors import TorchzooError, UsageError, one_line
from torchzoo.history.bisect_log import Asked, BisectLog
from torchzoo.history.bisection import Answer, Evidence, Judge, Verdict
from torchzoo.history.candidates import NothingBetween, about_commit, candidates
from torchzoo.history.confirm import Decided, changes_for_the_worse, compare, measure_pair
from torchzoo.history.culprits import Culprit, Follower, Result, Step
from torchzoo.history.judge import AbJudge
from torchzoo.history.nights import Blamed, Confirmed
from torchzoo.history.proposals import Kind
from torchzoo.history.turns import OnRecord, ignore
from torchzoo.run.request import RunRequest
from torchzoo.store import read_run

#: The most bisections of a night.
MOST_BISECTIONS = 3
#: Interval widths (of logarithms) below this are as clear as this: memory hardly varies.
_LEAST_WIDTH = 1e-3

OnStep = Callable[[Step], None]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A culprit with the comparison that shows what it did."""

    blamed: Blamed
    comparison: RunComparison


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What the bisections of a group found."""

    found: tuple[Found, ...] = ()
    left: tuple[Confirmed, ...] = ()  # no version was found for these
    remarks: tuple[str, ...] = ()  # why not


class StatusJudge(AbJudge):
    """Judges versions by what becomes of the case: whether it fails, is incorrect, is unsteady or leaks.

    Args:
        kind: what became of it in the bad version.
        asked: see `AbJudge`.
        folder: see `AbJudge`.
        on_record: see `AbJudge`.
    """

    def __init__(self, kind: Kind, asked: Asked, folder: Path, on_record: OnRecord = ignore) -> None:
        super().__init__(asked, folder, on_record)
        self._kind = kind

    def _evidence(self, good: str, midpoint: str, comparison: RunComparison, folder: Path) -> Evidence:
        base, candidate = Path(comparison.base), Path(comparison.candidate)
        changes = changes_for_the_worse(comparison, read_run(base), read_run(candidate), night="")
        skipped = next((one for one in comparison.changes if one.change is Change.NEWLY_SKIPPED), None)
        if skipped is not None:
            return Evidence(verdict=Verdict.SKIPPED, reason=skipped.candidate, records=str(folder))
        is_bad = any(one.kind is self._kind for one in changes)
        reason = next((one.words for one in changes if one.kind is self._kind), "")
        return Evidence(verdict=Verdict.BAD if is_bad else Verdict.GOOD, reason=reason, records=str(folder))


def make_judge(kind: Kind, asked: Asked, folder: Path, on_record: OnRecord) -> Judge:
    """What judges versions for a change of this kind, and keeps its records in `folder`."""
    if kind.metric is None:
        return StatusJudge(kind, asked, folder, on_record)
    return AbJudge(asked, folder, on_record)


def clearest(confirmed: Sequence[Confirmed]) -> Confirmed:
    """The change with the largest effect for the width of its interval. A change of status comes last."""
    return max(confirmed, key=_clearness)


def _clearness(one: Confirmed) -> float:
    ratio = one.ratio
    if ratio is None or ratio.low <= 0:
        return 0.0
    return abs(math.log(ratio.value)) / max(math.log(ratio.high / ratio.low), _LEAST_WIDTH)


def request_of(case: Case, request: RunRequest) -> RunRequest:
    """The request of a night, narrowed to one case."""
    axes = msgspec.structs.replace(
        request.axes,
        modes=(case.mode,),
        devices=(case.device,),
        backends=(case.backend,),
        precisions=(case.precision,),
        memory_formats=(case.memory_format,),
        compile_scope=case.compile_scope,
        batch_sizes=(case.batch_size,),
        seed=case.seed,
        repeats=1,
    )
    return msgspec.structs.replace(request, patterns=(case.model,), suites=(), axes=axes)


class _Work(msgspec.Struct, frozen=True, kw_only=True):
    """What all bisections of a group share."""

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
    """The versions that did what was confirmed. What can't be found out is a remark, and costs nothing else.

    Args:
        decided: what an A/B of two SPECs says.
        request: of the night.
        folders: one for each bisection. What they hold is not measured again.
        on_record: is told of each record.
        on_step: is told of each verdict.
    """
    work = _Work(decided=decided, request=request, on_record=on_record, on_step=on_step)
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
                found.append(one)
                left = [each for each in left if each not in one.blamed.explains]
        except TorchzooError as error:
            remarks.append(f"{target.label} could not be bisected: {one_line(error)}")
    open_ones = [one for one in left if one not in given_up]
    if open_ones:
        remarks.append(f"not bisected, after {len(folders)} bisections: {', '.join(one.label for one in open_ones)}")
    return Explained(found=tuple(found), left=tuple(left), remarks=tuple(remarks))


def _direct(decided: Decided) -> Found:
    """Tonight's version is the culprit: none is between it and the good one."""
    blamed = Blamed(
        before=decided.sides.good,
        specs=(decided.sides.bad,),
        probability=1.0,
        about=about_commit(decided.sides.bad),
        explains=decided.confirmed,
    )
    return Found(blamed=blamed, comparison=decided.comparison)


def _culprits(
    work: _Work, target: Confirmed, versions: tuple[str, ...], folder: Path, remarks: list[str]
) -> Iterator[Found]:
    """The culprits of one bisection. If there is none, `remarks` gets the reason."""
    result = _bisected(work, target, versions, folder)
    if not result.culprits:
        remarks.append(_why_none(target, result))
    for number, culprit in enumerate(result.culprits, start=1):
        yield _examined(work, culprit, target, folder / f"culprit-{number}")


def _bisected(work: _Work, target: Confirmed, versions: tuple[str, ...], folder: Path) -> Result:
    is_begun = (folder / "bisect.json").is_file()
    with BisectLog(folder, resume=is_begun) as log:
        if is_begun:
            asked = log.asked()
        else:
            asked = Asked(
                good=versions[0],
                bad=versions[-1],
                versions=versions,
                request=request_of(target.case, work.request),
                metric=target.kind.metric or Metric.LATENCY,
            )
            log.begin(asked)
        judge = make_judge(target.kind, asked, folder / "records", work.on_record)
        return Follower(asked=asked, log=log, judge=judge, show=work.on_step).follow()


def _examined(work: _Work, culprit: Culprit, target: Confirmed, folder: Path) -> Found:
    """What a culprit did to each of the confirmed cases. The case that was bisected is its own in any case."""
    confirmed = work.decided.confirmed
    cases = tuple(dict.fromkeys(one.case for one in confirmed))
    base, candidate = measure_pair(culprit.before, culprit.specs[-1], cases, work.request, folder, work.on_record)
    comparison = compare(base, candidate)
    worse = {(one.case, one.kind) for one in changes_for_the_worse(comparison, base, candidate, night="")}
    blamed = Blamed(
        before=culprit.before,
        specs=culprit.specs,
        probability=culprit.probability,
        about=about_commit(culprit.specs[-1]),
        explains=tuple(one for one in confirmed if one is target or (one.case, one.kind) in worse),
    )
    return Found(blamed=blamed, comparison=comparison)


def _why_none(target: Confirmed, result: Result) -> str:
    reasons = {
        Answer.UNDECIDED: "the verdicts contradict each other",
        Answer.UNMEASURABLE: f"the bad version could not be judged: {result.reason}",
    }
    why = reasons.get(result.ended, "the bad version does not differ from the good one when they are measured again")
    return f"no version was found for {target.label}: {why}"
