"""How steps scale over ranks: the time, throughput, memory and collectives of cases with several ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from torchzoo import stats
from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import CaseFigures, VariantFigures
from torchzoo.analysis.peaks import bus_ceiling_bytes_per_s
from torchzoo.case import EAGER, Case, Parallel
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Collective, CommunicationStep
from torchzoo.report import units
from torchzoo.report.document import Block, section, table
from torchzoo.stats import Estimate

# --- collectives: their bandwidth, and how much of a step nothing covers ---


class CollectiveFigures(NamedTuple):
    """The collectives of one kind in a step, and their bandwidth."""

    collective: Collective
    bus_bytes_per_s: Estimate | None
    ceiling_bytes_per_s: float | None  # what `torchzoo doctor --peaks` measured on as many devices


def collective_figures(found: Sequence[Collective], world: int, device_name: str) -> list[CollectiveFigures]:
    """Return the figures of each kind of collective, by the bytes that they move, most first."""
    return [
        CollectiveFigures(one, _bus_bytes_per_s(one, world), bus_ceiling_bytes_per_s(device_name, world, one.name))
        for one in sorted(found, key=lambda one: -(one.bytes or 0))
    ]


def _bus_bytes_per_s(one: Collective, world: int) -> Estimate | None:
    if not one.bytes or not one.step_s or min(one.step_s) <= 0:
        return None
    moved = stats.bus_factor(one.name, world) * one.bytes
    return stats.median_estimate([moved / step_s for step_s in one.step_s])


def exposed_share(steps: Sequence[CommunicationStep]) -> Estimate | None:
    """Return the share of a rank's step in which only collectives run; None without profiled steps."""
    return stats.median_estimate([step.exposed_s / step.wall_s for step in steps]) if steps else None


# --- cases with several ranks beside the same case with one ---


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a case with several ranks. A ratio is None if its case with one rank was not measured."""

    case: Case  # of eager beside a candidate: that case with the eager backend
    of_case: CaseFigures
    variant: str
    figures: VariantFigures  # of the variant
    weak: Estimate | None  # t1 / tN at the same batch for each rank: 1 is perfect
    strong: Estimate | None  # t1 / tN at the same batch for all ranks together: N is perfect


def scalings(results: Sequence[CaseResult]) -> list[Scaling]:
    """Return the figures of cases with several ranks, in their order, for the candidate and for eager.

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
    figures = variants[case]
    shares_batch = case.parallel is Parallel.TP
    own = msgspec.structs.replace(case, world=1, parallel=Parallel.NONE)
    whole = msgspec.structs.replace(own, batch_size=case.batch_size * (1 if shares_batch else case.world))
    return Scaling(
        case=case,
        of_case=of_case,
        variant=variant,
        figures=figures,
        weak=None if shares_batch else _ratio(variants.get(own), figures),
        strong=_ratio(variants.get(whole), figures),
    )


def _ratio(one: VariantFigures | None, several: VariantFigures) -> Estimate | None:
    return None if one is None else stats.quotient(one.latency_s, several.latency_s)


# --- document ---

HEADINGS = (
    *("case", "step", "a device", "weak scaling", "strong scaling", "exposed communication", "collectives of a step"),
    *("spread of ranks", "memory of ranks"),
)


def document(results: Sequence[CaseResult]) -> list[Block]:
    """Return a table with a row for each case with several ranks."""
    return section("Scaling over ranks", table(HEADINGS, map(_row, scalings(results))).used())


def _row(one: Scaling) -> tuple[str, ...]:
    case, measured = one.case, one.of_case.measured
    weak, strong = ("" if ratio is None else units.speedup(ratio) for ratio in (one.weak, one.strong))
    exposed = [exposed_share(rank.communication.get(one.variant, ())) for rank in measured.ranks]
    most_exposed = max(filter(None, exposed), key=lambda share: share.value, default=None)
    steps_s = [rank.step_s[one.variant] for rank in measured.ranks if one.variant in rank.step_s]
    spread = (max(steps_s) - min(steps_s)) / max(steps_s) if steps_s else 0.0
    peaks = [rank.memory[one.variant].device_peak_allocated_bytes for rank in measured.ranks]
    known = sorted(peak for peak in peaks if peak is not None)
    found = collective_figures(one.figures.raw.collectives, case.world, measured.device_name)
    return (
        case.label(),
        units.latency(one.figures.latency_s),
        units.rate(one.of_case.samples_per_s(one.figures) / case.world, measured.sample_unit),
        weak,
        strong,
        "" if most_exposed is None else units.share(most_exposed),
        "; ".join(map(_collective, found)),
        f"{spread:.1%}",
        " to ".join(dict.fromkeys(units.size(end) for end in known[:1] + known[-1:])),
    )


def _collective(one: CollectiveFigures) -> str:
    """`14 all_reduce, 418 MiB, bus 312 GB/s [300, 320], 83% of the measured peak`."""
    parts = [f"{one.collective.calls} {one.collective.name}"]
    parts += [units.size(one.collective.bytes)] if one.collective.bytes is not None else []
    if one.bus_bytes_per_s is not None:
        parts.append(f"bus {units.bandwidth(one.bus_bytes_per_s)}")
        if one.ceiling_bytes_per_s is not None:
            parts.append(f"{one.bus_bytes_per_s.value / one.ceiling_bytes_per_s:.0%} of the measured peak")
    return ", ".join(parts)
