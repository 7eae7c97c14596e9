"""A sum of a thousand numbers that are picked on the host, after TorchBench's microbenchmark of this name.

https://github.com/pytorch/benchmark at 0e83c44 (2023): indices on the device become a Python list, and each number that
they pick becomes a Python number. A compiler knows neither when it traces: they are *unbacked* symbols. Without
`torch._dynamo.config.capture_scalar_outputs`, which is off unless asked for, the graph breaks there. The checks tell it
that the indices are valid. A sample is one list of 1,000 indices with its 1,000 numbers, all ones. The network has 1
parameter, and a step has no product: it takes 0 GFLOP.
"""

import torch
from torch import Tensor, nn

from torchzoo.model.tasks import Batch, NetworkModel


class TolistSum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1))

    def forward(self, factors: Tensor, indices: Tensor, numbers: Tensor) -> Tensor:
        """Factors (B,), indices (N,) and numbers (N,) to (B,): each factor times the weight and the sum."""
        picked = indices.tolist()
        total: int | float = 0
        for index in picked:
            torch._check(index >= 0)
            torch._check(index < numbers.size(0))
            total += numbers[index].item()
        return factors * self.weight * total


class Model(NetworkModel):
    sample_unit = "lists"
    list_length = 1000

    def build_network(self) -> nn.Module:
        return TolistSum()

    def build_batch(self) -> Batch:
        count = self.batch_size * self.list_length
        factors = self.data.normal(self.batch_size)
        return Batch((factors, torch.arange(count, dtype=torch.int32), torch.ones(count, dtype=torch.int32)))
