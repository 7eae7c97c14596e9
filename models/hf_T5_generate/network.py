"""T5 together with the static caches that it generates with."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderCache, StaticCache, T5ForConditionalGeneration

from torchzoo.networks.generation import CachedNetwork


class CachedT5(CachedNetwork):
    """Tokens (B, 1) to the logits (B, V) that follow them, and the encoder's output (B, S, C).

    The first call after `rewind` gets the source (B, S), which is encoded; the others get what it was encoded to.

    Args:
        network: what generates.
        source: (B, S) tokens; they are read once to make the caches.
        length: the most tokens of a sequence that the decoder reads.
    """

    def __init__(self, network: T5ForConditionalGeneration, source: Tensor, *, length: int) -> None:
        nn.Module.__init__(self)
        self.network = network
        own = StaticCache(config=network.config, max_cache_len=length)
        looked_up = StaticCache(config=network.config, max_cache_len=source.shape[1])
        self.caches = EncoderDecoderCache(own, looked_up)
        layers = [*own.layers, *looked_up.layers]
        self.cache = SimpleNamespace(layers=layers)  # type: ignore[assignment]  # what the base moves, casts and rewinds
        self.cached = 0
        with torch.no_grad():
            self(source[:, :1], source)
        self._find_lengths()

    def forward(  # type: ignore[override]
        self, tokens: Tensor, source: Tensor | None = None, *, encoded: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        outputs = self.network(
            input_ids=source,
            encoder_outputs=None if encoded is None else (encoded,),
            decoder_input_ids=tokens,
            past_key_values=self.caches,
            use_cache=True,
        )
        return outputs.logits[:, -1], outputs.encoder_last_hidden_state

    def rewind(self) -> None:
        """Make the next call the first one of a sequence."""
        super().rewind()
        self.caches.is_updated = dict.fromkeys(self.caches.is_updated, False)
