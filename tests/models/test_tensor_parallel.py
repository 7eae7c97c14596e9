"""GPT-2 over two ranks computes what it computes on one device: its loss, and the gradients of all its weights."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.multiprocessing.spawn import spawn

from torchzoo.model.tensor_parallel import CanNotSplit, GPT2Heads, library_plan

WIDTH, HEADS, RANKS = 16, 4, 2


def new_network() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 50, "n_positions": 8, "n_embd": WIDTH, "n_layer": 2, "n_head": HEADS}
    network: nn.Module = GPT2LMHeadModel(GPT2Config(**sizes, use_cache=False, loss_type="ForCausalLM")).eval()
    with torch.no_grad():
        for parameter in network.parameters():  # biases are zero in a new network
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


def loss_of(network: Any) -> Any:
    tokens = torch.arange(24).view(3, 8) % 50
    return network(input_ids=tokens, labels=tokens).loss


def in_order_of_ranks(name: str, gradient: torch.Tensor) -> torch.Tensor:
    """The columns of queries, keys and values, as the ranks have them."""
    if "c_attn" not in name:
        return gradient
    split = gradient.unflatten(-1, (3, RANKS, WIDTH // RANKS))
    return split.transpose(-3, -2).flatten(-3)


def compare(rank: int, folder: str) -> None:
    distributed.init_process_group("gloo", rank=rank, world_size=RANKS, init_method=f"file://{folder}/store")
    whole, shared = new_network(), new_network()
    plan = library_plan(shared)
    assert plan is not None
    parallelize_module(shared, init_device_mesh("cpu", (RANKS,)), plan)
    losses = [loss_of(whole), loss_of(shared)]
    torch.testing.assert_close(losses[1], losses[0])
    for loss in losses:
        loss.backward()
    divided = 0
    for (name, ours), theirs in zip(shared.named_parameters(), whole.parameters(), strict=True):
        gradient = ours.grad
        assert gradient is not None
        assert theirs.grad is not None
        if isinstance(gradient, DTensor):
            divided += gradient.to_local().numel() < gradient.numel()
            gradient = gradient.full_tensor()
        torch.testing.assert_close(gradient, in_order_of_ranks(name, theirs.grad), msg=name)
    assert divided == 2 * 6  # weights of four products in each layer, and the biases of two of them
    distributed.barrier()  # no rank leaves while the other one still sends
    distributed.destroy_process_group()
    os._exit(0)  # all is compared; on a busy machine a thread of C++ that was still running at the usual end aborted


@pytest.mark.slow
def test_gpt2_over_two_ranks_is_gpt2(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    spawn(compare, (str(tmp_path),), nprocs=RANKS)


def test_heads_that_ranks_can_not_share_evenly_are_refused() -> None:
    attention: Any = SimpleNamespace(num_heads=25, split_size=1600)
    mesh: Any = SimpleNamespace(size=lambda: 2)
    with pytest.raises(CanNotSplit, match="25 heads can't be shared evenly by 2 ranks"):
        GPT2Heads()._apply(attention, mesh)
