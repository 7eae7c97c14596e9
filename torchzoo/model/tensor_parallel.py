"""Plan the tensor parallelism of transformers' networks, with styles that PyTorch lacks."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

#: Plans by `model_type`, for architectures without a plan in transformers: Megatron's (Shoeybi et al., 2019,
#: arXiv:1909.08053), which splits heads and the inner layer of the feed-forward network.
PLANS = {
    "bert": {
        "encoder.layer.*.attention.self.query": "colwise",
        "encoder.layer.*.attention.self.key": "colwise",
        "encoder.layer.*.attention.self.value": "colwise",
        "encoder.layer.*.attention.output.dense": "rowwise",
        "encoder.layer.*.intermediate.dense": "colwise",
        "encoder.layer.*.output.dense": "rowwise",
    },
    "gpt2": {
        "h.*.attn": "gpt2_heads",
        "h.*.attn.c_attn": "gpt2_query_key_value",
        "h.*.attn.c_proj": "gpt2_rowwise",
        "h.*.mlp.c_fc": "gpt2_colwise",
        "h.*.mlp.c_proj": "gpt2_rowwise",
    },
}


class CanNotSplit(ValueError):
    """The number of ranks can't share this network evenly."""


def library_plan(network: nn.Module) -> dict[str, ParallelStyle] | None:
    """The plan of transformers for its network, or of `PLANS`; None without one that these styles support."""
    transformers = sys.modules.get("transformers")
    if transformers is None or not isinstance(network, transformers.PreTrainedModel):
        return None
    config: Any = network.config.get_text_config()
    inside = getattr(config, "base_model_tp_plan", None) or PLANS.get(config.model_type)
    if inside is None:
        return None
    words = {f"{network.base_model_prefix}.{path}": word for path, word in inside.items()}
    words |= dict(getattr(network, "_tp_plan", None) or {})
    styles = {path: _style(word) for path, word in words.items()}
    known = {path: style for path, style in styles.items() if style is not None}
    return known if len(known) == len(words) else None


def _style(word: str) -> ParallelStyle | None:
    match word:
        case "colwise":
            return ColwiseParallel()
        case "rowwise":
            return RowwiseParallel()
        case "embedding_rowwise":
            return RowwiseParallel(input_layouts=Replicate())
        case "colwise_rep" | "colwise_gather_output":
            return ColwiseParallel(output_layouts=Replicate())
        case "gpt2_heads":
            return GPT2Heads()
        case "gpt2_query_key_value":
            return Columns(products=3)
        case "gpt2_colwise":
            return Columns()
        case "gpt2_rowwise":
            return Rows()
    return None


class SplitHeads(ParallelStyle):
    """A style that splits the caches (B, H, ...) by heads: the buffers of a module are cut along H.

    Raises:
        CanNotSplit: the ranks can't have the same number of heads.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        ranks = device_mesh.size()
        for name, cache in list(module.named_buffers(recurse=False)):
            check_heads(cache.shape[1], ranks)
            own = cache.chunk(ranks, dim=1)[device_mesh.get_local_rank()]
            setattr(module, name, own.clone())
        return module


def check_heads(heads: int, ranks: int) -> None:
    """Raise `CanNotSplit` if the ranks can't have equal numbers of heads."""
    if heads % ranks:
        raise CanNotSplit(f"{heads} heads can't be shared evenly by {ranks} ranks")


class GPT2Heads(ParallelStyle):
    """A style by which transformers' attention of GPT-2 finds queries, keys and values of a rank's heads.

    Raises:
        CanNotSplit: the ranks can't have the same number of heads.
    """

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> nn.Module:
        check_heads(module.num_heads, device_mesh.size())
        module.split_size //= device_mesh.size()
        return module  # type: ignore[no-any-return]


class Columns(ParallelStyle):
    """A style for transformers' `Conv1D`, a linear layer with a weight (in, out): each rank has some of the columns.

    In a layer of several products side by side, each rank has some columns of each of them. The columns are put in the
    order of the ranks, so that the weight of all ranks together is a tensor that DTensor can shard.
    """

    def __init__(self, products: int = 1) -> None:
        super().__init__()
        self.products = products

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        weight, bias = module.get_parameter("weight"), module.get_parameter("bias")
        order = torch.arange(bias.numel(), device=bias.device).view(self.products, device_mesh.size(), -1)
        order = order.transpose(0, 1).flatten()
        _shard(module, "weight", weight.detach()[:, order], device_mesh, Shard(1))
        _shard(module, "bias", bias.detach()[order], device_mesh, Shard(0))
        module.register_forward_pre_hook(lambda _, args: (DTensor.from_local(args[0], device_mesh, [Replicate()]),))
        module.register_forward_hook(lambda _, __, output: output.to_local())
        return module


class Rows(ParallelStyle):
    """A style for transformers' `Conv1D`: each rank has some of the rows, and the ranks add up their results."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _shard(module, "weight", module.get_parameter("weight").detach(), device_mesh, Shard(0))
        _shard(module, "bias", module.get_parameter("bias").detach(), device_mesh, Replicate())
        module.register_forward_pre_hook(lambda _, args: (DTensor.from_local(args[0], device_mesh, [Shard(-1)]),))
        module.register_forward_hook(lambda _, __, output: output.redistribute(device_mesh, [Replicate()]).to_local())
        return module


def _shard(module: nn.Module, name: str, whole: Tensor, mesh: DeviceMesh, placement: Shard | Replicate) -> None:
    """Shard a parameter. All ranks have the whole of it, so no data is sent."""
    setattr(module, name, nn.Parameter(distribute_tensor(whole, mesh, [placement], src_data_rank=None)))
