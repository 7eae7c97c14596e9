"""The code that docs/faq.md shows runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "faq.md").read_text(encoding="utf-8")


def test_the_code_that_takes_a_model_out_runs_and_does_the_models_own_step() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["model"].batch_size == 4
    for ours, its in zip(names["outputs"], names["same"], strict=True):
        torch.testing.assert_close(ours, its)
