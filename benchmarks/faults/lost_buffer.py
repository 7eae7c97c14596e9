"""AOTAutograd: a buffer that a module makes while it is traced is a plain attribute afterwards.

    python benchmarks/faults/lost_buffer.py

The results are right. But the module's `named_buffers` and `state_dict` lack the buffer, and `.to(device)` leaves it
behind. Found by `--check` in esmfold: transformers makes the constants of its structure module in the first call.
Printed are the module's buffers after one call: not compiled, and compiled by Dynamo without AOTAutograd (`eager`) and
with it. With torch 2.11 and 2.15 on a CPU, the last one has none.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Lazy(nn.Module):
    """Makes its buffer in the first call."""

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "order"):
            self.order = nn.Buffer(torch.tensor([1, 0], device=x.device))
        return x[:, self.order]


def main() -> None:
    print(f"torch {torch.__version__}")
    for backend in (None, "eager", "aot_eager"):
        module = Lazy()
        called = module if backend is None else torch.compile(module, backend=backend)
        called(torch.ones(3, 2))
        buffers = [name for name, _ in module.named_buffers()]
        print(f"{backend or 'not compiled':12} buffers {buffers}, state_dict {list(module.state_dict())}")


if __name__ == "__main__":
    main()
