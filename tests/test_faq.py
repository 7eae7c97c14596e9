"""What docs/faq.md shows is what happens: its code runs, and it quotes the message that a user gets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from torchzoo.cli import build_parser

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "faq.md").read_text(encoding="utf-8")


def test_the_code_that_takes_a_model_out_runs_and_does_the_models_own_step() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["model"].batch_size == 4
    for ours, its in zip(names["outputs"], names["same"], strict=True):
        torch.testing.assert_close(ours, its)


def test_an_option_of_torchbench_is_answered_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (quoted,) = re.findall(r"`(--profile is not here: [^`]+)`", " ".join(PAGE.split()))
    with pytest.raises(SystemExit):
        build_parser().parse_args(["run", "resnet18", "--profile"])
    assert quoted in " ".join(capsys.readouterr().err.split())
