"""A record as the figures that tables show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from torchzoo import stats
from torchzoo.record import (
    Block,
    Case,
    CheckStatus,
    Failed,
    Measured,
    Record,
    Skipped,
    StopReason,
    VariantResult,
)
from torchzoo.report import growth
from torchzoo.report.throttling import slowdowns, throttled_shares
from torchzoo.stats import CANDIDATE_VARIANT, EAGER_VARIANT, Estimate

#: Of the latency pass: less than that of it at lowered clocks is not worth a remark.
LEAST_THROTTLED = 0.01

#: A check's verdict, for people.
CHECK_WORDS = {
    CheckStatus.CORRECT: "correct",
    CheckStatus.INCORRECT: "INCORRECT",
    CheckStatus.NONDETERMINISTIC: "nondeterministic, not checked",
    CheckStatus.REFERENCE_FAILED: "reference failed, not checked",
}


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one variant of a case comes to."""

    latency_s: Estimate
    outliers: int
    steps_per_s: Estimate
    raw: VariantResult


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured case. `candidate` and `speedup` are None for eager alone.

    Where several processes measured it, `record`, `measured` and what figures hold `raw` are of the one whose latency
    is the middle one; estimates and counts are over all.
    """

    record: Record
    measured: Measured
    eager: Figures
    candidate: Figures | None
    speedup: Estimate | None
    processes: int = 1


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


def by_case(records: Iterable[Record]) -> dict[Case, list[Record]]:
    """Records by case, the number of the repeat set to 0, in the order in which cases first come."""
    found: dict[Case, list[Record]] = {}
    for record in records:
        found.setdefault(msgspec.structs.replace(record.case, repeat=0), []).append(record)
    return found


def measured_of(records: Iterable[Record]) -> list[Measured]:
    """The outcomes of those that were measured."""
    return [record.outcome for record in records if isinstance(record.outcome, Measured)]


def repeated(records: Sequence[Record]) -> Row:
    """The figures of one case from the processes that measured it; records of other outcomes are left out.

    What differs between processes is part of the intervals (`stats.processes_estimate`).

    Raises:
        ValueError: none of the records is measured.
    """
    rows = [found for found in map(row, records) if found is not None]
    if not rows:
        raise ValueError("no measured record to show")
    if len(rows) == 1:
        return rows[0]
    middle = sorted(rows, key=lambda one: (one.candidate or one.eager).latency_s.value)[(len(rows) - 1) // 2]
    return msgspec.structs.replace(
        middle,
        eager=_over_all(rows, EAGER_VARIANT, middle.eager),
        candidate=_over_all(rows, CANDIDATE_VARIANT, middle.candidate) if middle.candidate else None,
        speedup=stats.processes_estimate([stats.quad_ratios(one.measured.blocks) for one in rows])
        if middle.candidate
        else None,
        processes=len(rows),
    )


def _over_all(rows: Sequence[Row], variant: str, middle: Figures) -> Figures:
    measured = [one.measured for one in rows]
    every = [one.eager if variant == EAGER_VARIANT else one.candidate for one in rows]
    rates = [[run.steps / run.elapsed_s for run in one.variants[variant].back_to_back] for one in measured]
    return Figures(
        latency_s=stats.processes_estimate([stats.block_times_s(one.blocks, variant) for one in measured]),
        outliers=sum(figures.outliers for figures in every if figures is not None),
        steps_per_s=stats.processes_estimate(rates),
        raw=middle.raw,
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
    if measured.device_was_busy:
        said.append("other processes' work kept the device busy: the figures are not of this case alone")
    if measured.host_syncs:
        said.append(f"its step waits for the device by nature: {measured.host_syncs}")
    said += _of_check(measured)
    said += _of_device(measured)
    said += _of_work(measured)
    for name, result in measured.variants.items():
        said += [f"{name}: {remark}" for remark in _of_variant(result)]
    if measured.api is not None and measured.api.reason:
        said.append(f"the API it touches is not known in full: {measured.api.reason}")
    return said


def _of_variant(result: VariantResult) -> list[str]:
    said = []
    if result.breakdown and result.breakdown.problem:
        said.append(f"no breakdown: {result.breakdown.problem}")
    if not result.result_is_finite:
        said.append("the step's result is not finite (NaN or infinity)")
    if result.compilation and result.compilation.cudagraph_skips:
        said.append(f"CUDA graphs were skipped {result.compilation.cudagraph_skips} times")
    if result.compilation and (breaks := result.compilation.break_count):
        said.append(f"{breaks} graph breaks")
    if result.compilation and (late := result.compilation.late_graphs):
        said.append(f"{late} graphs were compiled anew after its warm-up, when it was measured")
    if leak := growth.remark(result.growth):
        said.append(leak)
    return said


def _of_check(measured: Measured) -> list[str]:
    """What a check other than a passed one found."""
    if measured.check is None or (measured.check.status is CheckStatus.CORRECT and not measured.check.reason):
        return []
    if measured.is_incorrect:
        return [f"INCORRECT, its speedup is not counted: {measured.check.reason}"]
    return [f"{CHECK_WORDS[measured.check.status]}: {measured.check.reason}"]


def _of_work(measured: Measured) -> list[str]:
    """What keeps the count of operations too low."""
    if measured.flops is None or not measured.flops.without_formula:
        return []
    calls = ", ".join(f"{name} ({count} calls)" for name, count in measured.flops.without_formula.items())
    return [f"operations are counted too low: no formula for {calls}"]


def _of_device(measured: Measured) -> list[str]:
    """Whether the device throttled in the latency pass, or others had it open before or after it."""
    before, after = measured.device_state_before, measured.device_state_after
    states = [state for state in (before, after) if state is not None]
    said = []
    throttled = dict.fromkeys(slowdowns(state.throttle_reasons for state in states), "")
    if before is not None and after is not None:
        timed_s = sum(sum(block.samples_s) for block in measured.blocks)
        throttled |= {
            reason: f", {share:.0%} of the time"
            for reason, share in throttled_shares(before, after, timed_s).items()
            if share >= LEAST_THROTTLED
        }
    if throttled:
        reasons = "; ".join(reason + share for reason, share in throttled.items())
        said.append(f"the device throttled ({reasons}) when it was measured")
    if foreign := max((state.foreign_processes or 0 for state in states), default=0):
        said.append(f"{foreign} other process{'es' * (foreign > 1)} had the device open when it was measured")
    return said


def remarks_of(records: Iterable[Record]) -> list[str]:
    """The remarks on all processes of a case, each once."""
    return list(dict.fromkeys(said for measured in measured_of(records) for said in remarks(measured)))


def what_failed(records: Sequence[Record]) -> list[str]:
    """Outcomes other than measured, each once, with the number of processes where there are several."""
    texts = [in_a_line(record) for record in records if not isinstance(record.outcome, Measured)]
    counted = {text: texts.count(text) for text in texts}
    if len(records) == 1:
        return texts
    return [f"{count} of {len(records)} processes {text}" for text, count in counted.items()]


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
