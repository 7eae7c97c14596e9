"""Runs for other programs: the columns of PyTorch's dynamo benchmarks, and the command."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest

from examples import GB, INDUCTOR, compared, compiled, environment, manifest, record, variant_result
from torchzoo.case import Backend, Mode, Precision
from torchzoo.cli import main
from torchzoo.record import Check, CheckStatus, Failed, FailureKind, Record, Skipped
from torchzoo.report import exports
from torchzoo.settings import Stage
from torchzoo.store import Run, RunStore

FAILED = Failed(kind=FailureKind.OOM_DEVICE, stage=Stage.WARM_UP, message="out")


def run_of(*found: Record) -> Run:
    facts = environment(torch_commit="abc123", host_memory_bytes=64 * GB)
    made = manifest(cases=tuple(one.case for one in found), environment=facts)
    return Run(path=Path("run"), manifest=made, records=found)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


# --- CSV ---


def test_a_line_has_the_columns_and_units_of_the_dynamo_benchmarks() -> None:
    files = exports.dynamo_csv(run_of(record(compiled(), backend=INDUCTOR, device="cuda", batch_size=16)))
    assert list(files) == ["inductor_torchzoo_float32_inference_cuda_performance.csv"]
    [text] = files.values()
    assert text.splitlines()[0] == (
        "dev,name,batch_size,speedup,abs_latency,compilation_latency,compression_ratio,eager_peak_mem,dynamo_peak_mem,"
        "calls_captured,unique_graphs,graph_breaks,unique_graph_breaks,autograd_captures,autograd_compiles,"
        "cudagraph_skips"
    )
    assert text.splitlines()[1] == "cuda,tiny,16,2.000000,100.000000,12.000000,2.000000,2.000000,1.000000,,2,4,2,,,1"


def test_a_failure_is_marked_as_the_readers_know_it_and_a_skip_has_no_line() -> None:
    found = [record(FAILED, backend=INDUCTOR, model="bad"), record(Skipped(reason="no"), backend=INDUCTOR, model="no")]
    [text] = exports.dynamo_csv(run_of(*found)).values()
    [row] = table(text)
    assert (row["name"], float(row["speedup"]), float(row["abs_latency"])) == ("bad", 0.0, 0.0)
    assert {row[name] for name in exports.PERFORMANCE[5:]} == {""}


def test_what_is_not_known_is_empty() -> None:
    quiet = msgspec.structs.replace(compared(), variants={"eager": variant_result(), "candidate": variant_result()})
    on_gpu = record(quiet, backend=Backend("torchscript"), device="cuda")
    [text] = exports.dynamo_csv(run_of(on_gpu)).values()
    [row] = table(text)
    assert row["speedup"] == "2.000000"
    assert {row[name] for name in ("eager_peak_mem", "dynamo_peak_mem", "compression_ratio", "graph_breaks")} == {""}


def test_axes_are_files_and_a_model_stands_once_in_each() -> None:
    found = [
        record(compiled(), backend=INDUCTOR),
        record(compiled(), backend=INDUCTOR, batch_size=64),
        record(compiled(), backend=INDUCTOR, mode=Mode.TRAIN),
        record(compiled(), backend=Backend("inductor", "reduce-overhead"), precision=Precision.AMP),
        record(),
    ]
    files = exports.dynamo_csv(run_of(*found))
    assert sorted(files) == [
        "inductor-reduce-overhead_torchzoo_amp_inference_cpu_performance.csv",
        "inductor_torchzoo_float32_inference_cpu_bs64_performance.csv",
        "inductor_torchzoo_float32_inference_cpu_performance.csv",
        "inductor_torchzoo_float32_training_cpu_performance.csv",
    ]
    assert all(len(table(text)) == 1 for text in files.values())


def test_checks_become_an_accuracy_file() -> None:
    statuses = {status: compiled(check=Check(status=status)) for status in CheckStatus}
    found = [record(outcome, backend=INDUCTOR, model=status) for status, outcome in statuses.items()]
    found.append(record(FAILED, backend=INDUCTOR, model="failed"))
    files = exports.dynamo_csv(run_of(*found))
    rows = table(files["inductor_torchzoo_float32_inference_cpu_accuracy.csv"])
    assert {row["name"]: row["accuracy"] for row in rows} == {
        "correct": "pass",
        "partly_correct": "",
        "incorrect": "fail_accuracy",
        "nondeterministic": "eager_two_runs_differ",
        "reference_failed": "",
        "not_reached": "",
        "failed": "OOM",
    }


def test_pandas_reads_it_as_the_dynamo_scripts_do() -> None:
    """As `check_perf_csv.py` does: by name, numbers as floats, empty cells as missing."""
    pandas = pytest.importorskip("pandas")
    found = [record(compiled(), backend=INDUCTOR), record(FAILED, backend=INDUCTOR, model='bad,"name')]
    [text] = exports.dynamo_csv(run_of(*found)).values()
    frame = pandas.read_csv(io.StringIO(text))
    assert frame.loc[frame["name"] == "tiny"]["speedup"].item() == 2.0
    assert frame.loc[frame["name"] == 'bad,"name']["speedup"].item() == 0.0
    assert frame["calls_captured"].isna().all()


# --- the command ---


def keep(path: Path, *found: Record) -> str:
    with RunStore(path) as run_store:
        run_store.begin(run_of(*found).manifest)
        for one in found:
            run_store.append(one)
    return str(path)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = keep(tmp_path / "one", record(compiled(), backend=INDUCTOR))
    assert main(["export", one, "--format", "dynamo-csv"]) == 0
    assert capsys.readouterr().out.startswith("dev,name,batch_size,speedup")
    assert main(["export", one, "--format", "hud-v3", "-o", str(tmp_path / "out.json")]) == 0
    assert len((tmp_path / "out.json").read_text().splitlines()) == 12
    two = keep(
        tmp_path / "two", record(compiled(), backend=INDUCTOR), record(compiled(), backend=INDUCTOR, mode=Mode.TRAIN)
    )
    assert main(["export", two, "--format", "dynamo-csv"]) == 2
    assert "name a folder for them with -o" in capsys.readouterr().err
    assert main(["export", two, "--format", "dynamo-csv", "-o", str(tmp_path / "csv")]) == 0
    assert len(list((tmp_path / "csv").iterdir())) == 2


def test_nothing_to_export_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    eager = keep(tmp_path / "eager", record())
    assert main(["export", eager, "--format", "dynamo-csv"]) == 2
    assert "no case of a backend beside eager" in capsys.readouterr().err
    failed = keep(tmp_path / "failed", record(FAILED))
    assert main(["export", failed, "--format", "hud-v3"]) == 2
    assert "no measured case" in capsys.readouterr().err
    assert main(["export", eager, "--format", "hud-v3", "-o", str(tmp_path / "no" / "x")]) == 2
    assert "can't write" in capsys.readouterr().err
