"""The studies of torch.compile: what no committed run has, and the loader of images."""

from __future__ import annotations

import gc
import multiprocessing
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from benchmark_runs import beside, module, report, run_of, table
from study_records import alone, trained

from examples import INDUCTOR, in_turns, variant_result
from torchzoo.case import Mode
from torchzoo.record import Block, MeasuredPeaks
from torchzoo.zoo.catalog import find_models, load_model_class

# --- nanogpt ---


@pytest.fixture
def peaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a run that keeps the measured peaks of its machine; this machine has none."""
    monkeypatch.setenv("TORCHZOO_CACHE", str(tmp_path / "cache"))
    found = {"NVIDIA H200": MeasuredPeaks(tflop_per_s={"bf16": 700.0}, torch="2.15.0", date="2026-11-22")}
    (tmp_path / "peaks.yaml").write_bytes(msgspec.yaml.encode(found))
    return tmp_path


def test_nanogpt_says_how_a_peak_that_is_not_known_is_measured(peaks: Path) -> None:
    run = run_of([trained("nanogpt_shakespeare", alone(0.01, device_name="a GPU"))], peaks)
    shares = beside(report("nanogpt", run), "Table 2, model FLOPs utilisation")
    assert shares["shakespeare, eager, of the measured peak"][1] == "not measured: it needs torchzoo doctor --peaks"


# --- resnets ---


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


# --- gpt2_modes ---


@pytest.mark.parametrize("name", ["hf_GPT2", "hf_GPT2_xl"])
def test_gpt2_modes_says_the_lengths_of_the_models(name: str) -> None:
    lengths = module("gpt2_modes").LENGTHS
    model: Any = load_model_class(find_models().spec(name))
    assert (lengths[name, Mode.TRAIN], lengths[name, Mode.EVAL]) == (model.train_length, model.eval_length)


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
