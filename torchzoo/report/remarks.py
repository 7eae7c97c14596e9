"""Remarks on a case's figures, in words or as marks, and the outcome of a case in one line."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torchzoo.analysis import leaks
from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import case_figures
from torchzoo.analysis.leaks import LeakCheck, LeakVerdict, Measure
from torchzoo.analysis.refusals import refusals, unsteady_words
from torchzoo.analysis.throttling import POWER_CAP, foreign_processes, throttled
from torchzoo.record import (
    Checked,
    CheckStatus,
    Failed,
    Growth,
    HostWatch,
    Measured,
    Outcome,
    Record,
    Skipped,
    StopReason,
    VariantResult,
)
from torchzoo.report import units
from torchzoo.report.noise import more_time
from torchzoo.stats import STATED_CONFIDENCE

#: The status of a check, for people.
CHECK_WORDS = {
    CheckStatus.CORRECT: "correct",
    CheckStatus.PARTLY_CORRECT: "partly correct",
    CheckStatus.INCORRECT: "INCORRECT",
    CheckStatus.NONDETERMINISTIC: "nondeterministic, not checked",
    CheckStatus.REFERENCE_FAILED: "reference failed, not checked",
    CheckStatus.NOT_REACHED: "not reached, not checked",
}


class Mark(enum.Enum):
    """A letter that stands for a remark where a case has one line, and what it means. Capitals: doubt the figures."""

    INCORRECT = ("W", "WRONG: its results are not eager's, and its speedup is not counted")
    REFUSED = ("R", "REFUSED: much of it ran in eager, or its variants do different work; it is in no mean")
    UNSTEADY = ("U", "UNSTEADY: compiled again while it was measured; it is in no mean")
    NOT_FINITE = ("N", "the step's result is not finite (NaN or infinity)")
    LEAK = ("L", "its memory leaks")
    SOME_FAILED = ("F", "not all of its processes measured it")
    CUT_SHORT = ("C", "it failed after its timing: what was asked for beside the times is missing, or a part of it")
    SLOW_HOST = ("H", "the host stayed slow: a step that waits for it takes longer")
    DIFFERENT = ("D", "DIFFERENT: its processes did not do the same under the same conditions")
    NOT_CHECKED = ("c", "its results were not checked, or not all of them")
    NOISY = ("n", "stably noisy: the interval would stay far above 1%")
    TIME_LIMIT = ("l", "stopped at the time limit, before the interval came down to 1%")
    BUDGET = ("m", "stopped at its share of the budget, which is too short for 1%")
    FEW_SAMPLES = ("f", "too few samples or processes for an interval at 95%")
    THROTTLED = ("t", "the device throttled")
    POWER = ("w", "at the device's power limit: such a step's time depends on its values")
    BUSY = ("d", "other processes used the device, or had it open")
    REDONE = ("h", "the host was slow at times; what it disturbed was timed again")
    SLOW_THROUGHPUT = ("o", "the host stayed slow while the throughput was timed; latency and speedup are timed apart")
    SYNC = ("s", "the step waits for the device by nature")
    IN_EAGER = ("e", "a part of what its label compiles ran in eager")
    GRAPH_BREAKS = ("b", "graph breaks")
    NO_CUDA_GRAPH = ("g", "CUDA graphs were skipped")
    OTHER_WORK = ("v", "its variants do different work by nature")
    QUANTIZED = ("q", "some of its layers are quantized, and all else is in bfloat16")
    TRACED = ("r", "what compiling did was traced, and its times of compiling include that")
    INCOMPLETE = ("i", "breakdown, operations, API, or memory without eager are not known in full")
    PUT_BACK = ("p", "a setting that its libraries or its building changed was put back")

    @property
    def letter(self) -> str:
        return self.value[0]

    @property
    def text(self) -> str:
        return self.value[1]


class Remark(NamedTuple):
    """A fact that a reader of a case's figures must know, and the mark that stands for it."""

    mark: Mark
    text: str


def remarks(measured: Measured) -> list[str]:
    """The remarks on one process that measured a case, in words; none if nothing was unusual."""
    return [remark.text for remark in _remarks(measured)]


def _remarks(measured: Measured) -> Iterator[Remark]:
    yield from _of_timing(measured)
    if measured.put_back:
        changed = ", ".join(measured.put_back)
        yield Remark(Mark.PUT_BACK, f"importing its libraries, or building it, changed {changed}; that was put back")
    if measured.host_syncs:
        yield Remark(Mark.SYNC, f"its step waits for the device by nature: {measured.host_syncs}")
    yield from _of_label(measured)
    if measured.cut_short is not None:
        yield Remark(Mark.CUT_SHORT, f"after its timing, it {not_measured_line(measured.cut_short)}")
    flags = measured.precision_flags
    if "quantized_by" in flags:
        text = f"quantized by {flags['quantized_by']}: {flags['quantized_layers']}; all else in {flags['base_dtype']}"
        yield Remark(Mark.QUANTIZED, text)
    yield from _of_check(measured)
    yield from _of_device(measured)
    if measured.flops is not None and measured.flops.without_formula:
        calls = ", ".join(f"{name} ({count} calls)" for name, count in measured.flops.without_formula.items())
        yield Remark(Mark.INCOMPLETE, f"the count of operations is too low: no formula for {calls}")
    for name, result in measured.variants.items():
        yield from (Remark(mark, f"{name}: {text}") for mark, text in _of_variant(result))
    if measured.api is not None and measured.api.reason:
        yield Remark(Mark.INCOMPLETE, f"not all of the API that it uses is known: {measured.api.reason}")


def _of_timing(measured: Measured) -> Iterator[Remark]:
    host = measured.host
    if measured.stop_reason is StopReason.STABLY_NOISY:
        yield Remark(Mark.NOISY, "stably noisy: the interval would be far above 1% even at the time limit")
    if measured.stop_reason is StopReason.TIME_LIMIT:
        text = f"stopped at the time limit before the interval came down to 1%{_more_time(measured)}"
        yield Remark(Mark.TIME_LIMIT, text)
    if measured.stop_reason is StopReason.BUDGET:
        text = f"stopped at its share of the budget, which is too short for 1%{_more_time(measured)}"
        yield Remark(Mark.BUDGET, text)
    if measured.device_was_busy:
        yield Remark(
            Mark.BUSY, "the device was busy with other processes' work: the figures are not of this case alone"
        )
    if host is not None and host.was_slow:
        yield Remark(Mark.SLOW_HOST, f"the host was slow ({_slowness(host)}), and stayed so: such steps count")
    if host is not None and host.redone:
        blocks = f"{len(host.redone)} blocks were timed again because the host was slow ({_slowness(host)})"
        yield Remark(Mark.REDONE, blocks)


def _of_label(measured: Measured) -> Iterator[Remark]:
    for reason in refusals(measured):
        yield Remark(Mark.REFUSED, f"REFUSED, in no mean: {reason}")
    if measured.unequal_work and measured.candidate_flops is not None:
        yield Remark(Mark.OTHER_WORK, f"its variants do different work: {measured.unequal_work}")
    for coverage in (result.coverage for result in measured.variants.values()):
        if coverage is not None and coverage.in_eager:
            share = f"{coverage.in_eager:,} of {coverage.operators:,} operators ran in eager"
            yield Remark(Mark.IN_EAGER, share)


def _more_time(measured: Measured) -> str:
    """`: 3 rounds in 41 s; --time-limit 120 would narrow it to about ±2%`."""
    more = more_time(measured)
    if more is None:
        return ""
    width = units.difference(max(more.half_width, units.LEAST_REACH))
    return (
        f": {more.rounds:,} rounds in {units.seconds(more.took_s)}; --time-limit {more.limit_s:g} would narrow it to "
        f"about ±{width}"
    )


def _slowness(host: HostWatch) -> str:
    assert host.undisturbed_s is not None
    return f"its loop took up to {max(host.looks_s) / host.undisturbed_s:.1f} times its undisturbed time"


def _of_variant(result: VariantResult) -> Iterator[Remark]:
    compiled = result.compilation
    if result.breakdown and result.breakdown.problem:
        yield Remark(Mark.INCOMPLETE, f"no breakdown: {result.breakdown.problem}")
    if result.why_not_alone:
        yield Remark(Mark.INCOMPLETE, f"no figure of a process of its own: {why_not_alone(result)}")
    if slow := sum(bool(run.host_was_slow) for run in result.back_to_back):
        text = f"throughput: the host was slow in {slow} of {len(result.back_to_back)} runs, and stayed so: they count"
        yield Remark(Mark.SLOW_THROUGHPUT, text)
    if not result.result_is_finite:
        yield Remark(Mark.NOT_FINITE, "the step's result is not finite (NaN or infinity)")
    if compiled and compiled.cudagraph_skips:
        yield Remark(Mark.NO_CUDA_GRAPH, f"CUDA graphs were skipped {compiled.cudagraph_skips} times")
    if compiled and compiled.break_count:
        yield Remark(Mark.GRAPH_BREAKS, f"{compiled.break_count} graph breaks")
    if compiled and compiled.traced:
        text = "its times of compiling include writing the structured trace: they are not compared with others"
        yield Remark(Mark.TRACED, text)
    if compiled and compiled.late_graphs:
        yield Remark(Mark.UNSTEADY, f"UNSTEADY, in no mean: {unsteady_words(compiled)}")
    leak = leaks.check(result.growth) if result.growth is not None else None
    if leak is not None and leak.verdict is LeakVerdict.LEAK:
        yield Remark(Mark.LEAK, f"its memory leaks: {_growing(leak)}")


def why_not_alone(result: VariantResult) -> str:
    """Why there is no figure of a process in which the candidate is alone; empty where nothing says so."""
    why = result.why_not_alone
    return f"{why.kind}: {why.message}" if isinstance(why, Failed) else why.reason if why else ""


def _of_check(measured: Measured) -> Iterator[Remark]:
    check = measured.check
    if check is None or (check.status is CheckStatus.CORRECT and not check.reason):
        return
    words = CHECK_WORDS[check.status]
    if measured.is_incorrect:
        yield Remark(Mark.INCORRECT, f"INCORRECT, its speedup is not counted: {check.reason}")
    elif check.status is CheckStatus.NOT_REACHED:  # what cut the case short says why
        yield Remark(Mark.NOT_CHECKED, words)
    else:
        yield Remark(Mark.NOT_CHECKED, f"{words}: {check.reason}")


def _of_device(measured: Measured) -> Iterator[Remark]:
    """A device that was at its power limit, that throttled, or that other processes had open."""
    reasons = throttled(measured)
    if POWER_CAP in reasons:
        share = reasons.pop(POWER_CAP)
        how_long = "" if share is None else f" for {share:.0%} of the time"
        text = f"the device was at its power limit{how_long}: such a step's time depends on the values it computes with"
        yield Remark(Mark.POWER, text)
    if reasons:
        texts = [reason if share is None else f"{reason}, {share:.0%} of the time" for reason, share in reasons.items()]
        yield Remark(Mark.THROTTLED, f"the device throttled ({'; '.join(texts)}) when it was measured")
    if foreign := foreign_processes(measured):
        text = f"{foreign} other process{'es' * (foreign > 1)} had the device open when it was measured"
        yield Remark(Mark.BUSY, text)


def _between(processes: Sequence[Measured]) -> list[Remark]:
    """What should be the same in all processes of a case, and is not."""
    values_of = {
        "in their device": [one.device_name for one in processes],
        "in their CPU threads": [str(one.threads) for one in processes],
        "in the number of parameters": [f"{one.parameters:,}" for one in processes],
        "in the dtypes of their operators": [", ".join(sorted(one.operator_dtypes)) for one in processes],
        "in the settings of precision": [str(dict(sorted(one.precision_flags.items()))) for one in processes],
    }
    return [
        Remark(Mark.DIFFERENT, f"its processes differ {what}: {' and '.join(dict.fromkeys(values))}")
        for what, values in values_of.items()
        if len(set(values)) > 1
    ]


def remarks_of(processes: Sequence[Measured]) -> list[str]:
    """The remarks on all processes of a case, each once."""
    of_each = dict.fromkeys(remark for measured in processes for remark in remarks(measured))
    return [*(remark.text for remark in _between(processes)), *of_each]


def marks_of(result: CaseResult) -> list[Mark]:
    """The marks of all processes of a case and of its figures, each once, the ones that matter most first."""
    found = {remark.mark for measured in result.measured for remark in _remarks(measured)}
    found |= {remark.mark for remark in _between(result.measured)}
    figures = result.measured_figures
    if figures is not None:
        shown = [figures.speedup, *(variant.latency_s for variant in figures.variants)]
        if any(one is not None and one.confidence < STATED_CONFIDENCE for one in shown):
            found.add(Mark.FEW_SAMPLES)
        if len(result.measured) < len(result.records):
            found.add(Mark.SOME_FAILED)
    return [mark for mark in Mark if mark in found]


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
        line = units.latency(figures.shown.latency_s)
        if figures.speedup is not None:
            line += f", {units.speedup(figures.speedup)} of eager"
        return line if outcome.cut_short is None else f"{line}; then {not_measured_line(outcome.cut_short)}"
    return not_measured_line(outcome)


def not_measured_line(outcome: Outcome) -> str:
    """`checked: correct`, `skipped: reason`, or `FAILED (kind in stage): message`, of a case that was not measured."""
    if isinstance(outcome, Checked):
        return "; ".join(filter(None, [f"checked: {CHECK_WORDS[outcome.check.status]}", outcome.check.reason]))
    if isinstance(outcome, Skipped):
        return f"skipped: {outcome.reason}"
    assert isinstance(outcome, Failed)
    return f"FAILED ({outcome.kind} in {outcome.stage}): {outcome.message}"


# --- growth of memory over many steps ---


def growth_lines(results: Sequence[VariantResult]) -> list[tuple[str, list[str]]]:
    """Return a line of a case's table; `-` for a variant whose growth was not measured."""
    return [("growth of memory", ["-" if r.growth is None else _growth(r.growth) for r in results])]


def _growth(growth: Growth) -> str:
    found = leaks.check(growth)
    if found.verdict is LeakVerdict.LEVEL:
        return f"none in {len(growth.host_bytes)} steps"
    return f"{found.verdict}: {_growing(found)}"


def _growing(found: LeakCheck) -> str:
    """`1.00 MiB a step of the heap, 2 Python objects a step`: the measures with the verdict of all together."""
    verdicts = found.verdicts.items()
    return ", ".join(_amount(what, found.slopes[what].value) for what, one in verdicts if one is found.verdict)


def _amount(measure: Measure, per_step: float) -> str:
    if measure is Measure.PYTHON:
        return f"{per_step:.3g} Python objects a step"
    where = {Measure.DEVICE: "on the device", Measure.HEAP: "of the heap", Measure.HOST: "of the host's memory"}
    return f"{units.size(round(per_step))} a step {where[measure]}"
