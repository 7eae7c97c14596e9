"""Documents of the studies of torch.compile, from made-up records: nanoGPT, ResNets, GPT-2 by mode."""

from __future__ import annotations

import gc
import multiprocessing
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from benchmark_runs import beside, figures, module, report, run_of, table
from study_records import CRASHED, alone, in_turns, late, trained
from syrupy.assertion import SnapshotAssertion

from examples import INDUCTOR, by_itself, variant_result
from torchzoo.case import Backend, Mode, Precision
from torchzoo.record import Block, MeasuredPeaks
from torchzoo.studies import study
from torchzoo.zoo.catalog import find_models, load_model_class

# --- nanogpt ---


@pytest.fixture
def peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a run that keeps the measured peaks of its machine; this machine has none."""
    monkeypatch.setenv("TORCHZOO_CACHE", str(tmp_path / "cache"))
    found = {"NVIDIA H200": MeasuredPeaks(tflop_per_s={"bf16": 700.0}, torch="2.15.0", date="2026-11-22")}
    (tmp_path / "peaks.yaml").write_bytes(msgspec.yaml.encode(found))
    return tmp_path


def test_nanogpt_has_means_deviations_and_both_utilisations(peaks: Path, snapshot: SnapshotAssertion) -> None:
    sizes: dict[str, Any] = {"parameters": 124373760, "samples_per_step": 480, "device_name": "NVIDIA H200"}
    axes: dict[str, Any] = {"precision": Precision.AMP_BF16}
    run = run_of(
        [
            trained("nanogpt_gpt2_iteration", alone(1.0, 1.1, 1.2, **sizes), **axes),
            trained("nanogpt_gpt2_iteration", in_turns(1.5, 0.5, **sizes), Backend("cudagraphs"), **axes),
            trained("nanogpt_gpt2_iteration", CRASHED, INDUCTOR, **axes),
        ],
        peaks,
    )
    text = report("nanogpt", run)
    assert figures(text) == snapshot
    shares = beside(text, "Table 2, model FLOPs utilisation")
    operations = (6 * (124373760 - 1024 * 768) + 12 * 12 * 768 * 1024) * 491520
    assert operations == pytest.approx(0.43337 * 312e12 * 3.107334, rel=1e-3)  # the formula gives the report's own MFU
    assert shares["gpt2, cudagraphs, of the measured peak"][1].startswith(f"{operations / 0.5 / 700e10:.0f} %")
    assert shares["gpt2, eager, of the datasheet's peak"][1].startswith(f"{operations / 1.1 / 989.5e10:.1f} %")
    first = msgspec.structs.replace(run, path=Path("/first"))
    joined = msgspec.structs.replace(first, joined=(first, run))  # the second part has the peaks
    again = beside(report("nanogpt", joined), "Table 2, model FLOPs utilisation")
    assert again["gpt2, cudagraphs, of the measured peak"] == shares["gpt2, cudagraphs, of the measured peak"]


def test_nanogpt_says_how_a_peak_that_is_not_known_is_measured(peaks: Path) -> None:
    run = run_of([trained("nanogpt_shakespeare", alone(0.01, device_name="a GPU"))], peaks)
    shares = beside(report("nanogpt", run), "Table 2, model FLOPs utilisation")
    assert shares["shakespeare, eager, of the measured peak"][1] == "not measured: it needs torchzoo doctor --peaks"


def test_nanogpts_eager_stands_there_once_more_from_inductors_process(peaks: Path) -> None:
    """So a reader sees how much two processes of the same code differ. MFU has its deviation over steps."""
    runs = [
        trained("nanogpt_shakespeare", alone(0.2, 0.25, device_name="NVIDIA H200")),
        trained("nanogpt_shakespeare", in_turns(0.22, 0.1, device_was_busy=True, device_name="NVIDIA H200"), INDUCTOR),
    ]
    text = report("nanogpt", run_of(runs, peaks))
    times, shares = (beside(text, name) for name in study.load("nanogpt").published.tables)
    again = times["shakespeare, eager, in turns with inductor"]
    assert again[0] == times["shakespeare, eager"][0]
    assert again[1].startswith("220 ms")
    assert ", sigma " in shares["shakespeare, eager, of the datasheet's peak"][1]
    (line,) = table(text.partition("## By backend\n")[2], "model")
    assert "the device was busy with other processes' work" in line[-1]


# --- resnets ---


SCRIPT = Backend("torchscript", "script")


def test_resnets_have_both_kinds_of_images_beside_each_published_time(snapshot: SnapshotAssertion) -> None:
    run = run_of(
        [
            trained("timm_resnet18", alone(0.02, 0.04)),
            trained("timm_resnet18", in_turns(0.02, 0.01), SCRIPT),
            trained("timm_resnet18_images", in_turns(0.3, 0.6, variants=late()), INDUCTOR),
            trained("timm_resnet18_images", CRASHED, SCRIPT),
        ]
    )
    text = report("resnets", run)
    assert figures(text) == snapshot


def test_resnets_with_loaded_images_have_means_since_a_median_leaves_the_waits_out() -> None:
    turns = ("eager", "candidate", "candidate", "eager") * 5
    waits = [Block(name, (0.5 if place % 5 == 0 else 0.1,)) for place, name in enumerate(turns)]
    text = report("resnets", run_of([trained("timm_resnet18_images", in_turns(1, 1, blocks=tuple(waits)), INDUCTOR)]))
    assert "## In turns with eager, images on the device" not in text
    (line,) = table(text.partition("images loaded\n")[2], "network")
    assert line[:2] == ["timm_resnet18_images", "inductor"]
    assert [cell.partition(" [")[0] for cell in line[2:5]] == ["180 ms", "180 ms", "1.00x"]
    assert line[4].endswith("(at 90%)")  # each mean's interval holds at 95%


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_the_resnets_loader_draws_on_the_host_and_ends_its_workers_with_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Workers that nobody tells to end look only every so many seconds. So they are killed before.
    monkeypatch.setattr("torch.utils.data._utils.worker.MP_STATUS_CHECK_INTERVAL", 3600)
    killed = []
    kill = multiprocessing.process.BaseProcess.terminate
    monkeypatch.setattr(
        multiprocessing.process.BaseProcess, "terminate", lambda worker: (killed.append(worker.pid), kill(worker))
    )
    others = multiprocessing.active_children()
    loading = import_module(f"{module('resnets').__name__}.loading")
    small = type("Small", (loading.LoadingClassifier,), {"architecture": "resnet18", "image_size": 32})
    model = small(mode=Mode.TRAIN, device=torch.device("meta"), batch_size=2)
    assert [(image.shape, image.device.type) for image in model.batch.inputs] == [((2, 3, 32, 32), "meta")]

    workers = [child for child in multiprocessing.active_children() if child not in others]
    model.itself = model  # so that only the garbage collector finds it
    del model
    gc.collect()
    assert [worker.exitcode for worker in workers] == [0] * loading.WORKERS
    assert killed == []


@pytest.mark.parametrize(("name", "model"), [("resnets", "timm_resnet18"), ("nanogpt", "nanogpt_shakespeare")])
def test_a_backend_that_was_not_published_stands_beside_nothing(name: str, model: str) -> None:
    case = trained(model, in_turns(0.2, 0.1), Backend("inductor", "max-autotune"))
    text = report(name, run_of([case]))
    rows = beside(text, next(iter(study.load(name).published.tables)))
    (shown,) = (cells for figure, cells in rows.items() if "max-autotune" in figure)
    assert shown[0] == ""
    assert shown[1].startswith("100 ms" if name == "nanogpt" else "0.1 s")
    assert shown[2:] == ["", ""]


# --- gpt2_modes ---


def test_gpt2_modes_puts_both_models_beside_the_blogs_table(snapshot: SnapshotAssertion) -> None:
    eager = variant_result(first_step_s=2.0, first_step_peak_bytes=3000 * 2**20)
    first: dict[str, Any] = {"variants": {"eager": eager}}
    candidate = variant_result(first_step_peak_bytes=1, alone=by_itself(first_step_peak_bytes=2000 * 2**20))
    apart = in_turns(0.1, 0.04, variants={"eager": variant_result(), "candidate": candidate})
    evaluated: dict[str, Any] = {"mode": Mode.EVAL, "precision": Precision.AMP}
    run = run_of(
        [
            trained("hf_GPT2", alone(0.05, **first), precision=Precision.AMP),
            trained("hf_GPT2_xl", in_turns(0.1, 0.04), INDUCTOR, precision=Precision.AMP),
            trained("hf_GPT2_xl", apart, Backend("inductor", "reduce-overhead"), precision=Precision.AMP),
            trained("hf_GPT2", in_turns(0.1, 0.02), Backend("inductor", "max-autotune"), **evaluated),
            trained("hf_GPT2", in_turns(0.1, 0.03), Backend("cudagraphs"), **evaluated),
        ]
    )
    text = report("gpt2_modes", run)
    assert figures(text) == snapshot


@pytest.mark.parametrize("name", ["hf_GPT2", "hf_GPT2_xl"])
def test_gpt2_modes_says_the_lengths_of_the_models(name: str) -> None:
    lengths = module("gpt2_modes").LENGTHS
    model: Any = load_model_class(find_models().spec(name))
    assert (lengths[name, Mode.TRAIN], lengths[name, Mode.EVAL]) == (model.train_length, model.eval_length)


def test_gpt2_modes_says_why_a_compiled_evaluation_is_slower_than_eager(snapshot: SnapshotAssertion) -> None:
    """The device works less and the step is slower: it waits for the host, which the kernels' number does not tell."""
    eager = variant_result(device_active_s=0.015, device_kernels=1200)
    host_bound = variant_result(
        device_active_s=0.010, device_kernels=400, alone=by_itself(first_step_peak_bytes=3000 * 2**20)
    )
    slower = in_turns(0.018, 0.030, variants={"eager": eager, "candidate": host_bound})
    faster = in_turns(0.018, 0.0109, variants={"eager": eager, "candidate": host_bound})
    alone_there = alone(0.018, variants={"eager": msgspec.structs.replace(eager, first_step_peak_bytes=2000 * 2**20)})
    axes: dict[str, Any] = {"mode": Mode.EVAL, "precision": Precision.AMP}
    text = report(
        "gpt2_modes",
        run_of(
            [
                trained("hf_GPT2", slower, INDUCTOR, **axes),
                trained("hf_GPT2", faster, Backend("inductor", "reduce-overhead"), **axes),
                trained("hf_GPT2", alone_there, **axes),
            ]
        ),
    )
    assert figures(text) == snapshot


def test_gpt2_modes_does_not_call_a_difference_sure_that_is_not() -> None:
    both = {name: variant_result(device_active_s=0.010) for name in ("eager", "candidate")}
    text = report("gpt2_modes", run_of([trained("hf_GPT2", in_turns(0.02, 0.02, variants=both), INDUCTOR)]))
    assert "a step takes 0.00 µs more than eager's beside it" in text
    assert "(No difference of the whole step is sure.)" in text
    few = in_turns(0.02, 0.01, variants=both)
    few = msgspec.structs.replace(few, blocks=few.blocks[:4])  # one quad
    text = report("gpt2_modes", run_of([trained("hf_GPT2", few, INDUCTOR)]))
    assert "(No difference of the whole step is sure.)" in text
    assert "kernels, eager" not in text  # older records don't have their number
