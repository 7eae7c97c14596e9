"""What can't be made parallel is refused with the reason, before any rank waits for another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from torchzoo.backends import NotRunnable
from torchzoo.case import Mode, Parallel
from torchzoo.measure.parallel import parallelize

DENSE, SPARSE = nn.Linear(2, 2), nn.Sequential(nn.EmbeddingBag(4, 2, sparse=True))


@pytest.mark.parametrize(
    ("network", "how", "device", "scaler", "reason"),
    [
        (SPARSE, Parallel.DDP, "cuda", None, "sparse gradients, which NCCL can't average"),
        (SPARSE, Parallel.FSDP2, "cpu", None, "sparse gradients, which fully_shard can't average"),
        (DENSE, Parallel.TP, "cuda", object(), "take amp_bf16"),
        (SPARSE, Parallel.TP, "cpu", None, "no plan for tensor parallelism"),
    ],
)
def test_what_pytorch_can_not_do_is_refused(
    network: nn.Module, how: Parallel, device: str, scaler: object, reason: str
) -> None:
    model: Any = SimpleNamespace(
        mode=Mode.TRAIN,
        device=torch.device(device),
        scaler=scaler,
        networks=lambda: {"network": network},
        tensor_parallel_plan=lambda: None,
    )
    with pytest.raises(NotRunnable, match=reason):
        parallelize(model, how, cast(Any, None))
