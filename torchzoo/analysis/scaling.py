"""How a step scales over ranks: cases with several ranks beside the same case with one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo import stats
from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.collectives import CollectiveFigures, collective_figures, exposed_share
from torchzoo.analysis.figures import CaseFigures, VariantFigures
from torchzoo.case import EAGER, Case, Parallel
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Measured
from torchzoo.stats import Estimate


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """One case with several ranks. Ratios are None where the case with one rank that they need was not measured."""

    case: Case  # of eager beside a candidate: that case with the eager backend
    figures: VariantFigures
    sample_unit: str
    samples_per_s_and_device: float
    weak: Estimate | None  # t1 / tN at the same batch for each rank: 1 is perfect
    strong: Estimate | None  # t1 / tN at the same batch for all ranks together: N is perfect
    spread: float  # of the ranks' own median step times: (slowest - fastest) / slowest
    least_bytes: int | None  # the device's peak of the least loaded rank
    most_bytes: int | None  # and of the most loaded one
    exposed: Estimate | None  # share of a step with communication that nothing covers, of the rank with most of it
    collectives: list[CollectiveFigures]


def scalings(results: Sequence[CaseResult]) -> list[Scaling]:
    """The cases with several ranks, in their order. A case with a candidate has eager's figures, too.

    Eager is not repeated if it was also measured by itself, or beside another candidate.
    """
    measured = {result.case: figures for result in results if (figures := result.measured_figures) is not None}
    by_case: dict[Case, tuple[CaseFigures, str]] = {}
    for case, figures in measured.items():
        by_case.setdefault(_of_eager(case), (figures, EAGER_VARIANT))
        if figures.candidate is not None:
            by_case[case] = (figures, CANDIDATE_VARIANT)
        elif case.backend == EAGER:
            by_case[case] = (figures, EAGER_VARIANT)  # by itself rather than beside a candidate
    variants = {case: _variant(*found) for case, found in by_case.items()}
    return [
        _scaling(case, figures.measured, figures.samples_per_s(variants[case]), variant, variants)
        for case, (figures, variant) in by_case.items()
        if case.world > 1
    ]


def _of_eager(case: Case) -> Case:
    return msgspec.structs.replace(case, backend=EAGER)


def _variant(figures: CaseFigures, name: str) -> VariantFigures:
    return figures.eager if name == EAGER_VARIANT else figures.shown


def _scaling(
    case: Case, measured: Measured, samples_per_s: float, variant: str, variants: dict[Case, VariantFigures]
) -> Scaling:
    assert case.batch_size is not None
    figures = variants[case]
    shares_batch = case.parallel is Parallel.TP
    own = msgspec.structs.replace(case, world=1, parallel=Parallel.NONE)
    whole = msgspec.structs.replace(own, batch_size=case.batch_size * (1 if shares_batch else case.world))
    steps_s = [rank.step_s[variant] for rank in measured.ranks if variant in rank.step_s]
    peaks = [peak for rank in measured.ranks if (peak := rank.memory[variant].device_peak_allocated_bytes) is not None]
    found = [exposed_share(rank.communication.get(variant, ())) for rank in measured.ranks]
    exposed = [one for one in found if one is not None]
    return Scaling(
        case=case,
        figures=figures,
        sample_unit=measured.sample_unit,
        samples_per_s_and_device=samples_per_s / case.world,
        weak=None if shares_batch else _ratio(variants.get(own), figures),
        strong=_ratio(variants.get(whole), figures),
        spread=(max(steps_s) - min(steps_s)) / max(steps_s) if steps_s else 0.0,
        least_bytes=min(peaks, default=None),
        most_bytes=max(peaks, default=None),
        exposed=max(exposed, key=lambda one: one.value, default=None),
        collectives=collective_figures(figures.raw.collectives, case.world, measured.device_name),
    )


def _ratio(one: VariantFigures | None, several: VariantFigures) -> Estimate | None:
    return None if one is None else stats.quotient(one.latency_s, several.latency_s)
