"""Inductor pads the strides of a buffer that the next kernel reads as if they were others, with torch 2.11.

One kernel writes a buffer whose innermost dimension is that of 900; another reads it as if that were the one of 30.
With padded strides one gradient is wrong, by another amount in each process. On a GPU, where padding is on by default,
gradients of `pytorch_struct` are off by up to 490 times their norm for that. It looks like
https://github.com/pytorch/pytorch/issues/179931. With torch 2.15 it is right. This shows the fault on a CPU.

    python benchmarks/faults/padded_strides.py
"""

import sys

import torch
from torch import Tensor
from torch._inductor import config

MOST = 1e-5  # by which rounding may change a gradient, relative to its norm


def summed(scores: Tensor, table: Tensor) -> Tensor:
    """(2, 1, 30) for (2, 1, 900) and (2, 30, 900): a part of pytorch_struct."""
    return (scores.unsqueeze(3) + table.transpose(1, 2).unsqueeze(1)).exp().sum(2)


def main() -> int:
    """Say how far each gradient is off without padding and with it. Returns 1 if one is wrong."""
    config.disable_padding_cpu = False
    torch.manual_seed(0)
    inputs = [torch.rand(2, 1, 900, requires_grad=True), torch.rand(2, 30, 900, requires_grad=True)]
    right = torch.autograd.grad(summed(*inputs).sum(), inputs)
    is_wrong = False
    for padding in (False, True):
        torch.compiler.reset()
        with config.patch(comprehensive_padding=padding):
            found = torch.autograd.grad(torch.compile(summed)(*inputs).sum(), inputs)
        errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, right, strict=True)]
        wrong = max(errors) > MOST
        is_wrong |= wrong
        words = ", ".join(f"{error:.2g}" for error in errors)
        print(
            f"torch {torch.__version__}, {'with' if padding else 'without'} padding: gradients are off by {words}: "
            f"{'WRONG' if wrong else 'right'}"
        )
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
