"""Runs for PyTorch's dashboard: each record fits the database's schema, and its raw samples give the figures again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from examples import GB, INDUCTOR, compiled, environment, measured, record, run_of, variant_result
from torchzoo import stats
from torchzoo.case import EAGER, Backend, CompileScope, MemoryFormat, Mode, Parallel, Precision
from torchzoo.record import Block, Check, CheckStatus, Compilation, Failed, FailureKind, Gpu, Record, Skipped
from torchzoo.report.exports import hud_v3
from torchzoo.settings import Stage

SCHEMA = json.loads(Path(__file__).with_name("hud_v3.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
GPU = Gpu(name="a GPU", memory_bytes=80 * GB, driver="1")
MACHINE = environment(torch_commit="abc123", host_memory_bytes=64 * GB, cpu_count=8, gpus=(GPU, GPU))
FAILED = Failed(kind=FailureKind.OOM_DEVICE, stage=Stage.WARM_UP, message="out")


def entries(*found: Record) -> list[dict[str, Any]]:
    """The records of a run with these outcomes. All of them fit the schema."""
    lines = [json.loads(line) for line in hud_v3(run_of(found, environment=MACHINE)).splitlines()]
    for line in lines:
        VALIDATOR.validate(line)
    return lines


def by_metric(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {line["metric"]["name"]: line["metric"] for line in lines}


def test_the_schema_is_one_and_refuses_what_does_not_fit() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    good = entries(record())[0]
    for changes in (
        {"run": "x"},
        {"timestamp": 1_795_168_809_000},  # milliseconds
        {"metric": {"name": "speedup"}},
        {"metric": {"name": "speedup", "benchmark_values": ["pass"]}},
        {"benchmark": {"name": "torchzoo", "extra_info": {"batch_size": 16}}},  # a map of strings
        {"runners": [{"cpu_count": -1}]},
    ):
        assert not VALIDATOR.is_valid({**good, **changes}), changes


def test_every_axis_fits_the_schema() -> None:
    axes: list[dict[str, Any]] = [
        {"mode": Mode.DECODE, "precision": Precision.BF16},
        {"memory_format": MemoryFormat.CHANNELS_LAST, "compile_scope": CompileScope.STEP, "seed": 3},
        {"world": 4, "parallel": Parallel.DDP, "device": "cuda"},
    ]
    lines = entries(*(record(compiled(), backend=INDUCTOR, **one) for one in axes))
    info = [line["benchmark"]["extra_info"] for line in lines if line["metric"]["name"] == "speedup"]
    assert [sorted(set(one) - {"device", "batch_size", "precision"}) for one in info] == [
        [],
        ["compile_scope", "memory_format", "seed"],
        ["parallel"],
    ]


def test_each_process_gives_a_value_and_samples_of_its_own() -> None:
    lines = entries(record(), record(repeat=1), record(FAILED, repeat=2))
    assert by_metric(lines)["abs_latency"]["benchmark_values"] == pytest.approx([100.5, 100.5])
    raw = [line["metric"] for line in lines if line["metric"]["name"] == "step_latency"]
    assert [one["extra_info"]["process"] for one in raw] == ["0", "1"]
    assert raw[0]["benchmark_values"] == pytest.approx([100.0, 101.0] * 10)


def test_compiling_ahead_of_the_first_step_counts_as_compilation() -> None:
    packed = Compilation(compile_s=30.0, load_s=0.5, package_bytes=GB)
    variants = {"eager": variant_result(), "candidate": variant_result(first_step_s=0.3, compilation=packed)}
    found = by_metric(entries(record(compiled(variants=variants), backend=Backend("aoti"))))
    assert found["compilation_latency"]["benchmark_values"] == pytest.approx([30.7])
    assert "unique_graphs" not in found


def test_the_raw_samples_give_the_speedup_again() -> None:
    """Whoever reads the database can pair the blocks as the run did."""
    times = {"eager": (0.3, 0.31), "candidate": (0.1, 0.12, 0.11)}
    names = ["eager", "candidate", "candidate", "eager"] * 8
    blocks = tuple(Block(name, times[name]) for name in names)
    found = by_metric(entries(record(compiled(blocks=blocks), backend=INDUCTOR)))
    metrics = {"eager": found["eager_step_latency"], "candidate": found["step_latency"]}
    left = {name: iter(metric["benchmark_values"]) for name, metric in metrics.items()}
    sizes = {name: iter(metric["extra_info"]["block_sizes"].split(",")) for name, metric in metrics.items()}
    rebuilt = [
        Block(name, tuple(next(left[name]) / 1e3 for _ in range(int(next(sizes[name])))))
        for name in metrics["eager"]["extra_info"]["block_order"].split(",")
    ]
    assert stats.speedup(rebuilt).value == pytest.approx(found["speedup"]["benchmark_values"][0])
    assert [list(one) for one in left.values()] == [[], []]


def test_checks_become_words_as_the_dashboard_reads_them() -> None:
    statuses = {status: compiled(check=Check(status=status)) for status in CheckStatus}
    found = [record(outcome, backend=INDUCTOR, model=status) for status, outcome in statuses.items()]
    found += [record(FAILED, backend=INDUCTOR, model="failed"), record(Skipped(reason="no"), model="skipped")]
    lines = [line for line in entries(*found) if line["metric"]["name"] == "accuracy"]
    assert {line["model"]["name"]: line["metric"]["extra_info"]["benchmark_values"] for line in lines} == {
        "correct": '["pass"]',
        "incorrect": '["fail_accuracy"]',
        "nondeterministic": '["eager_two_runs_differ"]',
        "failed": '["OOM"]',
    }
    assert {tuple(line["metric"]["benchmark_values"]) for line in lines} == {()}


def test_the_dtype_of_a_label_and_of_none() -> None:
    found = [
        record(measured(operator_dtypes={"float64": 9, "float32": 1}), model="hpc"),
        record(precision=Precision.AMP, model="amp"),
        record(precision=Precision.FP32, model="fp32"),
    ]
    dtypes = {line["model"]["name"]: line["benchmark"]["dtype"] for line in entries(*found)}
    assert dtypes == {"hpc": "float64", "amp": "amp", "fp32": "float32"}


def test_a_case_of_eager_alone_has_its_own_samples_once() -> None:
    lines = entries(record(backend=EAGER))
    assert sorted(by_metric(lines)) == ["abs_latency", "eager_peak_mem", "step_latency"]
