"""A case's figures by the names and in the units of `benchmarks/dynamo` of pytorch/pytorch.

Milliseconds, seconds, and GB of 10**9 bytes (on the CPU: resident memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from torchzoo import backends, stats
from torchzoo.analysis.cases import CaseResult
from torchzoo.case import EAGER, Case
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Check, CheckStatus, Compilation, Measured, Memory

Metrics = dict[str, list[float]]  # name: a value for each process


def metrics(result: CaseResult) -> Metrics:
    """What is known of a case. A case of eager alone has a latency and a peak of memory."""
    case, measured = result.case, result.measured
    if not measured:
        return {}
    eager_memory = [_peak_gb(m.variants[EAGER_VARIANT].memory, case) for m in measured]
    if case.backend == EAGER:
        found = {"abs_latency": [1e3 * stats.latency_s(m.blocks, EAGER_VARIANT).value for m in measured]}
        return found | _known({"eager_peak_mem": eager_memory})
    candidates = [m.variants[CANDIDATE_VARIANT] for m in measured]
    memory = [_peak_gb(one.memory, case) for one in candidates]
    return {
        "speedup": [stats.speedup(m.blocks).value for m in measured if stats.quad_ratios(m.blocks)],
        "abs_latency": [1e3 * stats.latency_s(m.blocks, CANDIDATE_VARIANT).value for m in measured],
        "compilation_latency": [_compilation_s(one) for one in measured],
        **_known(
            {
                "compression_ratio": [e / c if e and c else None for e, c in zip(eager_memory, memory, strict=True)],
                "eager_peak_mem": eager_memory,
                "dynamo_peak_mem": memory,
            }
        ),
        **_counts(case, [one.compilation for one in candidates]),
    }


def median_metrics(result: CaseResult) -> dict[str, float]:
    """The same, with the median of the processes."""
    return {name: median(values) for name, values in metrics(result).items() if values}


def most_used_dtype(measured: Sequence[Measured]) -> str | None:
    """The dtype in which most operators of an eager step computed; None if it was not counted."""
    counts = measured[0].operator_dtypes if measured else {}
    return max(counts, key=lambda dtype: counts[dtype]) if counts else None


def worst_check(checks: Iterable[Check | None]) -> CheckStatus | None:
    """The worst status of a case's checks; None without checks, or if one had no reference to judge by."""
    found = {one.status for one in checks if one is not None}
    for status in (CheckStatus.INCORRECT, CheckStatus.NONDETERMINISTIC):
        if status in found:
            return status
    return CheckStatus.CORRECT if found == {CheckStatus.CORRECT} else None


def _known(found: dict[str, list[float | None]]) -> Metrics:
    kept = {name: [value for value in values if value is not None] for name, values in found.items()}
    return {name: values for name, values in kept.items() if values}


def _peak_gb(memory: Memory, case: Case) -> float | None:
    peak = memory.host_peak_rss_bytes if case.device == "cpu" else memory.device_peak_allocated_bytes
    return None if peak is None else peak / 10**9


def _compilation_s(measured: Measured) -> float:
    """The candidate's first step less a warm step of eager; with AOTInductor, what comes before it, too."""
    eager, candidate = measured.variants[EAGER_VARIANT], measured.variants[CANDIDATE_VARIANT]
    counts = candidate.compilation
    ahead_s = 0.0
    if candidate.conversion_s is None and counts is not None and counts.package_bytes is not None:
        ahead_s = (counts.compile_s or 0.0) + (counts.load_s or 0.0)
    return ahead_s + max(0.0, candidate.first_step_s - eager.warmup_s[-1])


def _counts(case: Case, compilations: Iterable[Compilation | None]) -> Metrics:
    """What Dynamo counted; nothing for backends that are not behind Dynamo."""
    counted = [compilation for compilation in compilations if compilation is not None]
    if not counted or not backends.info(case.backend.name).uses_dynamo:
        return {}
    captured = [float(one.operators_captured) for one in counted if one.operators_captured is not None]
    return {
        **({"calls_captured": captured} if captured else {}),
        "unique_graphs": [float(one.graphs) for one in counted],
        "graph_breaks": [float(sum(one.graph_breaks.values())) for one in counted],
        "unique_graph_breaks": [float(len(one.graph_breaks)) for one in counted],
        "cudagraph_skips": [float(one.cudagraph_skips) for one in counted],
    }
