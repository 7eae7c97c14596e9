"""How a step scales over ranks: cases with several ranks beside the same case with one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo import stats
from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.collectives import CollectiveFigures, collective_figures, exposed_share
from torchzoo.analysis.figures import CaseFigures, VariantFigures
from torchzoo.case import EAGER, Case, Parallel
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
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
    shown: dict[Case, tuple[CaseFigures, str]] = {}  # with the name of a variant
    for result in results:
        figures = result.measured_figures
        if figures is None:
            continue
        if figures.candidate is None:
            shown[result.case] = (figures, EAGER_VARIANT)  # rather than eager beside a candidate
        else:
            shown.setdefault(msgspec.structs.replace(result.case, backend=EAGER), (figures, EAGER_VARIANT))
            shown[result.case] = (figures, CANDIDATE_VARIANT)
    variants = {
        case: figures.eager if name == EAGER_VARIANT else figures.shown for case, (figures, name) in shown.items()
    }
    return [_scaling(case, figures, name, variants) for case, (figures, name) in shown.items() if case.world > 1]


def _scaling(case: Case, of_case: CaseFigures, variant: str, variants: dict[Case, VariantFigures]) -> Scaling:
    assert case.batch_size is not None
    measured, figures = of_case.measured, variants[case]
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
        samples_per_s_and_device=of_case.samples_per_s(figures) / case.world,
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
