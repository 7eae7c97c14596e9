"""The table of models: steps that need data are taken from a run, and what is not counted has a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples import INDUCTOR, manifest, measured, record
from torchzoo.case import Mode, Precision
from torchzoo.commands import model_table
from torchzoo.record import Flops, Record
from torchzoo.store import Run
from torchzoo.zoo.spec import ModelSpec, read_spec
from user_models import METADATA, TINY, make_folder

LOOKS_AT_DATA = """
    def forward(self):
        if self.batch.inputs[0].sum().item() > 0:
            return super().forward()
        return super().forward()
"""
OPERATIONS = 2 * 4 * 8 * (3 * 9) + 2 * 4 * 8 * 2  # evaluation: a convolution and a product, batch 4


def spec_of(root: Path, name: str, code: str, metadata: str) -> ModelSpec:
    return read_spec(make_folder(root, name, code, metadata))


def run_of(*records: Record) -> Run:
    return Run(path=Path("runs/counted"), manifest=manifest(), records=records)


def counted(model: str, total: int, **axes: Any) -> Record:
    return record(measured(flops=Flops(total=total, by_operator={})), model=model, **axes)


def test_a_step_without_data_is_counted_without_data(tmp_path: Path) -> None:
    row = model_table.row(spec_of(tmp_path, "tiny", TINY, METADATA), {})
    assert float(row[-1].rpartition("; ")[2]) == pytest.approx(OPERATIONS / 1e9)


def test_a_step_that_looks_at_its_data_is_taken_from_a_run_at_the_same_batch(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "looks", TINY + LOOKS_AT_DATA, METADATA)
    run = run_of(
        counted("looks", 3_000_000_000, mode=Mode.TRAIN, batch_size=spec.batch_size[Mode.TRAIN]),
        counted("looks", 1_000_000_000, batch_size=spec.batch_size[Mode.EVAL]),
        counted("looks", 5_000_000_000, batch_size=spec.batch_size[Mode.EVAL], precision=Precision.BF16),
        counted("looks", 7_000_000_000, batch_size=spec.batch_size[Mode.EVAL], backend=INDUCTOR),
        counted("looks", 9_000_000_000, batch_size=1000),
    )
    text = model_table.document([spec], model_table.counted_in([run]), sources=["runs/counted"])
    assert text.splitlines()[-1].endswith("| 3*; 1* |")
    assert "Marked `*`: counted in `runs/counted`." in text
    assert "Not counted" not in text


def test_without_such_a_run_the_table_says_why_there_is_no_number(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "looks", TINY + LOOKS_AT_DATA, METADATA)
    other = run_of(counted("looks", 1, batch_size=1000), counted("other", 1))
    text = model_table.document([spec], model_table.counted_in([other]))
    assert "| float32 4x3x4x4 | - |" in text
    assert f"- {model_table.NOT_COUNTED}: looks train, looks eval" in text


def test_a_count_that_is_too_low_says_so(tmp_path: Path) -> None:
    transformed = LOOKS_AT_DATA.replace(
        "if self.batch.inputs[0].sum().item() > 0", "if torch.fft.rfft(torch.ones(4)) is None"
    )
    text = model_table.document([spec_of(tmp_path, "fft", TINY + transformed, METADATA)], {})
    assert "above " in text
    assert "- no formula for aten::_fft_r2c: fft train, fft eval" in text
