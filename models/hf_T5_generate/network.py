"""T5 together with the static caches that it generates with."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import EncoderDecoderCache, StaticCache, T5ForConditionalGeneration

from .._shared.generation import CachedNetwork


class CachedT5(CachedNetwork):
    """Tokens (B, 1) to the logits (B, V) that follow them, and the encoder's output (B, S, C).

    The first call after `rewind` gets the source (B, S), which is encoded; the others get what it was encoded to.

    Args:
        network: what generates.
        source: (B, S) tokens; they are read once to make the caches.
        length: the most tokens of a sequence that the decoder reads.
    """

    cache: EncoderDecoderCache

    def __init__(self, network: T5ForConditionalGeneration, source: Tensor, *, length: int) -> None:
        own, cross = (StaticCache(config=network.config, max_cache_len=size) for size in (length, source.shape[1]))
        cache = EncoderDecoderCache(own, cross)
        super().__init__(network, source, length=length, cached=0, cache=cache, source=source)

    def forward(  # type: ignore[override]
        self, tokens: Tensor, source: Tensor | None = None, *, encoded: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        outputs = self.network(
            input_ids=source,
            encoder_outputs=None if encoded is None else (encoded,),
            decoder_input_ids=tokens,
            **self._use_of_cache(),
        )
        return outputs.logits[:, -1], outputs.encoder_last_hidden_state

    def rewind(self) -> None:
        """Make the next call the first one of a sequence."""
        super().rewind()
        self.cache.is_updated = dict.fromkeys(self.cache.is_updated, False)

    def _growing_layers(self) -> list[Any]:
        """Both caches are written again for each source."""
        return self.cache.self_attention_cache.layers + self.cache.cross_attention_cache.layers
