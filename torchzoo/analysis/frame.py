"""Runs as a table for notebooks: one row per case, columns with units; pandas is imported only to make the frame."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchzoo import stats
from torchzoo.analysis import leaks
from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.case import AXES, Axis
from torchzoo.record import Checked, Failed, Measured, Skipped, VariantResult
from torchzoo.stats import Estimate
from torchzoo.store import read_run

if TYPE_CHECKING:
    import pandas as pd

TEXT, WHOLE, NUMBER, FLAG = "string", "Int64", "Float64", "boolean"
LATENCY = "seconds of a step, the device synchronised before and after; median"
MEASURED, CHECKED, SKIPPED, FAILED = "measured", "checked", "skipped", "failed"


class Column(msgspec.Struct, frozen=True):
    """A column of the frame: its name, pandas type, and what it holds."""

    name: str
    dtype: str
    text: str


def _of_both(name: str, dtype: str, text: str) -> tuple[Column, Column]:
    return Column(f"eager_{name}", dtype, f"eager: {text}"), Column(name, dtype, f"candidate (else eager): {text}")


def _of_axis(axis: Axis) -> Column:
    return Column(axis.name, WHOLE if axis.kind is int else TEXT, axis.column)


def _with_interval(name: str, text: str) -> tuple[Column, ...]:
    return (
        Column(name, NUMBER, text),
        Column(f"{name}_low", NUMBER, f"lower end of the interval of {name}"),
        Column(f"{name}_high", NUMBER, f"upper end of the interval of {name}"),
        Column(f"{name}_confidence", NUMBER, f"probability that the interval of {name} holds the true value"),
        Column(f"{name}_count", WHOLE, f"samples (blocks or quads) behind {name}"),
    )


#: What each column holds. The candidate is the backend beside eager; of a case that is eager alone, eager itself.
COLUMNS: tuple[Column, ...] = (
    Column("run", TEXT, "folder of the run"),
    Column("model", TEXT, "name of the model's folder"),
    Column("domain", TEXT, "the model's domain"),
    *map(_of_axis, AXES[:2]),  # mode and device
    Column("device_name", TEXT, "the device by its maker's name"),
    *map(_of_axis, AXES[2:]),
    Column("repeats", WHOLE, "processes that were to measure the case and have a record"),
    Column("outcome", TEXT, "measured, checked, skipped or failed; of repeats, failed where one failed"),
    Column("reason", TEXT, "why it was skipped, failed, or is incorrect"),
    Column("failure_kind", TEXT, "oom_device, oom_host, timeout, crashed, not_finite, interrupted or error"),
    Column("failure_stage", TEXT, "stage in which it failed"),
    Column("failure_message", TEXT, "the error in one line"),
    *_with_interval("eager_latency_s", f"eager: {LATENCY}"),
    *_with_interval("latency_s", f"candidate (else eager): {LATENCY}"),
    *_with_interval("speedup", "eager time over candidate time, paired; above 1 the candidate is faster"),
    *_of_both("throughput_per_s", NUMBER, "samples per second, many steps with one synchronisation"),
    Column("sample_unit", TEXT, "what throughput counts"),
    *_of_both("first_step_s", NUMBER, "wall time of the first step, compilation included"),
    *_of_both("first_step_cpu_s", NUMBER, "CPU time of the first step, compilers' processes included"),
    Column("compile_s", NUMBER, "wall time inside Dynamo and its backend; aoti: from torch.export to the package"),
    Column("package_bytes", WHOLE, "aoti: size of the package, weights included"),
    Column("load_s", NUMBER, "aoti: wall time of loading the package"),
    Column("cache", TEXT, "what the compilers' caches held: cold, warm or shared"),
    Column("graphs", WHOLE, "graphs that Dynamo compiled"),
    Column("graph_breaks", WHOLE, "graph breaks"),
    Column("operators_captured", WHOLE, "calls in the graphs that Dynamo captured"),
    Column("functions_left", WHOLE, "functions that Dynamo refused or could not compile, and left to eager"),
    Column("eager_operator_share", NUMBER, "share of the operators of what is compiled that ran in eager"),
    Column("recompilations", WHOLE, "functions that were compiled once more"),
    Column("cudagraph_skips", WHOLE, "times that CUDA graphs were skipped"),
    *_of_both("device_peak_allocated_bytes", WHOLE, "peak of the device allocator, allocated"),
    *_of_both("device_peak_reserved_bytes", WHOLE, "peak of the device allocator, reserved"),
    *_of_both("device_process_bytes", WHOLE, "device memory of the process, by NVML"),
    *_of_both("host_peak_rss_bytes", WHOLE, "host memory, peak resident, libraries included"),
    *_of_both("host_uss_bytes", WHOLE, "host memory unique to the process"),
    Column("time_ratio", NUMBER, "T: candidate time over eager time, 1 / speedup"),
    Column("host_memory_ratio", NUMBER, "CM: candidate over eager, peak resident host memory"),
    Column("device_memory_ratio", NUMBER, "GM: candidate over eager, peak allocated device memory"),
    Column("device_time_ratio", NUMBER, "D: candidate over eager, time in which the device works in one step"),
    *_of_both("active_share", NUMBER, "share of the profiled steps in which the device computes"),
    *_of_both("movement_share", NUMBER, "share of the profiled steps in which the device only moves data"),
    *_of_both("idle_share", NUMBER, "share of the profiled steps in which the device does nothing"),
    *_of_both("communication_share", NUMBER, "share of the profiled steps in which only collectives run"),
    Column("flops", WHOLE, "operations of one eager step; a multiply-add counts as two"),
    Column("bytes_read_per_step", WHOLE, "weights and caches, each once; of steps that generate a token"),
    *_of_both("energy_j", NUMBER, "joules per step, by NVML's counter"),
    Column("check_status", TEXT, "results against eager's: correct, incorrect, nondeterministic, reference_failed"),
    Column("check_reason", TEXT, "why, in a line"),
    *_of_both("leak", TEXT, "verdict of the leak check: level, leak or inconclusive"),
    *_of_both("device_growth_bytes", NUMBER, "device memory gained per step over many steps (leak check)"),
    *_of_both("host_growth_bytes", NUMBER, "host memory gained per step over many steps (leak check)"),
    Column("parameters", WHOLE, "of the model"),
    Column("result_is_finite", FLAG, "no NaN or infinity in the result of either variant"),
    Column("host_syncs", TEXT, "why the step waits for the device by nature"),
    Column("threads", WHOLE, "CPU threads of PyTorch"),
    Column("stop_reason", TEXT, "why timing stopped: converged, stably_noisy or time_limit"),
    Column("started_at", TEXT, "UTC, ISO 8601; of the record shown"),
    Column("finished_at", TEXT, "UTC, ISO 8601"),
    Column("command", TEXT, "what measures the case again, for a POSIX shell"),
)


def load(runs: str | PathLike[str] | Sequence[str | PathLike[str]]) -> pd.DataFrame:
    """Runs kept with `-o` as one pandas frame: a row per case, the columns of `COLUMNS`, missing values as `<NA>`.

    Several runs stand below one another, also of different machines: the column `run` tells them apart. A warning says
    which lines of a run can't be read, and are left out.

    Raises:
        StoreError: no run there, or one of a newer schema.
    """
    paths = [runs] if isinstance(runs, str | PathLike) else list(runs)
    read = [read_run(Path(path)) for path in paths]
    for run in read:
        if run.damage:
            warnings.warn(run.damage, stacklevel=2)
    return to_frame([result for run in read for result in case_results(run)])


def to_frame(results: Sequence[CaseResult]) -> pd.DataFrame:
    """The results as a pandas frame, in their order. `frame.attrs["columns"]` says what each column holds."""
    import pandas as pd

    dtypes = {column.name: column.dtype for column in COLUMNS}
    frame = pd.DataFrame([values(result) for result in results], columns=list(dtypes), dtype=object)
    frame = frame.astype(dtypes)
    frame.attrs["columns"] = {column.name: column.text for column in COLUMNS}
    return frame


def values(result: CaseResult) -> dict[str, Any]:
    """One row of the frame, every column of it, None where there is nothing to say; unrounded."""
    found: dict[str, Any] = dict.fromkeys(column.name for column in COLUMNS)
    case, outcome = result.case, result.outcome
    found.update(
        run=str(result.run),
        model=case.model,
        domain=_text(result.domain),
        **{axis.name: axis.of(case) if axis.kind is int else axis.text(case) for axis in AXES},
        repeats=len(result.records),
        outcome=outcome_name(result),
        reason=result.reason or None,
        started_at=result.shown.started_at,
        finished_at=result.shown.finished_at,
        command=result.command,
    )
    if isinstance(outcome, Failed):
        found.update(failure_kind=str(outcome.kind), failure_stage=str(outcome.stage), failure_message=outcome.message)
    if result.figures is not None:
        found.update(_measured(result))
    if isinstance(outcome, Checked):
        found.update(
            device_name=outcome.device_name,
            parameters=outcome.parameters,
            threads=outcome.threads,
            graphs=outcome.graphs,
            check_status=str(outcome.check.status),
            check_reason=outcome.check.reason or None,
        )
    return found


def outcome_name(result: CaseResult) -> str:
    """`measured`, `checked`, `skipped` or `failed`."""
    return {Measured: MEASURED, Checked: CHECKED, Skipped: SKIPPED, Failed: FAILED}[type(result.outcome)]


def _measured(result: CaseResult) -> dict[str, Any]:
    figures = result.figures
    assert figures is not None
    measured, eager, shown = figures.measured, figures.eager, figures.shown
    found: dict[str, Any] = {
        "device_name": measured.device_name,
        "sample_unit": measured.sample_unit,
        "flops": measured.flops.total if measured.flops else None,
        "bytes_read_per_step": measured.bytes_read_per_step,
        "parameters": measured.parameters,
        "result_is_finite": all(variant.result_is_finite for variant in measured.variants.values()),
        "host_syncs": measured.host_syncs,
        "threads": measured.threads,
        "stop_reason": str(measured.stop_reason),
        "eager_throughput_per_s": eager.steps_per_s.value * measured.samples_per_step,
        "throughput_per_s": shown.steps_per_s.value * measured.samples_per_step,
        **_estimate("eager_latency_s", eager.latency_s),
        **_estimate("latency_s", shown.latency_s),
        **{f"eager_{name}": value for name, value in _variant(eager.raw).items()},
        **_variant(shown.raw),
    }
    check = next(iter(result.wrong_checks), measured.check)  # one process with wrong results is enough
    if check is not None:
        found.update(check_status=str(check.status), check_reason=check.reason or None)
    if figures.speedup is not None and figures.time_ratio is not None:
        found.update(_estimate("speedup", figures.speedup))
        found.update(_compilation(shown.raw))
        found.update(
            time_ratio=figures.time_ratio.value,
            host_memory_ratio=figures.host_memory_ratio,
            device_memory_ratio=figures.device_memory_ratio,
            device_time_ratio=figures.device_time_ratio,
        )
    return found


def _estimate(name: str, estimate: Estimate) -> dict[str, Any]:
    has = estimate.has_interval
    return {
        name: estimate.value,
        f"{name}_low": estimate.low if has else None,
        f"{name}_high": estimate.high if has else None,
        f"{name}_confidence": estimate.confidence if has else None,
        f"{name}_count": estimate.count,
    }


def _variant(variant: VariantResult) -> dict[str, Any]:
    memory, leak = variant.memory, leak_check(variant)
    step = stats.shares(variant.breakdown) if variant.breakdown else None
    return {
        "first_step_s": variant.first_step_s,
        "first_step_cpu_s": variant.first_step_cpu_s,
        "device_peak_allocated_bytes": memory.device_peak_allocated_bytes,
        "device_peak_reserved_bytes": memory.device_peak_reserved_bytes,
        "device_process_bytes": memory.device_process_bytes,
        "host_peak_rss_bytes": memory.host_peak_rss_bytes,
        "host_uss_bytes": memory.host_uss_bytes,
        "active_share": step.active.value if step else None,
        "movement_share": step.movement.value if step else None,
        "idle_share": step.idle.value if step else None,
        "communication_share": step.communication.value if step and step.communication else None,
        "energy_j": stats.step_energy_j(variant.energy).value if variant.energy else None,
        "leak": str(leak.verdict) if leak else None,
        "device_growth_bytes": _growth(leak, leaks.Measure.DEVICE),
        "host_growth_bytes": _growth(leak, leaks.Measure.HOST),
    }


def leak_check(variant: VariantResult) -> leaks.LeakCheck | None:
    """The verdict on the variant's growth; None where it was not asked for or is too short to tell."""
    try:
        return leaks.check(variant.growth) if variant.growth else None
    except ValueError:
        return None


def _growth(leak: leaks.LeakCheck | None, what: leaks.Measure) -> float | None:
    return leak.slopes[what].value if leak and what in leak.slopes else None


def _compilation(variant: VariantResult) -> dict[str, Any]:
    counts = variant.compilation
    if counts is None:
        return {}
    return {
        "compile_s": counts.compile_s,
        "package_bytes": counts.package_bytes,
        "load_s": counts.load_s,
        "cache": _text(counts.cache),
        "graphs": counts.graphs,
        "graph_breaks": counts.break_count,
        "operators_captured": counts.operators_captured,
        "functions_left": counts.functions_left,
        "eager_operator_share": None if variant.coverage is None else variant.coverage.eager_share,
        "recompilations": len(counts.recompilations),
        "cudagraph_skips": counts.cudagraph_skips,
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)
