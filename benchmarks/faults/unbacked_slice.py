"""Inductor of torch 2.11: a slice whose length is an unbacked size fails to compile.

    python benchmarks/faults/unbacked_slice.py

The length of the slice gets a symbol of its own, and inductor writes no code that defines it: an AssertionError in the
first call. With torch 2.15 it works. Found by `userbenchmark dynamic_shapes` in hf_Bert by its length, where BERT takes
the first positions of a buffer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch._dynamo
from torch import Tensor
from torch._dynamo.decorators import mark_unbacked
from torch._inductor.exc import InductorError

TABLE = torch.arange(512.0).reshape(1, 512)


def sliced(x: Tensor) -> Tensor:
    return x + TABLE[:, : x.shape[1]]


@torch.no_grad()
def outcome(mark: Callable[[Tensor, int], None]) -> str:
    torch._dynamo.reset()
    x = torch.ones(2, 64)
    expected = sliced(x)
    mark(x, 1)
    try:
        y = torch.compile(sliced)(x)
    except InductorError as error:
        return str(error).splitlines()[0]
    return f"works, differs from eager by {float((y - expected).abs().max()):.1e}"


def main() -> None:
    print(f"torch {torch.__version__}")
    for mark in (torch._dynamo.mark_dynamic, mark_unbacked):
        print(f"{mark.__name__:13} {outcome(mark)}")


if __name__ == "__main__":
    main()
