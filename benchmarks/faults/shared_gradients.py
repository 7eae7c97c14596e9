"""Inductor gives several parameters one gradient in memory, which what changes gradients in place then changes twice.

It removes copies that look as if they did nothing: `clone`, and a cast to the dtype that a tensor has. It keeps those
whose removal would let an output share memory with an input, or with what was an output before. But it does not look at
what it has removed itself. So two copies of one tensor, both of them outputs, end up as one tensor. In a backward pass
under autocast on CUDA the gradients of biases can be such copies, where layers' results are added, as in
`DALLE2_pytorch`. A GradScaler then divides them by its scale two or three times. `clip_grad_norm_` would do the same.

The first line below shows the cause, on any device. The second shows the gradients, and needs CUDA: autocast sums in
float32 there.

    python benchmarks/faults/shared_gradients.py
"""

import sys

import torch
from torch import Tensor, nn


def two_copies(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors with memory of their own, each of (M,) for (N, M)."""
    total = x.sum(0)
    return total.clone(), total.clone()


class Added(nn.Module):
    """Two linear layers whose results are added, and something after them."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(32, 64), nn.Linear(16, 64), nn.Linear(64, 8)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """(N, 8) for (N, 32) and (N, 16)."""
        return self.last(nn.functional.silu(self.left(left) + self.right(right)))


def copies_share_memory() -> bool:
    first, second = torch.compile(two_copies)(torch.ones(8, 4))
    return first.data_ptr() == second.data_ptr()


def gradients_share_memory(device: str) -> bool:
    """Whether the gradients of two biases do, which are equal but belong to two parameters."""
    network = Added().to(device)
    with torch.autocast(device, torch.float16):
        output = torch.compile(network)(torch.randn(16, 32, device=device), torch.randn(16, 16, device=device))
    output.float().square().mean().backward()
    left, right = network.left.bias.grad, network.right.bias.grad
    assert left is not None
    assert right is not None
    return left.data_ptr() == right.data_ptr()


def main() -> int:
    """Say what shares memory. Returns 1 if something does."""
    shared = {"two clones of a tensor": copies_share_memory()}
    if torch.cuda.is_available():
        shared["the gradients of two biases"] = gradients_share_memory("cuda")
    for what, is_shared in shared.items():
        print(f"torch {torch.__version__}: {what} {'SHARE memory' if is_shared else 'have memory of their own'}")
    return int(any(shared.values()))


if __name__ == "__main__":
    sys.exit(main())
