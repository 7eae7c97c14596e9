"""Find the first bad version from verdicts that may be wrong, by pure functions and frozen data.

The versions are numbered from 0 to `last`. Version 0 is good, and version `last` was called bad. The hypotheses are:
version 1 is the first bad one, version 2 is, ..., version `last` is, or none is (there is no change). Their posterior
probabilities are updated with each verdict by Bayes' rule. If a verdict is wrong, later verdicts contradict it, and the
posterior recovers.

The next midpoint splits the mass of the posterior in half. With exact verdicts this is the usual bisection. (Burnashev
and Zigangirov, 1974: no other order of noisy tests needs fewer of them, up to a constant.)
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from torchzoo.analysis.judge import FAMILY_WISE_ERROR


class Standing(enum.StrEnum):
    """The verdict on a version: whether it has the change."""

    BAD = "bad"  # the change is present
    GOOD = "good"  # the change is absent
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"  # this version can't be measured


class Judged(msgspec.Struct, frozen=True):
    """A verdict on a version, by its number."""

    version: int
    verdict: Standing


class Ending(enum.StrEnum):
    FOUND = "found"
    RANGE = "range"  # only skipped versions are left between its ends
    ABSENT = "absent"  # there is no change between good and bad
    UNMEASURABLE = "unmeasurable"  # the bad version can't be measured, or its verdict stays inconclusive
    UNDECIDED = "undecided"  # the limit on verdicts is reached


class Conclusion(msgspec.Struct, frozen=True):
    """The first bad version is one of `first` to `last` (equal if it was found), with that probability."""

    answer: Ending
    first: int
    last: int
    probability: float


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a search for one first bad version, from 1 to `last`, with the verdicts so far in any order.

    The error rate is the share of wrong verdicts, both of versions with the change and of those without. The default is
    the limit of `compare`: at most one false alarm in a hundred, and a verdict `same` only if a 95% interval lies
    within the threshold, so that a change is missed on one side in at most 2.5 of a hundred.
    """

    last: int
    judged: tuple[Judged, ...] = ()
    error_rate: float = FAMILY_WISE_ERROR
    confidence: float = 0.95  # with which the search stops
    absent: float = 0.05  # the probability, before any verdict, that there is no change
    most_verdicts: int = 100  # bad or good

    @property
    def skipped(self) -> frozenset[int]:
        """The versions that can't be measured, by the latest verdict on each."""
        latest = {one.version: one.verdict for one in self.judged}
        return frozenset(version for version, verdict in latest.items() if verdict is Standing.SKIPPED)

    @property
    def _telling(self) -> list[Judged]:
        return [one for one in self.judged if one.verdict in (Standing.BAD, Standing.GOOD)]

    def posterior(self) -> list[float]:
        """Return a list of the probabilities, by version, that it is the first bad one.

        Entry 0 is 0, since the good version is good. The last entry, after all versions, is for no change.
        """
        right, wrong = math.log(1 - self.error_rate), math.log(self.error_rate)
        logs = [math.log((1 - self.absent) / self.last)] * self.last + [math.log(self.absent)]
        for one in self._telling:
            for index in range(len(logs)):  # the hypothesis that version `index + 1` is the first bad one
                expected = Standing.BAD if index + 1 <= one.version else Standing.GOOD
                logs[index] += right if one.verdict is expected else wrong
        highest = max(logs)
        weights = [math.exp(one - highest) for one in logs]
        return [0.0, *(weight / sum(weights) for weight in weights)]

    def conclusion(self) -> Conclusion | None:
        """Return the answer, or None as long as more verdicts are needed."""
        if not any(one.version == self.last for one in self._telling):
            is_skipped = self.last in self.skipped
            return Conclusion(Ending.UNMEASURABLE, 1, self.last, 0.0) if is_skipped else None
        posterior = self.posterior()
        if posterior[-1] >= self.confidence:
            return Conclusion(Ending.ABSENT, 1, self.last, posterior[-1])
        first, last = self._best_group(posterior)
        mass = sum(posterior[first : last + 1])
        if mass >= self.confidence:
            return Conclusion(Ending.FOUND if first == last else Ending.RANGE, first, last, mass)
        is_over = len(self._telling) >= self.most_verdicts or len(self.skipped) == self.last
        return self._credible(posterior) if is_over else None

    def best(self) -> tuple[int, float]:
        """Return the most probable first bad version and its probability; `last + 1` if there is probably no change."""
        posterior = self.posterior()
        absent = posterior[-1] > 1 / 2
        version = self.last + 1 if absent else max(range(1, self.last + 1), key=posterior.__getitem__)
        return version, posterior[version]

    def midpoints(self, lanes: int = 1) -> list[int]:
        """Return the versions to judge next, at most one for each slot. The bad version is the first of all.

        The midpoints cut the posterior into `lanes + 1` parts of about the same mass. A skipped version is replaced by
        a neighbour. The more versions were skipped, the larger the distance from all of them: versions that do not work
        often follow each other.
        """
        posterior = self.posterior()
        below = list(accumulate(posterior))
        chosen = [] if any(one.version == self.last for one in self.judged) else [self.last]
        parts = lanes - len(chosen) + 1
        for number in range(1, parts):
            left = [v for v in range(1, self.last + 1) if v not in self.skipped and v not in chosen]
            left = self._away_from_skipped(left, self._credible(posterior))
            if left:
                chosen.append(min(left, key=lambda version: abs(below[version] - number / parts)))
        return chosen

    def _away_from_skipped(self, versions: list[int], live: Conclusion) -> list[int]:
        """Return the versions at a distance from each skipped version, if the live range has some, else all."""
        skipped = [version for version in self.skipped if live.first <= version <= live.last]
        distance = len(skipped)
        while distance > 1:
            some = [v for v in versions if live.first <= v < live.last and all(abs(v - s) >= distance for s in skipped)]
            if some:
                return some
            distance //= 2
        return versions

    def _best_group(self, posterior: Sequence[float]) -> tuple[int, int]:
        """Return the most probable group of versions that no verdict can tell apart.

        A group ends at a version that can be measured, and all other versions in it are skipped.
        """
        lasts = [version for version in range(1, self.last + 1) if version not in self.skipped or version == self.last]
        groups = zip([1, *(last + 1 for last in lasts)], lasts, strict=False)
        return max(groups, key=lambda group: sum(posterior[group[0] : group[1] + 1]))

    def _credible(self, posterior: Sequence[float]) -> Conclusion:
        """Return the range of versions that remains when the same small mass is cut off at both ends."""
        cut = (1 - self.confidence) / 2 * (1 - posterior[-1])
        first, last = 1, self.last
        while sum(posterior[1 : first + 1]) < cut:
            first += 1
        while sum(posterior[last : self.last + 1]) < cut:
            last -= 1
        return Conclusion(Ending.UNDECIDED, first, last, sum(posterior[first : last + 1]))
