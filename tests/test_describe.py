"""The table of models: steps that need data are counted on the CPU, and what is not counted has a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchzoo import describe
from torchzoo.spec import ModelSpec, read_spec
from user_models import METADATA, TINY, make_folder

LOOKS_AT_DATA = """
    def forward(self):
        if self.batch.inputs[0].sum().item() > 0:
            return super().forward()
        return super().forward()
"""
SYNCS = "syncs: {train: looks at its data, eval: looks at its data}\n"
OPERATIONS = 2 * 4 * 8 * (3 * 9) + 2 * 4 * 8 * 2  # evaluation: a convolution and a product, batch 4


def spec_of(root: Path, name: str, code: str, metadata: str) -> ModelSpec:
    return read_spec(make_folder(root, name, code, metadata))


def gflop(row: str) -> str:
    return row.removesuffix(" |").rpartition("| ")[2].rpartition("; ")[2]


def test_a_step_without_data_is_counted_without_data(tmp_path: Path) -> None:
    assert float(gflop(describe.row(spec_of(tmp_path, "tiny", TINY, METADATA)))) == pytest.approx(OPERATIONS / 1e9)


def test_a_step_that_looks_at_its_data_is_run(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "looks", TINY + LOOKS_AT_DATA, METADATA + SYNCS)
    text = describe.describe([spec])
    assert float(gflop(text.splitlines()[-1])) == pytest.approx(OPERATIONS / 1e9)
    assert "Not counted" not in text


def test_one_that_should_not_need_data_but_does_is_not_run_and_the_table_says_why(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "looks_undeclared", TINY + LOOKS_AT_DATA, METADATA)
    text = describe.describe([spec])
    assert gflop(describe.row(spec)) == "-"
    assert "- something in the step does not run on the meta device: looks_undeclared train, looks_undeclared" in text


def test_a_step_that_takes_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forever = LOOKS_AT_DATA.replace("if self", "while self")
    forever = forever.replace(
        "            return super().forward()\n        return", "            pass\n        return"
    )
    positive = TINY.replace("self.data.images(self.batch_size, 3, 4, 4)", "torch.ones(self.batch_size, 3, 4, 4)")
    spec = spec_of(tmp_path, "slow", positive + forever, METADATA + SYNCS)
    monkeypatch.setattr(describe, "LONGEST_CPU_S", 0.2)
    assert "takes more than 0.2 s of CPU time: slow train, slow eval" in describe.describe([spec])


def test_a_step_that_takes_much_memory_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hungry = LOOKS_AT_DATA.replace("            return", "            torch.ones(2**29)\n            return", 1)
    positive = TINY.replace("self.data.images(self.batch_size, 3, 4, 4)", "torch.ones(self.batch_size, 3, 4, 4)")
    spec = spec_of(tmp_path, "hungry", positive + hungry, METADATA + SYNCS)
    monkeypatch.setattr(describe, "MOST_GIB", 1)
    assert "takes more than 1 GiB: hungry train, hungry eval" in describe.describe([spec])


def test_a_large_model_is_not_tried(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "large", TINY + LOOKS_AT_DATA, METADATA + SYNCS + "large: it is\n")
    assert "too large for a step on the CPU: large train, large eval" in describe.describe([spec])


def test_a_count_that_is_too_low_says_so(tmp_path: Path) -> None:
    transformed = LOOKS_AT_DATA.replace(
        "if self.batch.inputs[0].sum().item() > 0", "if torch.fft.rfft(torch.ones(4)) is None"
    )
    text = describe.describe([spec_of(tmp_path, "fft", TINY + transformed, METADATA)])
    assert "above " in text
    assert "- no formula for aten::_fft_r2c: fft train, fft eval" in text
