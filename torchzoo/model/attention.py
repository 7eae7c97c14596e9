"""Make attention of transformers' networks equal in eager and in compiled code.

transformers omits a mask if `is_causal` has the same effect, or if nothing is hidden. To find out, it reads position
ids (are sequences packed into one row?) and the length of a static cache on the host. While Dynamo traces, it can't
read them, and makes the mask: attention then has other kernels, reads the whole cache, and repeats keys and values for
grouped queries. So transformers' own attention (`sdpa`) does other work compiled than in eager.

The two implementations that are registered here read nothing on the host. They are correct for whole sequences without
padding: one per row, in an empty cache, or as the one token that fills a static cache.

Shape letters: B batch, H heads of queries, K heads of keys and values, T queries, S keys, D width of a head.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

#: transformers makes masks only for implementations with a mask function.
NO_MASKS, WINDOW_MASKS = "sdpa_without_masks", "sdpa_with_window_masks"


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **others: Any
) -> tuple[Tensor, None]:
    """Call transformers' `sdpa_attention_forward`, but never repeat keys and values for a single token.

    The queries (B, H, 1, D) of a token become H / K queries of each of K heads, as in transformers' eager code.
    """
    batch_size, heads, queries, width = query.shape
    groups = heads // key.shape[1]
    if queries > 1 or groups == 1 or any(others.get(name) is not None for name in ("position_bias", "softcap")):
        return sdpa_attention_forward(module, query, key, value, attention_mask, **others)
    if attention_mask is not None and attention_mask.shape[1] > 1:
        attention_mask = attention_mask.reshape(batch_size, -1, groups, key.shape[2])
    seen = F.scaled_dot_product_attention(
        query.reshape(batch_size, -1, groups, width),  # (B, K, H / K, D)
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=others.get("dropout", 0.0),
        scale=others.get("scaling"),
    )
    return seen.reshape(batch_size, 1, heads, -1), None


def window_mask(
    *,
    kv_length: int,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    use_vmap: bool = False,
    **others: Any,
) -> Tensor | None:
    """The mask by transformers' `sdpa_mask`; None if neither padding nor a window nor the network needs it."""
    if attention_mask is None and not use_vmap and (local_size is None or kv_offset + kv_length <= local_size):
        return None
    return sdpa_mask(
        kv_length=kv_length,
        kv_offset=kv_offset,
        attention_mask=attention_mask,
        local_size=local_size,
        use_vmap=use_vmap,
        **others,
    )


AttentionInterface.register(NO_MASKS, attend)
AttentionInterface.register(WINDOW_MASKS, attend)
AttentionMaskInterface.register(WINDOW_MASKS, window_mask)


def attend_alike(network: nn.Module) -> None:
    """Make eager and compiled attention of `network` equal, in each part that has transformers' own `sdpa`.

    Only parts with a window (or chunks) keep masks, in the layers that have one.
    """
    for part in network.modules():
        if not isinstance(part, PreTrainedModel) or part.config._attn_implementation != "sdpa":
            continue
        if part._can_set_attn_implementation():  # else its layers select "sdpa" by name
            windows = [getattr(part.config, name, None) for name in ("sliding_window", "attention_chunk_size")]
            part.config._attn_implementation = {"": WINDOW_MASKS if any(windows) else NO_MASKS}


def attends_alike(network: nn.Module) -> bool:
    """Whether `attend_alike` has changed a part of `network`."""
    parts = (part.config._attn_implementation for part in network.modules() if isinstance(part, PreTrainedModel))
    return any(name in (NO_MASKS, WINDOW_MASKS) for name in parts)
