"""Plans for the tensor parallelism of transformers' networks, and what plans need beside PyTorch's styles."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

#: By `model_type`, for architectures that have no plan in transformers: Megatron's (Shoeybi et al., 2019,
#: arXiv:1909.08053), which splits heads and the inner layer of the feed-forward network.
PLANS = {
    "bert": {
        "encoder.layer.*.attention.self.query": "colwise",
        "encoder.layer.*.attention.self.key": "colwise",
        "encoder.layer.*.attention.self.value": "colwise",
        "encoder.layer.*.attention.output.dense": "rowwise",
        "encoder.layer.*.intermediate.dense": "colwise",
        "encoder.layer.*.output.dense": "rowwise",
    }
}


def library_plan(network: nn.Module) -> dict[str, ParallelStyle] | None:
    """The plan that transformers has for its network, or ours. None where there is none that these styles can do."""
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
    return None


class SplitHeads(ParallelStyle):
    """Each rank keeps the caches (B, H, ...) of its own heads: the buffers of a module are cut along H.

    Raises:
        ValueError: the ranks can't have the same number of heads.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        ranks = device_mesh.size()
        for name, cache in list(module.named_buffers(recurse=False)):
            heads = cache.shape[1]
            if heads % ranks:
                raise ValueError(f"{heads} heads can't be shared evenly by {ranks} ranks")
            own = cache.chunk(ranks, dim=1)[device_mesh.get_local_rank()]
            setattr(module, name, own.clone())
        return module
