"""FlexAttention (Dong et al., 2024, arXiv:2412.05496) inside of documents, as an attention function of transformers.

Shape letters: B sequences, H heads of the queries, K heads of keys and values, T tokens, D head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_operator
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers import AttentionInterface

#: The name of `attend` in the configuration of a network.
NAME = "in_documents"


def document_mask(documents: Tensor) -> BlockMask:
    """Each token attends to itself and to the tokens before it in its own document.

    Args:
        documents: the number of each token's document (B, T), on the CPU. The mask is on the default device. Where that
            is the meta device, the mask still knows which blocks it keeps.
    """
    on_device = documents.to(torch.get_default_device())

    def keeps_on(documents: Tensor) -> Any:
        def keeps(b: Tensor, _h: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & (documents[b, query] == documents[b, key])

        return keeps

    known = documents if on_device.is_meta else on_device
    batch, length = documents.shape
    mask = create_block_mask(keeps_on(known), batch, None, length, length, device=known.device)
    mask.mask_mod = keeps_on(on_device)
    return mask


def attend(
    _module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: Any,
    *,
    scaling: float,
    mask: BlockMask,
    **_: Any,
) -> tuple[Tensor, None]:
    """Queries (B, H, T, D), keys and values (B, K, T, D) to (B, T, H, D)."""
    if query.is_meta or (query.device.type == "cpu" and query.requires_grad):
        # `flex_attention` refuses these two. The operator that it calls has an eager implementation for all devices.
        attended = flex_attention_operator(query, key, value, _unchanged, mask.as_tuple(), scaling, {})[0]
    else:
        attended = flex_attention(query, key, value, block_mask=mask, scale=scaling, enable_gqa=True)
    return attended.transpose(1, 2), None


def _unchanged(score: Tensor, *_: Tensor) -> Tensor:
    return score


AttentionInterface.register(NAME, attend)
