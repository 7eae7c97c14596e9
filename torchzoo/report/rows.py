"""A record as the figures that tables show."""

from __future__ import annotations

import msgspec

from torchzoo import stats
from torchzoo.record import Block, Failed, Measured, Record, Skipped, StopReason, VariantResult
from torchzoo.stats import CANDIDATE_VARIANT, EAGER_VARIANT, Estimate


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one variant of a case comes to."""

    latency_s: Estimate
    outliers: int
    steps_per_s: Estimate
    raw: VariantResult


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured record. `candidate` and `speedup` are None for eager alone."""

    record: Record
    measured: Measured
    eager: Figures
    candidate: Figures | None
    speedup: Estimate | None


def row(record: Record) -> Row | None:
    """The figures of a measured record; None for one that was skipped or failed."""
    measured = record.outcome
    if not isinstance(measured, Measured):
        return None
    has_candidate = CANDIDATE_VARIANT in measured.variants
    return Row(
        record=record,
        measured=measured,
        eager=_figures(measured, EAGER_VARIANT),
        candidate=_figures(measured, CANDIDATE_VARIANT) if has_candidate else None,
        speedup=stats.speedup(measured.blocks) if has_candidate else None,
    )


def _figures(measured: Measured, variant: str) -> Figures:
    result = measured.variants[variant]
    blocks: list[Block] = [block for block in measured.blocks if block.variant == variant]
    return Figures(
        latency_s=stats.latency_s(blocks, variant),
        outliers=stats.outlier_count([sample for block in blocks for sample in block.samples_s]),
        steps_per_s=stats.steps_per_s(result.back_to_back),
        raw=result,
    )


def remarks(measured: Measured) -> list[str]:
    """What a reader of the figures must know, in words."""
    said = []
    if measured.stop_reason is StopReason.STABLY_NOISY:
        said.append("stably noisy: the interval would be far above 1% even at the time limit")
    if measured.stop_reason is StopReason.TIME_LIMIT:
        said.append("stopped at the time limit before the interval came down to 1%")
    if measured.host_syncs:
        said.append(f"its step waits for the device by nature: {measured.host_syncs}")
    for name, result in measured.variants.items():
        if not result.result_is_finite:
            said.append(f"{name}: the step's result is not finite (NaN or infinity)")
        if result.compilation and result.compilation.cudagraph_skips:
            said.append(f"{name}: CUDA graphs were skipped {result.compilation.cudagraph_skips} times")
        if result.compilation and result.compilation.graph_breaks:
            said.append(f"{name}: {sum(result.compilation.graph_breaks.values())} graph breaks")
    return said


def in_a_line(record: Record) -> str:
    """The outcome of one record, for a progress line."""
    from torchzoo.report import units

    outcome = record.outcome
    if isinstance(outcome, Skipped):
        return f"skipped: {outcome.reason}"
    if isinstance(outcome, Failed):
        return f"FAILED ({outcome.kind} in {outcome.stage}): {outcome.message}"
    figures = row(record)
    assert figures is not None
    if figures.candidate is None or figures.speedup is None:
        return units.latency(figures.eager.latency_s)
    return f"{units.latency(figures.candidate.latency_s)}, {units.speedup(figures.speedup)} of eager"
