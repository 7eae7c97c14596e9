"""A run in the forms that PyTorch's own dashboards and scripts read; nothing is in them that torchzoo does not know.

JSON Lines in the layout of PyTorch's benchmark database: a record for each case and metric, with the fields of
`clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql` in pytorch/test-infra and metrics named as `output_json` of
pytorch/pytorch's `benchmarks/dynamo/common.py` names them. `benchmark_values` holds one value for each process. What
says which change and which job was tested (`name`, `repo`, `head_branch`, `head_sha`, `workflow_id`, `run_attempt`,
`job_id`) is left to the upload, which adds it (`.github/scripts/benchmarks/gather_metadata.py` there).

CSV files with the columns of `benchmarks/dynamo`, one for each backend, precision, mode and device as its `runner.py`
names them (with `torchzoo` for the suite), for cases with a candidate. Their units are that harness's: milliseconds,
seconds, and GB of 10**9 bytes (on the CPU: resident memory).
- `compilation_latency` is the candidate's first step less a warm step of eager.
- `calls_captured`, `autograd_captures` and `autograd_compiles` stay empty: torchzoo does not count them; so do Dynamo's
  counts for backends that are not behind it. The readers there (pandas) take empty cells as missing.
- A failed case has speedup and latency 0, that harness's mark of a failure (`write_csv_when_exception`), which its
  `check_perf_csv.py` needs, and nothing else; a skipped case has no line.
- Where a run holds checks, `..._accuracy.csv` has their status in that harness's words.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from torchzoo import backends, stats
from torchzoo.analysis.cases import case_results
from torchzoo.case import EAGER, Case, CompileScope, MemoryFormat, Mode, Precision
from torchzoo.record import (
    CANDIDATE_VARIANT,
    EAGER_VARIANT,
    CheckStatus,
    Compilation,
    Failed,
    FailureKind,
    Manifest,
    Measured,
    Memory,
)
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
MODES = {Mode.TRAIN: "training", Mode.EVAL: "inference"}
DTYPES = {
    Precision.DEFAULT: "float32",  # as that harness calls PyTorch out of the box
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

Metrics = dict[str, list[float]]  # name: a value for each process


# --- JSON Lines ---


def benchmark_database(run: Run) -> str:
    """The run as JSON Lines for PyTorch's benchmark database."""
    lines = [json.dumps(result, allow_nan=False) for result in _database_records(run)]
    return "".join(f"{line}\n" for line in lines)


def _database_records(run: Run) -> Iterator[dict[str, Any]]:
    dependencies, runner = _dependencies(run.manifest), _runner(run.manifest)
    for result in case_results(run):
        case, measured = result.case, result.measured
        for name, values in metrics(case, measured).items():
            yield {
                "timestamp": int(
                    max(datetime.fromisoformat(record.finished_at) for record in result.records).timestamp()
                ),
                "schema_version": "v3",
                "runners": [{**runner, "gpu_info": measured[0].device_name if case.device != "cpu" else ""}],
                "benchmark": {
                    "name": "torchzoo",
                    "mode": MODES[case.mode],
                    "dtype": _dtype(case, measured),
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
    """Text only: the database's column is a map of strings."""
    info = {"device": case.device, "batch_size": str(case.batch_size), "precision": str(case.precision)}
    if case.memory_format is not MemoryFormat.CONTIGUOUS:
        info["memory_format"] = case.memory_format
    if case.compile_scope is not CompileScope.NETWORK:
        info["compile_scope"] = case.compile_scope
    return info


def _dtype(case: Case, measured: Sequence[Measured]) -> str:
    """That of the label; of `default` that in which most operators computed."""
    if case.precision is Precision.FP32:
        return "float32"
    if case.precision is not Precision.DEFAULT:
        return DTYPES.get(case.precision, str(case.precision))
    counts = measured[0].operator_dtypes if measured else {}
    return max(counts, key=lambda dtype: counts[dtype]) if counts else ""


def _dependencies(manifest: Manifest) -> dict[str, dict[str, str]]:
    environment = manifest.environment
    torch = {"repo": "pytorch/pytorch", "sha": environment.get("torch_commit"), "version": environment.get("torch")}
    found: dict[str, dict[str, str | None]] = {"pytorch": torch}
    found["torchzoo"] = {"version": environment.get("torchzoo"), "sha": environment.get("torchzoo_commit")}
    found |= {name: {"version": version} for name, version in (environment.get("packages") or {}).items()}
    return {name: {key: value for key, value in facts.items() if value} for name, facts in found.items()}


def _runner(manifest: Manifest) -> dict[str, Any]:
    environment = manifest.environment
    known = {
        "cpu_info": environment.get("cpu"),
        "cpu_count": environment.get("cpu_count"),
        "avail_mem_in_gb": environment["host_memory_bytes"] // 10**9 if "host_memory_bytes" in environment else None,
        "gpu_count": len(environment.get("gpus") or []),
    }
    return {name: value for name, value in known.items() if value is not None}


# --- metrics, in the units of benchmarks/dynamo ---


def metrics(case: Case, measured: Sequence[Measured]) -> Metrics:
    """What is known of a case, by that harness's names; eager alone has a latency and a peak of memory."""
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


def _known(found: dict[str, list[float | None]]) -> Metrics:
    kept = {name: [value for value in values if value is not None] for name, values in found.items()}
    return {name: values for name, values in kept.items() if values}


def _peak_gb(memory: Memory, case: Case) -> float | None:
    peak = memory.host_peak_rss_bytes if case.device == "cpu" else memory.device_peak_allocated_bytes
    return None if peak is None else peak / 10**9


def _compilation_s(measured: Measured) -> float:
    eager, candidate = measured.variants[EAGER_VARIANT], measured.variants[CANDIDATE_VARIANT]
    return max(0.0, candidate.first_step_s - eager.warmup_s[-1])


def _counts(case: Case, compilations: Iterable[Compilation | None]) -> Metrics:
    counted = [compilation for compilation in compilations if compilation is not None]
    if not counted or not backends.info(case.backend.name).uses_dynamo:
        return {}
    return {
        "unique_graphs": [float(one.graphs) for one in counted],
        "graph_breaks": [float(sum(one.graph_breaks.values())) for one in counted],
        "unique_graph_breaks": [float(len(one.graph_breaks)) for one in counted],
        "cudagraph_skips": [float(one.cudagraph_skips) for one in counted],
    }


# --- CSV ---


def dynamo_csv(run: Run) -> dict[str, str]:
    """File names and their text: performance, and accuracy where the run holds checks."""
    tables: dict[str, list[tuple[Any, ...]]] = {}
    names: dict[str, set[str]] = {}
    results = case_results(run)
    for result in results:
        case, measured, failed = result.case, result.measured, result.failures
        if case.backend == EAGER or not (measured or failed):
            continue
        stem = _stem(case)
        if case.model in names.setdefault(stem, set()):  # the readers look a model up by its name
            stem += f"_bs{case.batch_size}"
        names.setdefault(stem, set()).add(case.model)
        tables.setdefault(f"{stem}_performance.csv", [PERFORMANCE]).append(_performance(case, measured, failed))
        if failed or any(one.check is not None for one in measured):
            tables.setdefault(f"{stem}_accuracy.csv", [ACCURACY]).append(_accuracy(case, measured, failed))
    has_checks = any(one.check is not None for result in results for one in result.measured)
    return {name: _as_csv(rows) for name, rows in tables.items() if has_checks or not name.endswith("_accuracy.csv")}


def _stem(case: Case) -> str:
    """`inductor_torchzoo_float32_training_cuda`, as `runner.py` names its outputs."""
    dtype = DTYPES.get(case.precision, str(case.precision))
    parts = [str(case.backend), "torchzoo", dtype, MODES[case.mode], case.device]
    if case.memory_format is not MemoryFormat.CONTIGUOUS:
        parts.append(case.memory_format)
    if case.compile_scope is not CompileScope.NETWORK:
        parts.append(f"scope-{case.compile_scope}")
    if case.seed:
        parts.append(f"seed{case.seed}")
    return "_".join(parts).replace(":", "-").replace("/", "-")


def _performance(case: Case, measured: Sequence[Measured], failed: Sequence[Failed]) -> tuple[Any, ...]:
    head = {"dev": case.device, "name": case.model, "batch_size": case.batch_size}
    if failed:
        cells: dict[str, Any] = {**head, "speedup": 0.0, "abs_latency": 0.0}
    else:
        cells = {**head, **{name: median(values) for name, values in metrics(case, measured).items() if values}}
        for name in ("unique_graphs", "graph_breaks", "unique_graph_breaks", "cudagraph_skips"):
            if name in cells:
                cells[name] = round(cells[name])
    return tuple(cells.get(name, "") for name in PERFORMANCE)


def _accuracy(case: Case, measured: Sequence[Measured], failed: Sequence[Failed]) -> tuple[Any, ...]:
    """The worst of the processes' statuses; empty where there was no reference to judge by."""
    if failed:
        status = _FAILURES.get(failed[0].kind, "fail_to_run")
    else:
        found = {one.check.status for one in measured if one.check is not None}
        worst: list[CheckStatus] = [
            status for status in (CheckStatus.INCORRECT, CheckStatus.NONDETERMINISTIC) if status in found
        ]
        worst += [CheckStatus.CORRECT] if found == {CheckStatus.CORRECT} else []
        status = _STATUSES[worst[0]] if worst else ""
    return (case.device, case.model, case.batch_size, status)


def _as_csv(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow([f"{cell:.6f}" if isinstance(cell, float) else cell for cell in row])
    return text.getvalue()
