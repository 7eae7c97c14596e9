"""torch.export: a Jacobian of torch.func can't be exported.

    python benchmarks/faults/exported_jacobian.py

Found by the backend `aoti` in lennard_jones, whose force is the derivative of its energy. Printed is what each way to
export says of a network in `vmap`, and of its Jacobian. With torch 2.15, only `vmap` alone is exported, and not with
`strict=True`. `torch.compile` takes all of them. pytorch/pytorch#153063 is about export and `vmap`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = vmap(self.energy)(x)
        return y


class Jacobian(Mapped):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = vmap(jacrev(self.energy))(x)
        return y


def outcome(network: nn.Module, *, strict: bool) -> str:
    try:
        torch.export.export(network, (torch.ones(4, 1),), strict=strict)
    except (AssertionError, AttributeError, RuntimeError, TypeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0][:90]}"
    return "exported"


def main() -> None:
    print(f"torch {torch.__version__}")
    for network in (Mapped().eval(), Jacobian().eval()):
        compiled = torch.compile(network)(torch.ones(4, 1))
        name = type(network).__name__
        differs = float((compiled - network(torch.ones(4, 1))).abs().max().detach())
        print(f"{name:8} torch.compile: differs from eager by {differs:.1e}")
        for strict in (False, True):
            print(f"{name:8} strict={strict!s:5} {outcome(network, strict=strict)}")


if __name__ == "__main__":
    main()
