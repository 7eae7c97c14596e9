"""A run for PyTorch's dashboard: JSON Lines for its benchmark database, with the raw samples.

The layout is version 3 of the database's: `clickhouse_db_schema/oss_ci_benchmark_v3/schema.sql` in pytorch/test-infra,
and the page "PyTorch OSS benchmark infra" of pytorch's wiki. There is a record for each case and metric.
- Metrics have the names and units that `output_json` in `benchmarks/dynamo/common.py` of pytorch/pytorch gives them.
  `benchmark_values` holds one value for each process.
- `accuracy`, if the run holds checks, has no value but a word, as there: in `extra_info`.
- `step_latency` and `eager_step_latency` are the raw samples of one process: the milliseconds of each timed step, in
  order. `extra_info` says how they were timed: `block_order` has the blocks of eager and candidate in order,
  `block_sizes` how many of these steps are in each block of this variant. So the speedup can be computed again.

The upload adds which change and which job was tested (`name`, `repo`, `head_branch`, `head_sha`, `workflow_id`,
`run_attempt`, `job_id`): `.github/scripts/benchmarks/gather_metadata.py` there. What torchzoo does not know is left
out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.export_metrics import metrics, most_used_dtype
from torchzoo.case import AXES, EAGER, Case, Parallel, Precision
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Manifest, Measured
from torchzoo.report.exports import DTYPES, MODES, accuracy_status
from torchzoo.store import Run


def hud_v3(run: Run) -> str:
    """The run as JSON Lines; empty if nothing was measured."""
    lines = [json.dumps(record, allow_nan=False) for record in _records(run)]
    return "".join(f"{line}\n" for line in lines)


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
    return {
        "timestamp": int(finished.timestamp()),
        "schema_version": "v3",
        "runners": [_runner(result, manifest)],
        "benchmark": {
            "name": "torchzoo",
            "mode": MODES[case.mode],
            "dtype": _dtype(result),
            "extra_info": _extra_info(case),
        },
        "model": {"name": case.model, "type": "model", "backend": str(case.backend), "origins": ["torchzoo"]},
    }


def _metrics(result: CaseResult, *, has_checks: bool) -> Iterator[dict[str, Any]]:
    for name, values in metrics(result).items():
        yield {"name": name, "benchmark_values": values}
    if has_checks and result.case.backend != EAGER and (status := accuracy_status(result)):
        yield {"name": "accuracy", "benchmark_values": [], "extra_info": {"benchmark_values": json.dumps([status])}}
    for record in result.records:
        if isinstance(record.outcome, Measured):
            yield from _raw_samples(
                record.outcome, repeat=record.case.repeat, has_candidate=result.case.backend != EAGER
            )


def _raw_samples(measured: Measured, *, repeat: int, has_candidate: bool) -> Iterator[dict[str, Any]]:
    names = {CANDIDATE_VARIANT: "step_latency", EAGER_VARIANT: "eager_step_latency"}
    if not has_candidate:
        names = {EAGER_VARIANT: "step_latency"}
    order = ",".join(block.variant for block in measured.blocks)
    for variant, name in names.items():
        blocks = [block.samples_s for block in measured.blocks if block.variant == variant]
        yield {
            "name": name,
            "benchmark_values": [1e3 * sample for samples in blocks for sample in samples],
            "extra_info": {
                "unit": "ms",
                "process": str(repeat),
                "block_order": order,
                "block_sizes": ",".join(str(len(samples)) for samples in blocks),
            },
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
    if precision is Precision.FP32:
        return "float32"
    if precision is not Precision.DEFAULT:
        return DTYPES.get(precision, str(precision))
    return most_used_dtype(result.measured) or ""


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
        "gpu_info": None if device == "cpu" else device_name,
        "gpu_count": len(environment.gpus),
        "avail_gpu_mem_in_gb": sum(gpu.memory_bytes for gpu in environment.gpus) // 10**9 or None,
    }
    return {name: value for name, value in known.items() if value not in (None, "")}
