"""Inductor: operations on tensors with an unbacked size are hardly fused.

    python benchmarks/faults/unbacked_fusion.py

Before it fuses two operations, inductor asks how many bytes they share. For a tensor with an unbacked size it counts
none, and two operations that share nothing stay apart. Printed is how many operations there are before and after
fusion, in a linear layer's bias, GELU and layer norm. One operation more is the check of the unbacked size. With
torch 2.15 a hint (`hint_override`) helps: then the bytes are counted. With torch 2.11 on a GPU it did not help fusion.
Found by `userbenchmark dynamic_shapes`; `benchmarks/unbacked.py` shows what it costs in whole networks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch import Tensor, nn
from torch._dynamo.decorators import mark_unbacked
from torch._inductor.scheduler import Scheduler
from torch._inductor.utils import fresh_cache

BATCH, LENGTH, WIDTH = 8, 32, 256


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)
        self.bias = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: Tensor) -> Tensor:  # (B, T, D) to (B, T, D)
        y = nn.functional.gelu(self.linear(x) + self.bias)
        return nn.functional.layer_norm(y, (WIDTH,))


@torch.no_grad()
def operations(mark: Callable[[Tensor, int], None] | None) -> list[tuple[int, int]]:
    """How many operations each graph has before and after fusion."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    network, x = Layer().eval(), torch.randn(BATCH, LENGTH, WIDTH)
    expected = network(x)
    found: list[tuple[int, int]] = []
    original = Scheduler.fuse_nodes

    def counted(scheduler: Scheduler, nodes: list[Any]) -> list[Any]:
        fused: list[Any] = original(scheduler, nodes)
        found.append((len(nodes), len(fused)))
        return fused

    if mark is not None:
        mark(x, 0)
    with mock.patch.object(Scheduler, "fuse_nodes", counted), fresh_cache():
        torch.testing.assert_close(torch.compile(network)(x), expected)
    return found


def main() -> None:
    print(f"torch {torch.__version__}: operations before and after fusion")
    ways: dict[str, Callable[[Tensor, int], None] | None] = {
        "static": None,
        "mark_dynamic": torch._dynamo.mark_dynamic,
        "mark_unbacked": mark_unbacked,
        f"mark_unbacked(hint_override={BATCH})": functools.partial(mark_unbacked, hint_override=BATCH),
    }
    for name, mark in ways.items():
        print(f"{name:34} {operations(mark)}", flush=True)


if __name__ == "__main__":
    main()
