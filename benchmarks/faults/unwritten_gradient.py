"""Inductor leaves parts of a gradient unwritten: that of a table whose rows scale and shift two layer norms in a row.

The rows are chunks of one parameter, as in Wan 2.1 (`scale_shift_table`). So the gradient of the table is one tensor,
and sums over all tokens are to be written into parts of it. Since torch 2.10 inductor fuses such sums with the sums
over a row of the layer norm's backward pass (`mix_order_reduction`). What such a kernel sums then gets memory of its
own, and the table's gradient keeps what was in its memory before. The fault is known, and torch 2.15 has code
against it: https://github.com/pytorch/pytorch/issues/193061. Found when `--check` called wan2_1_1_3b incorrect.
On an H200 with torch 2.11 the rows of the second layer norm are wrong. The first one's input needs no gradient, so that
there is nothing to fuse.

    python benchmarks/faults/unwritten_gradient.py

It needs CUDA: kernels for the CPU are not fused so. Printed is how far the gradient of each row of the table is from
eager's, in parts of its norm, with that fusion and without it. The memory that it can get is filled with NaN before.
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn
from torch._inductor import config

TOKENS, WIDTH = 7800, 1536  # as in a training step of wan2_1_1_3b
ROWS = ("scale of the first", "shift of the first", "scale of the second", "shift of the second")


class Modulated(nn.Module):
    """Two layer norms in a row, each scaled and shifted by rows of one table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, WIDTH) / WIDTH**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(N, D) for (N, D)."""
        rows = self.table.chunk(4)
        for scale, shift in (rows[:2], rows[2:]):
            x = x + nn.functional.layer_norm(x, (WIDTH,)) * (1 + scale) + shift
        return x


def gradient_of(network: nn.Module, tokens: Tensor, target: Tensor) -> Tensor:
    """The gradient of the table, (4, D). Memory that the allocator has for one is NaN before."""
    filled = [torch.full((len(ROWS), WIDTH), torch.nan, device=tokens.device) for _ in range(100)]
    del filled
    loss: Tensor = nn.functional.mse_loss(network(tokens), target)
    (gradient,) = torch.autograd.grad(loss, list(network.parameters()))
    return gradient


def main() -> int:
    """Print the errors. Returns 1 if a gradient is wrong."""
    print(f"torch {torch.__version__}")
    if not torch.cuda.is_available():
        print("It needs a CUDA device: kernels for the CPU are not fused so.")
        return 0
    torch.manual_seed(0)
    network = Modulated().cuda()
    tokens, target = torch.randn(2, TOKENS, WIDTH, device="cuda")
    right = gradient_of(network, tokens, target)
    is_wrong = False
    for is_fused in (True, False):
        torch._dynamo.reset()
        compiled: nn.Module = torch.compile(network)  # type: ignore[assignment]
        with config.patch({"triton.mix_order_reduction": is_fused}):
            found = gradient_of(compiled, tokens, target)
        errors = (found - right).norm(dim=1) / right.norm(dim=1)
        is_wrong |= not bool((errors < 1e-3).all())
        print(f"inductor, mix_order_reduction {is_fused}:")
        for row, error in zip(ROWS, errors.tolist(), strict=True):
            print(f"  {row:20} off by {error:.2g}")
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
