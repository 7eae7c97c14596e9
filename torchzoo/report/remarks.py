"""What a reader of the figures must know, in words."""

from __future__ import annotations

from collections.abc import Iterable

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import case_figures
from torchzoo.record import CheckStatus, Failed, Measured, Record, Skipped, StopReason, VariantResult
from torchzoo.report import units
from torchzoo.report.sections import growth
from torchzoo.report.sections.throttling import slowdowns, throttled_shares

#: Of the latency pass: less than that of it at lowered clocks is not worth a remark.
LEAST_THROTTLED = 0.01


#: A check's verdict, for people.
CHECK_WORDS = {
    CheckStatus.CORRECT: "correct",
    CheckStatus.INCORRECT: "INCORRECT",
    CheckStatus.NONDETERMINISTIC: "nondeterministic, not checked",
    CheckStatus.REFERENCE_FAILED: "reference failed, not checked",
}


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


def remarks_of(processes: Iterable[Measured]) -> list[str]:
    """The remarks on all processes of a case, each once."""
    return list(dict.fromkeys(remark for measured in processes for remark in remarks(measured)))


def what_failed(result: CaseResult) -> list[str]:
    """Outcomes other than measured, each once, with the number of processes where there are several."""
    texts = [one_line(record) for record in result.records if not isinstance(record.outcome, Measured)]
    counted = {text: texts.count(text) for text in texts}
    if len(result.records) == 1:
        return texts
    return [f"{count} of {len(result.records)} processes {text}" for text, count in counted.items()]


def one_line(record: Record) -> str:
    """The outcome of one record, for a progress line."""
    outcome = record.outcome
    if isinstance(outcome, Measured):
        figures = case_figures([record])
        if figures.speedup is None:
            return units.latency(figures.eager.latency_s)
        return f"{units.latency(figures.shown.latency_s)}, {units.speedup(figures.speedup)} of eager"
    return not_measured_line(outcome)


def not_measured_line(outcome: Skipped | Failed) -> str:
    """`skipped: reason`, or `FAILED (kind in stage): message`."""
    if isinstance(outcome, Skipped):
        return f"skipped: {outcome.reason}"
    return f"FAILED ({outcome.kind} in {outcome.stage}): {outcome.message}"
