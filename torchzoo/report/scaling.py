"""How steps scale over ranks: the time, throughput, memory and collectives of cases with several ranks."""

from __future__ import annotations

from collections.abc import Sequence

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


class CollectiveFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives of one kind in a step."""

    name: str
    calls: int
    bytes: int | None  # None: the profiler did not tell
    bus_bytes_per_s: Estimate | None
    ceiling_bytes_per_s: float | None  # what `torchzoo doctor --peaks` measured on as many devices


def collective_figures(found: Sequence[Collective], world: int, device_name: str) -> list[CollectiveFigures]:
    """Return the figures of each kind of collective, by the bytes that they move, most first.

    Raises:
        PeaksFileError: the file of measured peaks can't be read.
    """
    figures = [
        CollectiveFigures(
            name=one.name,
            calls=one.calls,
            bytes=one.bytes,
            bus_bytes_per_s=_bus_bytes_per_s(one, world),
            ceiling_bytes_per_s=bus_ceiling_bytes_per_s(device_name, world, one.name),
        )
        for one in found
    ]
    return sorted(figures, key=lambda one: -(one.bytes or 0))


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


# --- document ---

HEADINGS = (
    "case",
    "step",
    "a device",
    "weak scaling",
    "strong scaling",
    "exposed communication",
    "collectives of a step",
    "spread of ranks",
    "memory of ranks",
)


def document(results: Sequence[CaseResult]) -> list[Block]:
    """Return a table with a row for each case with several ranks."""
    return section("Scaling over ranks", table(HEADINGS, map(_row, scalings(results))).used())


def _row(one: Scaling) -> tuple[str, ...]:
    return (
        one.case.label(),
        units.latency(one.figures.latency_s),
        units.rate(one.samples_per_s_and_device, one.sample_unit),
        _ratio_text(one.weak),
        _ratio_text(one.strong),
        "" if one.exposed is None else units.share(one.exposed),
        "; ".join(map(_collective, one.collectives)),
        f"{one.spread:.1%}",
        _memory(one.least_bytes, one.most_bytes),
    )


def _ratio_text(estimate: Estimate | None) -> str:
    return "" if estimate is None else units.speedup(estimate)


def _collective(one: CollectiveFigures) -> str:
    """`14 all_reduce, 418 MiB, bus 312 GB/s [300, 320], 83% of the measured peak`."""
    parts = [f"{one.calls} {one.name}"]
    parts += [units.size(one.bytes)] if one.bytes is not None else []
    if one.bus_bytes_per_s is not None:
        reached = ""
        if one.ceiling_bytes_per_s is not None:
            reached = f", {one.bus_bytes_per_s.value / one.ceiling_bytes_per_s:.0%} of the measured peak"
        parts.append(f"bus {units.bandwidth(one.bus_bytes_per_s)}{reached}")
    return ", ".join(parts)


def _memory(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return ""
    return units.size(most) if least == most else f"{units.size(least)} to {units.size(most)}"
