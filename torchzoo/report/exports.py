"""A run in the forms that PyTorch's own dashboards and scripts read. What torchzoo does not know is left out.

JSON Lines for PyTorch's benchmark database, one record for each case and metric. The fields are those of
`clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql` in pytorch/test-infra. The metrics have the names that
`output_json` in `benchmarks/dynamo/common.py` of pytorch/pytorch gives them. `benchmark_values` holds one value for
each process. The upload adds which change and which job was tested (`name`, `repo`, `head_branch`, `head_sha`,
`workflow_id`, `run_attempt`, `job_id`): `.github/scripts/benchmarks/gather_metadata.py` there.

CSV files with the columns of `benchmarks/dynamo`, one for each backend, precision, mode and device. They have the names
that its `runner.py` gives them (with `torchzoo` as the suite). They hold cases with a candidate.
- `compilation_latency` is the candidate's first step less a warm step of eager.
- `calls_captured`, `autograd_captures` and `autograd_compiles` stay empty: torchzoo does not count them. Dynamo's
  counts stay empty for backends that are not behind Dynamo. The readers there (pandas) take empty cells as missing.
- A failed case has speedup and latency 0 and nothing else. That is how the harness marks a failure
  (`write_csv_when_exception`), and its `check_perf_csv.py` needs it. A skipped case has no line.
- If a run holds checks, `..._accuracy.csv` has their status in the words of that harness.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.export_metrics import median_metrics, metrics, most_used_dtype, worst_check
from torchzoo.case import EAGER, Case, CompileScope, MemoryFormat, Mode, Precision
from torchzoo.record import CheckStatus, FailureKind, Manifest
from torchzoo.report.text import csv_text
from torchzoo.store import Run

PERFORMANCE = (
    "dev",
    "name",
    "batch_size",
    "speedup",
    "abs_latency",
    "compilation_latency",
    "compression_ratio",
    "eager_peak_mem",
    "dynamo_peak_mem",
    "calls_captured",
    "unique_graphs",
    "graph_breaks",
    "unique_graph_breaks",
    "autograd_captures",
    "autograd_compiles",
    "cudagraph_skips",
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


# --- JSON Lines ---


def benchmark_database(run: Run) -> str:
    """The run as JSON Lines for PyTorch's benchmark database."""
    lines = [json.dumps(result, allow_nan=False) for result in _database_records(run)]
    return "".join(f"{line}\n" for line in lines)


def _database_records(run: Run) -> Iterator[dict[str, Any]]:
    dependencies, runner = _dependencies(run.manifest), _runner(run.manifest)
    for result in case_results(run):
        case = result.case
        for name, values in metrics(result).items():
            yield {
                "timestamp": int(
                    max(datetime.fromisoformat(record.finished_at) for record in result.records).timestamp()
                ),
                "schema_version": "v3",
                "runners": [{**runner, "gpu_info": result.measured[0].device_name if case.device != "cpu" else ""}],
                "benchmark": {
                    "name": "torchzoo",
                    "mode": MODES[case.mode],
                    "dtype": _dtype(result),
                    "extra_info": _extra_info(case),
                },
                "model": {
                    "name": case.model,
                    "type": "model",
                    "backend": str(case.backend),
                    "origins": ["torchzoo"],
                },
                "dependencies": dependencies,
                "metric": {"name": name, "benchmark_values": values},
            }


def _extra_info(case: Case) -> dict[str, str]:
    """Further axes of the case. Only text: the database's column is a map of strings."""
    info = {"device": case.device, "batch_size": str(case.batch_size), "precision": str(case.precision)}
    if case.memory_format is not MemoryFormat.CONTIGUOUS:
        info["memory_format"] = case.memory_format
    if case.compile_scope is not CompileScope.NETWORK:
        info["compile_scope"] = case.compile_scope
    if case.world > 1:
        info["parallel"] = case.gang_label()
    return info


def _dtype(result: CaseResult) -> str:
    """The dtype of the precision. For `default`, the one in which most operators computed."""
    precision = result.case.precision
    if precision is Precision.FP32:
        return "float32"
    if precision is not Precision.DEFAULT:
        return DTYPES.get(precision, str(precision))
    return most_used_dtype(result.measured) or ""


def _dependencies(manifest: Manifest) -> dict[str, dict[str, str]]:
    environment = manifest.environment
    torch = {"repo": "pytorch/pytorch", "sha": environment.get("torch_commit"), "version": environment.get("torch")}
    found: dict[str, dict[str, str | None]] = {"pytorch": torch}
    found["torchzoo"] = {"version": environment.get("torchzoo"), "sha": environment.get("torchzoo_commit")}
    found |= {name: {"version": version} for name, version in (environment.get("packages") or {}).items()}
    return {name: {key: value for key, value in about.items() if value} for name, about in found.items()}


def _runner(manifest: Manifest) -> dict[str, Any]:
    environment = manifest.environment
    known = {
        "cpu_info": environment.get("cpu"),
        "cpu_count": environment.get("cpu_count"),
        "avail_mem_in_gb": environment["host_memory_bytes"] // 10**9 if "host_memory_bytes" in environment else None,
        "gpu_count": len(environment.get("gpus") or []),
    }
    return {name: value for name, value in known.items() if value is not None}


# --- CSV ---


def dynamo_csv(run: Run) -> dict[str, str]:
    """File names and their text: performance, and accuracy if the run holds checks."""
    tables: dict[str, list[tuple[Any, ...]]] = {}
    names: dict[str, set[str]] = {}
    results = case_results(run)
    for result in results:
        case = result.case
        if case.backend == EAGER or not (result.measured or result.failures):
            continue
        stem = _stem(case)
        if case.model in names.setdefault(stem, set()):  # the readers look a model up by its name
            stem += f"_bs{case.batch_size}"
        names.setdefault(stem, set()).add(case.model)
        tables.setdefault(f"{stem}_performance.csv", [PERFORMANCE]).append(_performance(result))
        if result.failures or any(one.check is not None for one in result.measured):
            tables.setdefault(f"{stem}_accuracy.csv", [ACCURACY]).append(_accuracy(result))
    has_checks = any(one.check is not None for result in results for one in result.measured)
    return {
        name: csv_text(rows, decimals=6)
        for name, rows in tables.items()
        if has_checks or not name.endswith("_accuracy.csv")
    }


def _stem(case: Case) -> str:
    """`inductor_torchzoo_float32_training_cuda`, as `runner.py` names its outputs."""
    dtype = DTYPES.get(case.precision, str(case.precision))
    parts = [str(case.backend), "torchzoo", dtype, MODES[case.mode], case.device]
    if case.memory_format is not MemoryFormat.CONTIGUOUS:
        parts.append(case.memory_format)
    if case.compile_scope is not CompileScope.NETWORK:
        parts.append(f"scope-{case.compile_scope}")
    if case.world > 1:
        parts.append(case.gang_label())
    if case.seed:
        parts.append(f"seed{case.seed}")
    return re.sub(r"[^\w.=-]", "-", "_".join(parts))


def _performance(result: CaseResult) -> tuple[Any, ...]:
    cells: dict[str, Any] = {
        "dev": result.case.device,
        "name": result.case.model,
        "batch_size": result.case.batch_size,
    }
    if result.failures:
        cells |= {"speedup": 0.0, "abs_latency": 0.0}
    else:
        cells |= median_metrics(result)
        for name in ("unique_graphs", "graph_breaks", "unique_graph_breaks", "cudagraph_skips"):
            if name in cells:
                cells[name] = round(cells[name])
    return tuple(cells.get(name, "") for name in PERFORMANCE)


def _accuracy(result: CaseResult) -> tuple[Any, ...]:
    """The worst status of the processes; empty if there was no reference to judge by."""
    if result.failures:
        status = _FAILURES.get(result.failures[0].kind, "fail_to_run")
    else:
        worst = worst_check(result.measured)
        status = "" if worst is None else _STATUSES[worst]
    return (result.case.device, result.case.model, result.case.batch_size, status)
