"""What a reader of a case's figures must know, in words; and what became of a case, in one line."""

from __future__ import annotations

from collections.abc import Iterable

from torchzoo.analysis.cases import CaseResult, unsteady_words
from torchzoo.analysis.figures import case_figures
from torchzoo.analysis.throttling import foreign_processes, throttled
from torchzoo.record import CheckStatus, Failed, HostWatch, Measured, Record, Skipped, StopReason, VariantResult
from torchzoo.report import units
from torchzoo.report.sections import growth

#: The status of a check, for people.
CHECK_WORDS = {
    CheckStatus.CORRECT: "correct",
    CheckStatus.INCORRECT: "INCORRECT",
    CheckStatus.NONDETERMINISTIC: "nondeterministic, not checked",
    CheckStatus.REFERENCE_FAILED: "reference failed, not checked",
}


def remarks(measured: Measured) -> list[str]:
    """The remarks on one process that measured a case; none if nothing was unusual."""
    found = []
    if measured.stop_reason is StopReason.STABLY_NOISY:
        found.append("stably noisy: the interval would be far above 1% even at the time limit")
    if measured.stop_reason is StopReason.TIME_LIMIT:
        found.append("stopped at the time limit before the interval came down to 1%")
    if measured.device_was_busy:
        found.append("the device was busy with other processes' work: the figures are not of this case alone")
    if measured.host is not None and measured.host.was_slow:
        found.append(f"the host was slow ({_slowness(measured.host)}), and stayed so: such steps count")
    if measured.host is not None and measured.host.redone:
        blocks = len(measured.host.redone)
        found.append(f"{blocks} blocks were timed again because the host was slow ({_slowness(measured.host)})")
    if measured.put_back:
        found.append(f"importing its libraries changed {', '.join(measured.put_back)}; that was put back")
    if measured.host_syncs:
        found.append(f"its step waits for the device by nature: {measured.host_syncs}")
    found += _of_check(measured)
    found += _of_device(measured)
    found += _of_work(measured)
    for name, result in measured.variants.items():
        found += [f"{name}: {remark}" for remark in _of_variant(result)]
    if measured.api is not None and measured.api.reason:
        found.append(f"not all of the API that it uses is known: {measured.api.reason}")
    return found


def _slowness(host: HostWatch) -> str:
    """`its loop took up to 1.8 times its usual time`."""
    assert host.undisturbed_s is not None
    return f"its loop took up to {max(host.looks_s) / host.undisturbed_s:.1f} times its undisturbed time"


def _of_variant(result: VariantResult) -> list[str]:
    found = []
    if result.breakdown and result.breakdown.problem:
        found.append(f"no breakdown: {result.breakdown.problem}")
    if not result.result_is_finite:
        found.append("the step's result is not finite (NaN or infinity)")
    if result.compilation and result.compilation.cudagraph_skips:
        found.append(f"CUDA graphs were skipped {result.compilation.cudagraph_skips} times")
    if result.compilation and (breaks := result.compilation.break_count):
        found.append(f"{breaks} graph breaks")
    if result.compilation and result.compilation.late_graphs:
        found.append(f"UNSTEADY, in no mean: {unsteady_words(result.compilation)}")
    if leak := growth.remark(result.growth):
        found.append(leak)
    return found


def _of_check(measured: Measured) -> list[str]:
    """A check that did not simply pass."""
    if measured.check is None or (measured.check.status is CheckStatus.CORRECT and not measured.check.reason):
        return []
    if measured.is_incorrect:
        return [f"INCORRECT, its speedup is not counted: {measured.check.reason}"]
    return [f"{CHECK_WORDS[measured.check.status]}: {measured.check.reason}"]


def _of_work(measured: Measured) -> list[str]:
    """Operations that are missing from the count."""
    if measured.flops is None or not measured.flops.without_formula:
        return []
    calls = ", ".join(f"{name} ({count} calls)" for name, count in measured.flops.without_formula.items())
    return [f"the count of operations is too low: no formula for {calls}"]


def _of_device(measured: Measured) -> list[str]:
    """A device that throttled, or that other processes had open."""
    found = []
    if reasons := throttled(measured):
        texts = [reason if share is None else f"{reason}, {share:.0%} of the time" for reason, share in reasons.items()]
        found.append(f"the device throttled ({'; '.join(texts)}) when it was measured")
    if foreign := foreign_processes(measured):
        found.append(f"{foreign} other process{'es' * (foreign > 1)} had the device open when it was measured")
    return found


def remarks_of(processes: Iterable[Measured]) -> list[str]:
    """The remarks on all processes of a case, each once."""
    return list(dict.fromkeys(remark for measured in processes for remark in remarks(measured)))


def what_failed(result: CaseResult) -> list[str]:
    """The outcomes other than measured, each once. With several processes, the number of those that had it."""
    texts = [one_line(record) for record in result.records if not isinstance(record.outcome, Measured)]
    counted = {text: texts.count(text) for text in texts}
    if len(result.records) == 1:
        return texts
    return [f"{count} of {len(result.records)} processes {text}" for text, count in counted.items()]


def one_line(record: Record) -> str:
    """The outcome of one record: `131 ms [131, 132], 1.02x [1.01, 1.03] of eager`."""
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
