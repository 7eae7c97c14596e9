"""Inductor: a convolution whose batch is unbacked fails in the first call, where its layout is optimized.

    python benchmarks/faults/unbacked_convolution.py

Inductor copies the input and the weight into the layout channels_last, so the convolution's result has it, too. But the
code that it writes for an unbacked batch checks for the strides of a contiguous result, and raises an AssertionError.
Found by `userbenchmark dynamic_shapes` in resnet18 and timm_vision_transformer. With torch 2.15 on a CPU `mark_dynamic`
works, and so does `mark_unbacked` with `torch._inductor.config.layout_optimization` off. pytorch/pytorch#171622 is much
the same for `convolution_backward`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch._dynamo
from torch import Tensor, nn
from torch._dynamo.decorators import mark_unbacked
from torch._inductor import config


@torch.no_grad()
def outcome(mark: Callable[[Tensor, int], None]) -> str:
    torch._dynamo.reset()
    torch.manual_seed(0)
    network = nn.Conv2d(3, 8, 3).eval()
    x = torch.randn(4, 3, 32, 32)
    expected = network(x)
    mark(x, 0)
    try:
        y = torch.compile(network)(x)
    except AssertionError as error:
        return str(error).splitlines()[0]
    return f"works, differs from eager by {float((y - expected).abs().max()):.1e}"


def main() -> None:
    print(f"torch {torch.__version__}")
    for mark in (torch._dynamo.mark_dynamic, mark_unbacked):
        for is_optimized in (True, False):
            with config.patch(layout_optimization=is_optimized):
                print(f"{mark.__name__:13} layout_optimization {is_optimized!s:5} {outcome(mark)}")


if __name__ == "__main__":
    main()
