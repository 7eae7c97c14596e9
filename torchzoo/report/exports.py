"""A run for PyTorch's dashboard, and as the CSV files of PyTorch's dynamo benchmarks.

Both have the figures of a case by the names of `benchmarks/dynamo` of pytorch/pytorch: milliseconds, seconds, and GB of
10**9 bytes (on the CPU: resident memory). `compilation_latency` is the candidate's first step less a warm step of
eager. What torchzoo does not know is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from statistics import median
from typing import Any

import msgspec

from torchzoo import backends
from torchzoo.analysis.cases import CaseResult, Status, case_results
from torchzoo.analysis.figures import CaseFigures, case_figures
from torchzoo.analysis.frame import figure
from torchzoo.case import AXES, EAGER, Case, Mode, Parallel, Precision
from torchzoo.record import (
    CANDIDATE_VARIANT,
    EAGER_VARIANT,
    Check,
    CheckStatus,
    Compilation,
    FailureKind,
    Manifest,
    Measured,
)
from torchzoo.report.text import csv_text
from torchzoo.store import Run

Metrics = dict[str, list[float]]  # name: a value for each process
PERFORMANCE = (
    *("dev", "name", "batch_size", "speedup", "abs_latency", "compilation_latency", "compression_ratio"),
    *("eager_peak_mem", "dynamo_peak_mem", "calls_captured", "unique_graphs", "graph_breaks", "unique_graph_breaks"),
    *("autograd_captures", "autograd_compiles", "cudagraph_skips"),
)
ACCURACY = ("dev", "name", "batch_size", "accuracy")
MODES = {Mode.TRAIN: "training", Mode.EVAL: "inference", Mode.PREFILL: "prefill", Mode.DECODE: "decode"}
DTYPES = {
    Precision.DEFAULT: "float32",  # the harness has this name for PyTorch without any option
    Precision.FP64: "float64",
    Precision.FP16: "float16",
    Precision.BF16: "bfloat16",
}
_STATUSES = {
    CheckStatus.CORRECT: "pass",
    CheckStatus.INCORRECT: "fail_accuracy",
    CheckStatus.NONDETERMINISTIC: "eager_two_runs_differ",
}
_FAILURES = {FailureKind.OOM_DEVICE: "OOM", FailureKind.TIMEOUT: "timeout"}


def hud_v3(run: Run) -> str:
    """The run as JSON Lines for the dashboard's database, with the raw samples; empty if nothing was measured.

    The layout is version 3 of the database's: `clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql` in
    pytorch/test-infra. There is a record for each case and metric.
    - Metrics have the names and units that `output_json` in `benchmarks/dynamo/common.py` gives them.
      `benchmark_values` holds one value for each process.
    - `accuracy`, if the run holds checks, has no value but a word, as there: in `extra_info`.
    - `step_latency` and `eager_step_latency` are the raw samples of one process: the milliseconds of each timed step,
      in order. `extra_info` says how they were timed: `block_order` has the blocks of eager and candidate in order,
      `block_sizes` how many of these steps are in each block of this variant.

    The upload adds which change and which job was tested (`.github/scripts/benchmarks/gather_metadata.py` there).
    """
    return "".join(f"{json.dumps(record, allow_nan=False)}\n" for record in _records(run))


def _records(run: Run) -> Iterator[dict[str, Any]]:
    dependencies = _dependencies(run.manifest)
    results = case_results(run)
    has_checks = any(any(result.checks) for result in results)
    for result in results:
        found = list(_metrics(result, has_checks=has_checks))
        if not found:
            continue
        about = _about(result, run.manifest) | {"dependencies": dependencies}
        yield from ({**about, "metric": metric} for metric in found)


def _about(result: CaseResult, manifest: Manifest) -> dict[str, Any]:
    case = result.case
    finished = max(datetime.fromisoformat(record.finished_at) for record in result.records)
    mode, dtype, more = MODES[case.mode], _dtype(result), _extra_info(case)
    return {
        "timestamp": int(finished.timestamp()),
        "schema_version": "v3",
        "runners": [_runner(result, manifest)],
        "benchmark": {"name": "torchzoo", "mode": mode, "dtype": dtype, "extra_info": more},
        "model": {"name": case.model, "type": "model", "backend": str(case.backend), "origins": ["torchzoo"]},
    }


def _metrics(result: CaseResult, *, has_checks: bool) -> Iterator[dict[str, Any]]:
    for name, values in metrics(result).items():
        yield {"name": name, "benchmark_values": values}
    if has_checks and result.case.backend != EAGER and (status := accuracy_status(result)):
        yield {"name": "accuracy", "benchmark_values": [], "extra_info": {"benchmark_values": json.dumps([status])}}
    for record in result.records:
        if isinstance(record.outcome, Measured):
            yield from _raw_samples(record.outcome, record.case)


def _raw_samples(measured: Measured, case: Case) -> Iterator[dict[str, Any]]:
    names = {CANDIDATE_VARIANT: "step_latency", EAGER_VARIANT: "eager_step_latency"}
    if case.backend == EAGER:
        names = {EAGER_VARIANT: "step_latency"}
    order = ",".join(block.variant for block in measured.blocks)
    for variant, name in names.items():
        blocks = [block.samples_s for block in measured.blocks if block.variant == variant]
        sizes = ",".join(str(len(samples)) for samples in blocks)
        yield {
            "name": name,
            "benchmark_values": [1e3 * sample for samples in blocks for sample in samples],
            "extra_info": {"unit": "ms", "process": str(case.repeat), "block_order": order, "block_sizes": sizes},
        }


def _extra_info(case: Case) -> dict[str, str]:
    """Further axes of the case. Only text: the database's column is a map of strings."""
    always = ("device", "batch_size", "precision")
    elsewhere = ("mode", "backend", "world")  # in fields of their own; `parallel` has the number of ranks, too
    info = {name: str(getattr(case, name)) for name in always}
    for axis in AXES:
        if axis.name not in (*always, *elsewhere) and not axis.is_default(case):
            info[axis.name] = case.ranks_label() if axis.kind is Parallel else axis.text(case)
    return info


def _dtype(result: CaseResult) -> str:
    """The dtype of the precision. For `default`, the one in which most operators computed."""
    precision = result.case.precision
    if precision is Precision.DEFAULT:
        counts = result.measured[0].operator_dtypes if result.measured else {}
        return max(counts, key=lambda dtype: counts[dtype], default="")
    return "float32" if precision is Precision.FP32 else DTYPES.get(precision, str(precision))


def _dependencies(manifest: Manifest) -> dict[str, dict[str, str]]:
    environment = manifest.environment
    torch = {"repo": "pytorch/pytorch", "sha": environment.torch_commit, "version": environment.torch}
    found: dict[str, dict[str, str | None]] = {"pytorch": torch}
    found["torchzoo"] = {"version": environment.torchzoo, "sha": environment.torchzoo_commit}
    found |= {name: {"version": version} for name, version in environment.packages.items()}
    return {name: {key: value for key, value in about.items() if value} for name, about in found.items()}


def _runner(result: CaseResult, manifest: Manifest) -> dict[str, Any]:
    """The machine. The dashboard takes `name` as the device, and `type` as what kind of one it is."""
    environment, device = manifest.environment, result.case.device_type
    device_name = result.measured[0].device_name if result.measured else ""
    known = {
        "name": device,
        "type": device_name,
        "cpu_info": environment.cpu,
        "cpu_count": environment.cpu_count,
        "avail_mem_in_gb": environment.host_memory_bytes // 10**9,
        "gpu_info": "" if device == "cpu" else device_name,
        "gpu_count": len(environment.gpus),
        "avail_gpu_mem_in_gb": sum(gpu.memory_bytes for gpu in environment.gpus) // 10**9 or "",
    }
    return {name: value for name, value in known.items() if value != ""}


def metrics(result: CaseResult) -> Metrics:
    """What is known of a case. A case of eager alone has a latency and a peak of memory."""
    found: Metrics = {}
    for one in result.records:
        for name, value in (_of_process(case_figures([one])) if isinstance(one.outcome, Measured) else {}).items():
            if value is not None:
                found.setdefault(name, []).append(value)
    return found


def worst_check(checks: Iterable[Check | None]) -> CheckStatus | None:
    """The worst status of a case's checks; None without checks, or if one had no reference to judge by."""
    found = {one.status for one in checks if one is not None}
    for status in (CheckStatus.INCORRECT, CheckStatus.NONDETERMINISTIC):
        if status in found:
            return status
    return CheckStatus.CORRECT if found == {CheckStatus.CORRECT} else None


def _of_process(figures: CaseFigures) -> dict[str, Any]:
    latency_s, peak_bytes, eager_peak_bytes = (
        figure(name).number(figures) for name in ("latency_s", "peak_bytes", "eager_peak_bytes")
    )
    if figures.candidate is None:
        return {"abs_latency": 1e3 * latency_s, "eager_peak_mem": _gb(eager_peak_bytes)}
    return {
        "speedup": figure("speedup").number(figures),
        "abs_latency": 1e3 * latency_s,
        "compilation_latency": _compilation_s(figures.measured),
        "compression_ratio": eager_peak_bytes / peak_bytes if eager_peak_bytes and peak_bytes else None,
        "eager_peak_mem": _gb(eager_peak_bytes),
        "dynamo_peak_mem": _gb(peak_bytes),
        **_counts(figures.record.case, figures.candidate.raw.compilation),
    }


def _gb(value_bytes: int | None) -> float | None:
    return None if value_bytes is None else value_bytes / 10**9


def _compilation_s(measured: Measured) -> float:
    """The candidate's first step less a warm step of eager; with AOTInductor, what comes before it, too."""
    eager, candidate = measured.variants[EAGER_VARIANT], measured.variants[CANDIDATE_VARIANT]
    counts = candidate.compilation
    ahead_s = 0.0
    if candidate.conversion_s is None and counts is not None and counts.package_bytes is not None:
        ahead_s = (counts.compile_s or 0.0) + (counts.load_s or 0.0)
    return ahead_s + max(0.0, candidate.first_step_s - eager.warmup_s[-1])


def _counts(case: Case, counted: Compilation | None) -> dict[str, float | None]:
    """What Dynamo counted; nothing for backends that are not behind Dynamo."""
    if counted is None or not backends.info(case.backend.name).uses_dynamo:
        return {}
    return {
        "calls_captured": counted.operators_captured,
        "unique_graphs": counted.graphs,
        "graph_breaks": sum(counted.graph_breaks.values()),
        "unique_graph_breaks": len(counted.graph_breaks),
        "cudagraph_skips": counted.cudagraph_skips,
    }


def dynamo_csv(run: Run) -> dict[str, str]:
    """File names and their text: performance, and accuracy if the run holds checks.

    There is a file for each backend, precision, mode and device, with the name that `runner.py` of `benchmarks/dynamo`
    gives it (the suite is `torchzoo`), and cases with a candidate.
    - `autograd_captures` and `autograd_compiles` stay empty: torchzoo does not count them. So do Dynamo's counts for
      backends that are not behind Dynamo. The readers there (pandas) take empty cells as missing.
    - A failed or refused case has speedup and latency 0 and nothing else, as failures have there
      (`write_csv_when_exception`; `check_perf_csv.py` needs it). A skipped case has no line.
    - If a run holds checks, `..._accuracy.csv` has their status in the words of that harness.
    """
    tables: dict[str, list[tuple[Any, ...]]] = {}
    names: dict[str, set[str]] = {}
    results = case_results(run)
    for result in results:
        case = result.case
        if case.backend == EAGER or not (result.measured or result.checked or result.failures):
            continue
        stem = _stem(case)
        if case.model in names.setdefault(stem, set()):  # the readers look a model up by its name
            stem += f"_bs{case.batch_size}"
        names.setdefault(stem, set()).add(case.model)
        if result.is_timed:
            tables.setdefault(f"{stem}_performance.csv", [PERFORMANCE]).append(_performance(result))
        if result.failures or any(result.checks):
            tables.setdefault(f"{stem}_accuracy.csv", [ACCURACY]).append(_accuracy(result))
    has_checks = any(any(result.checks) for result in results)
    return {
        name: csv_text(rows, decimals=6)
        for name, rows in tables.items()
        if has_checks or not name.endswith("_accuracy.csv")
    }


def _stem(case: Case) -> str:
    """`inductor_torchzoo_float32_training_cuda`, as `runner.py` names its outputs."""
    dtype = DTYPES.get(case.precision, str(case.precision))
    parts = [str(case.backend), "torchzoo", dtype, MODES[case.mode], case.device]
    default = msgspec.structs.replace(case, precision=Precision.DEFAULT)  # named by its dtype already
    parts += [one.replace("=", "-") for one in default.variations()]
    if case.seed:
        parts.append(f"seed{case.seed}")
    return re.sub(r"[^\w.=-]", "-", "_".join(parts))


def _performance(result: CaseResult) -> tuple[Any, ...]:
    case = result.case
    cells: dict[str, Any] = {"dev": case.device, "name": case.model, "batch_size": case.batch_size}
    if result.failures or result.status is Status.REFUSED:
        cells |= {"speedup": 0.0, "abs_latency": 0.0}
    else:
        counts = PERFORMANCE[PERFORMANCE.index("calls_captured") :]
        medians = {name: median(values) for name, values in metrics(result).items()}
        cells |= {name: round(value) if name in counts else value for name, value in medians.items()}
    return tuple(cells.get(name, "") for name in PERFORMANCE)


def _accuracy(result: CaseResult) -> tuple[Any, ...]:
    return (result.case.device, result.case.model, result.case.batch_size, accuracy_status(result))


def accuracy_status(result: CaseResult) -> str:
    """The worst status of the processes, in the harness's words; empty if there was no reference to judge by."""
    if result.failures:
        return _FAILURES.get(result.failures[0].kind, "fail_to_run")
    if result.status is Status.REFUSED:
        return "fail_to_run"
    worst = worst_check(result.checks)
    return "" if worst is None else _STATUSES[worst]
