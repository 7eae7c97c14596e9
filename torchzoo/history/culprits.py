"""Find the first bad version between a good and a bad one, and further culprits if the change has several steps.

A search ends with one culprit, which is the good version of the next search: if the bad version still differs from it,
another culprit is between them. The searches end when no change remains. A change is a difference that the judge calls
bad. So of several steps that are each below its threshold, only the step at which their sum exceeds the threshold is
found.

The state of a bisection is in its log. So a bisection that was killed continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from torchzoo.errors import one_line
from torchzoo.history.bisect_log import Asked, BisectLog, LoggedVerdict
from torchzoo.history.bisection import (
    Conclusion,
    Ending,
    ErrorRates,
    Evidence,
    GoodFails,
    Judge,
    Judged,
    Judgement,
    Search,
    Standing,
)
from torchzoo.report import units
from torchzoo.run.experiment import ignore
from torchzoo.stats import Estimate

#: The most effort for one verdict. Effort begins with 1 and doubles as long as the verdict is inconclusive.
MOST_EFFORT = 16
#: The prior probability that no change remains after a culprit.
NOTHING_LEFT = 0.5


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict, and the most probable answer after it."""

    entry: LoggedVerdict
    best: str  # SPEC of the most probable first bad version; empty if there is probably no change
    probability: float


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the change. The first bad version is one of `specs`, which are several if versions were skipped."""

    before: str  # SPEC: the last version without this step
    specs: tuple[str, ...]
    probability: float
    ratio: Estimate | None  # of the metric: the last of `specs` over the good version of its search

    @property
    def is_exact(self) -> bool:
        return len(self.specs) == 1


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a bisection, and why it stopped."""

    culprits: tuple[Culprit, ...]
    ended: Ending  # of the last search; FOUND if the last culprit is the bad version itself
    reason: str = ""  # the last reason that the judge gave for the bad version
    left: tuple[str, ...] = ()  # UNDECIDED: the first bad version is probably one of these


class Follower(msgspec.Struct, frozen=True, kw_only=True):
    """A bisection in progress. `rates`, `confidence`: see `bisection.Search`."""

    asked: Asked
    log: BisectLog
    judge: Judge
    show: Callable[[Step], None]
    show_culprit: Callable[[Culprit], None] = ignore  # called before the search for further culprits
    rates: ErrorRates = ErrorRates()
    confidence: float = 0.95
    most_effort: int = MOST_EFFORT

    def follow(self) -> Result:
        """Judge versions until all culprits are found, or until no more can be found.

        An exception of the judge ends the bisection, unless a culprit can't be the good version of the next search.
        The log keeps earlier verdicts.
        """
        versions, entries = self.asked.versions, self.log.entries()[0]
        culprits: list[Culprit] = []
        start = 0
        while start < len(versions) - 1:
            left = versions[start:]
            search = Search(last=len(left) - 1, rates=self.rates, confidence=self.confidence)
            if culprits:
                search = msgspec.structs.replace(search, absent=NOTHING_LEFT)
            own = [one for one in entries if one.good == left[0]]
            try:
                end = self._search(search, left, own)
            except GoodFails as error:
                if not culprits:
                    raise
                return Result(culprits=tuple(culprits), ended=Ending.UNMEASURABLE, reason=one_line(error))
            if end.answer not in (Ending.FOUND, Ending.RANGE):
                reason = next((one.evidence.reason for one in reversed(own) if one.midpoint == left[-1]), "")
                some = left[end.first : end.last + 1] if end.answer is Ending.UNDECIDED else ()
                return Result(culprits=tuple(culprits), ended=end.answer, reason=reason, left=some)
            culprits.append(_culprit(left, own, end))
            start += end.last
            if start < len(versions) - 1:
                self.show_culprit(culprits[-1])
        return Result(culprits=tuple(culprits), ended=Ending.FOUND)

    def _search(self, search: Search, versions: Sequence[str], entries: list[LoggedVerdict]) -> Conclusion:
        """Judge versions until the first bad one is known. New verdicts are added to `entries`."""
        while True:
            known = State.of(versions, entries, self.most_effort)
            current = search.with_verdicts(known.judged)
            end = current.conclusion()
            if end is not None:
                return end
            for entry in self._judged(versions[0], known.next_asks(current, versions, self.asked.lanes)):
                entries.append(entry)
                now = search.with_verdicts(State.of(versions, entries, self.most_effort).judged)
                version, probability = now.best()
                self.show(Step(entry=entry, best=(*versions, "")[version], probability=probability))

    def _judged(self, good: str, asks: Sequence[Judgement]) -> Iterator[LoggedVerdict]:
        for ask, evidence in zip(asks, self.judge.judge(good, asks), strict=True):
            yield self.log.append(good, ask, evidence)


class State(msgspec.Struct, frozen=True):
    """The state of one search according to the log."""

    judged: tuple[Judged, ...]
    again: dict[str, Judgement]  # for each version that was judged, its next judgement
    pending: tuple[str, ...]  # versions whose latest verdict is inconclusive

    @classmethod
    def of(cls, versions: Sequence[str], entries: Sequence[LoggedVerdict], most_effort: int) -> State:
        """Read the entries of one search. A version that stays inconclusive at the most effort counts as skipped."""
        number = {spec: index for index, spec in enumerate(versions)}
        judged: list[Judged] = []
        again: dict[str, Judgement] = {}
        pending: dict[str, None] = {}
        for entry in entries:
            spec, verdict = entry.midpoint, entry.evidence.verdict
            if spec not in number:
                continue
            pending.pop(spec, None)
            effort = entry.effort
            if verdict is Standing.INCONCLUSIVE and 2 * effort <= most_effort:
                effort *= 2
                pending[spec] = None
            else:
                judged.append(Judged(number[spec], Standing.SKIPPED if verdict is Standing.INCONCLUSIVE else verdict))
            again[spec] = Judgement(spec, effort, entry.number + 1)
        return cls(tuple(judged), again, tuple(pending))

    def next_asks(self, search: Search, versions: Sequence[str], lanes: int) -> list[Judgement]:
        """Return the versions to judge next: first inconclusive versions that still matter."""
        first, last = search.live()
        matter = {*versions[first:last], versions[-1]}
        specs = [spec for spec in self.pending if spec in matter]
        specs += [versions[version] for version in search.midpoints(lanes)]
        return [self.again.get(spec, Judgement(spec)) for spec in dict.fromkeys(specs)][:lanes]


def _culprit(versions: Sequence[str], entries: Sequence[LoggedVerdict], end: Conclusion) -> Culprit:
    bad = [
        one.evidence
        for one in entries
        if one.midpoint == versions[end.last] and one.evidence.verdict is Standing.BAD and one.evidence.ratio
    ]
    return Culprit(
        before=versions[end.first - 1],
        specs=tuple(versions[end.first : end.last + 1]),
        probability=end.probability,
        ratio=bad[-1].ratio if bad else None,
    )


def evidence_text(evidence: Evidence) -> str:
    """Return `bad 1.100x [1.080, 1.120]`, or `skipped: the model fails`."""
    parts = [str(evidence.verdict)]
    if evidence.ratio is not None:
        parts.append(ratio_text(evidence.ratio))
    return " ".join(parts) + (f": {evidence.reason}" if evidence.reason else "")


def ratio_text(ratio: Estimate) -> str:
    """Return `1.100x [1.080, 1.120]`: the value with its interval."""
    return units.factor(ratio, decimals=3)
