"""Floating-point operations of a step: matrix products, convolutions and attentions, a multiply-add counted as two."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from torch.utils.flop_counter import FlopCounterMode


class _NoModules(contextlib.nullcontext[None]):
    """In the place of the counter's module tracker, which second derivatives do not survive: all counts are global."""

    parents = frozenset({"Global"})


def step_flops(step: Callable[[], Any]) -> int:
    """Floating-point operations of one call of `step`, backward included, by PyTorch's formulas for its operators.

    What PyTorch has no formula for (cuDNN's LSTMs on a GPU, for one) counts nothing; element-wise work never counts.
    """
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]
    with counter:
        step()
    return int(counter.get_total_flops())
