"""A run as the CSV files of PyTorch's dynamo benchmarks. What torchzoo does not know is left out.

The files have the columns of `benchmarks/dynamo`, one for each backend, precision, mode and device. They have the names
that its `runner.py` gives them (with `torchzoo` as the suite). They hold cases with a candidate.
- `compilation_latency` is the candidate's first step less a warm step of eager.
- `autograd_captures` and `autograd_compiles` stay empty: torchzoo does not count them. Dynamo's
  counts stay empty for backends that are not behind Dynamo. The readers there (pandas) take empty cells as missing.
- A failed or refused case has speedup and latency 0 and nothing else. That is how the harness marks a failure
  (`write_csv_when_exception`), and its `check_perf_csv.py` needs it. A skipped case has no line.
- If a run holds checks, `..._accuracy.csv` has their status in the words of that harness.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from torchzoo.analysis.cases import CaseResult, Status, case_results
from torchzoo.analysis.export_metrics import median_metrics, worst_check
from torchzoo.case import EAGER, Case, Mode, Precision
from torchzoo.record import CheckStatus, FailureKind
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


def dynamo_csv(run: Run) -> dict[str, str]:
    """File names and their text: performance, and accuracy if the run holds checks."""
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
    cells: dict[str, Any] = {
        "dev": result.case.device,
        "name": result.case.model,
        "batch_size": result.case.batch_size,
    }
    if result.failures or result.status is Status.REFUSED:
        cells |= {"speedup": 0.0, "abs_latency": 0.0}
    else:
        cells |= median_metrics(result)
        for name in ("calls_captured", "unique_graphs", "graph_breaks", "unique_graph_breaks", "cudagraph_skips"):
            if name in cells:
                cells[name] = round(cells[name])
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
