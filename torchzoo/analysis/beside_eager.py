"""Compare several backends of the same cases with one figure of eager, and find where eager's figures disagree."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo.analysis.cases import CaseResult
from torchzoo.case import Case
from torchzoo.stats import Estimate


class BesideEager(msgspec.Struct, frozen=True, kw_only=True):
    """A case with each of its backends. Eager's figure was measured alone, or else is the middle one of all."""

    case: Case  # in eager
    eager: Estimate | None  # latency; None: not measured
    eagers: tuple[Estimate, ...]  # measured alone, and in turns with each backend
    backends: dict[str, CaseResult]  # by what compiled it: `inductor`, `inductor scope=step`

    @property
    def disagrees(self) -> bool:
        """Whether two of eager's figures have disjoint intervals."""
        sure = [one for one in self.eagers if one.has_interval]
        return bool(sure) and max(one.low for one in sure) > min(one.high for one in sure)


def beside_eager(results: Sequence[CaseResult]) -> list[BesideEager]:
    """A row for each case in eager."""
    groups: dict[Case, list[CaseResult]] = {}
    for result in results:
        groups.setdefault(result.case.in_eager(), []).append(result)
    return [_row(case, some) for case, some in groups.items()]


def has_several_backends(results: Sequence[CaseResult]) -> bool:
    """Whether a case has several backends beside eager."""
    return any(len(one.backends) > 1 for one in beside_eager(results))


def _row(case: Case, results: Sequence[CaseResult]) -> BesideEager:
    eagers = {one.has_candidate: one.figures.eager.latency_s for one in results if one.figures is not None}
    every = [one.figures.eager.latency_s for one in results if one.figures is not None]
    middle = sorted(every, key=lambda one: one.value)[(len(every) - 1) // 2] if every else None
    return BesideEager(
        case=case,
        eager=eagers.get(False, middle),
        eagers=tuple(every),
        backends={result.case.compiled_by(): result for result in results if result.has_candidate},
    )
