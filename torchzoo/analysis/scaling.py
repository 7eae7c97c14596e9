"""How a step scales over ranks: cases with several ranks beside the same case with one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo import stats
from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.collectives import CollectiveFigures, collective_figures, exposed_share
from torchzoo.analysis.figures import CaseFigures
from torchzoo.case import Case, Parallel
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.stats import Estimate


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """One case with several ranks. Ratios are None where the case with one rank that they need was not measured."""

    case: Case
    figures: CaseFigures
    samples_per_s_and_device: float
    weak: Estimate | None  # t1 / tN at the same batch for each rank: 1 is perfect
    strong: Estimate | None  # t1 / tN at the same batch for all ranks together: N is perfect
    spread: float  # of the ranks' own median step times: (slowest - fastest) / slowest
    least_bytes: int | None  # the device's peak of the least loaded rank
    most_bytes: int | None  # and of the most loaded one
    exposed: Estimate | None  # share of a step with communication that nothing covers, of the rank with most of it
    collectives: list[CollectiveFigures]


def scalings(results: Sequence[CaseResult]) -> list[Scaling]:
    """The cases with several ranks, in their order."""
    alone = {
        result.case: result.measured_figures
        for result in results
        if result.case.world == 1 and result.measured_figures is not None
    }
    return [
        _scaling(result.case, figures, alone)
        for result in results
        if result.case.world > 1 and (figures := result.measured_figures) is not None
    ]


def _scaling(case: Case, figures: CaseFigures, alone: dict[Case, CaseFigures]) -> Scaling:
    assert case.batch_size is not None
    variant = EAGER_VARIANT if figures.candidate is None else CANDIDATE_VARIANT
    shares_batch = case.parallel is Parallel.TP
    own = msgspec.structs.replace(case, world=1, parallel=Parallel.NONE)
    whole = msgspec.structs.replace(own, batch_size=case.batch_size * (1 if shares_batch else case.world))
    ranks = figures.measured.ranks
    steps_s = [rank.step_s[variant] for rank in ranks if variant in rank.step_s]
    peaks = [peak for rank in ranks if (peak := rank.memory[variant].device_peak_allocated_bytes) is not None]
    found = [exposed_share(rank.communication.get(variant, ())) for rank in ranks]
    exposed = [one for one in found if one is not None]
    return Scaling(
        case=case,
        figures=figures,
        samples_per_s_and_device=figures.samples_per_s(figures.shown) / case.world,
        weak=None if shares_batch else _ratio(alone.get(own), figures),
        strong=_ratio(alone.get(whole), figures),
        spread=(max(steps_s) - min(steps_s)) / max(steps_s) if steps_s else 0.0,
        least_bytes=min(peaks, default=None),
        most_bytes=max(peaks, default=None),
        exposed=max(exposed, key=lambda one: one.value, default=None),
        collectives=collective_figures(figures.shown.raw.collectives, case.world, figures.measured.device_name),
    )


def _ratio(one: CaseFigures | None, several: CaseFigures) -> Estimate | None:
    return None if one is None else stats.quotient(one.shown.latency_s, several.shown.latency_s)
