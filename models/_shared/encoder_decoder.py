"""Encoder-decoders of transformers that generate with static caches."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import EncoderDecoderCache, PreTrainedModel, StaticCache

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, TransformersModel
from torchzoo.model.tensors import stored_bytes

from .generation import CachedNetwork
from .sized import SizedModel


class SpeechRecogniser(SizedModel, TransformersModel):
    """An encoder of speech and a decoder of text: trained whole, evaluated by its encoder, generating by its decoder.

    - `train`: the network's own loss of `target_length` tokens for features (B, `mel_bands`, `frame_count`).
    - `eval`: the encoder turns features into states (B, `state_count`, D).
    - `decode`: one token of each sequence (B, 1) is read with the `cache_length - 1` tokens before it, so that the
      cache is full, and with the keys and values of the encoder's states. Both caches hold random numbers.
    """

    sample_unit = "recordings"
    mel_bands: ClassVar[int] = 128
    frame_count: ClassVar[int] = 3000
    state_count: ClassVar[int] = 1500
    target_length: ClassVar[int] = 448
    cache_length: ClassVar[int] = 448

    def build(self) -> None:
        super().build()
        if self.mode is Mode.EVAL:
            self.network = self.network.get_encoder()  # type: ignore[operator]
        if self.mode is Mode.DECODE:
            self.sample_unit = "tokens"
            cached = self.cache_length - 1
            self.network = CachedDecoder(self.network, *self.batch.inputs, length=self.cache_length, cached=cached)  # type: ignore[arg-type]
            self.network.fill(self.data.normal)

    def build_batch(self) -> Batch:
        config: Any = self.network.config
        if self.mode is Mode.DECODE:
            tokens = self.data.tokens(self.batch_size, 1, config.vocab_size)
            return Batch((tokens, self.data.normal(self.batch_size, self.state_count, config.d_model)))
        inputs = {"input_features": self.data.normal(self.batch_size, self.mel_bands, self.frame_count)}
        if self.mode is Mode.TRAIN:
            inputs["labels"] = self.data.tokens(self.batch_size, self.target_length, config.vocab_size)
        return Batch(inputs)

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            states: Tensor = self.forward().last_hidden_state
        return states

    @torch.no_grad()
    def decode_step(self) -> Tensor:
        assert isinstance(self.network, CachedDecoder)
        self.network.rewind()
        with self.autocast():
            logits: Tensor = self.forward()
        return logits

    @property
    def bytes_read_per_step(self) -> int | None:
        if self.mode is not Mode.DECODE:
            return None
        assert isinstance(self.network, CachedDecoder)
        return decoder_bytes_read(self.network.network) + self.network.cache_bytes()


class CachedDecoder(CachedNetwork):
    """The decoder of `network` with two caches of fixed size: of its own tokens, and of what the encoder found.

    The second one has the keys and values of cross-attention for the encoder's states. It is made with the object, and
    a call only reads it.

    Args:
        network: an encoder-decoder with a language model's head, whose configuration has `decoder_layers`.
        prompt: (B, T) tokens; the first few are read once to make the caches.
        states: (B, S, D), what the encoder gives.
        length: the most tokens of a sequence that the cache of its own tokens holds.
        cached: how many tokens of each sequence are in that cache before a call.
    """

    cache: EncoderDecoderCache

    def __init__(self, network: PreTrainedModel, prompt: Tensor, states: Tensor, *, length: int, cached: int) -> None:
        config = copy.deepcopy(network.config)
        config.num_hidden_layers = config.decoder_layers  # it is an alias of the encoder's number of layers
        own, cross = (StaticCache(config=config, max_cache_len=size) for size in (length, states.shape[1]))
        cache = EncoderDecoderCache(own, cross)
        super().__init__(network, prompt, length=length, cached=cached, cache=cache, states=states)

    def forward(self, tokens: Tensor, states: Tensor) -> Tensor:  # type: ignore[override]
        """Tokens (B, T) and the encoder's states (B, S, D) to the logits (B, 1, V) of the last token."""
        outputs = self.network(decoder_input_ids=tokens, encoder_outputs=(states,), **self._use_of_cache())
        logits: Tensor = outputs.logits
        return logits[:, -1:]

    def _growing_layers(self) -> list[Any]:
        return self.cache.self_attention_cache.layers

    def _layers(self) -> list[Any]:
        return self._growing_layers() + self.cache.cross_attention_cache.layers


def decoder_bytes_read(network: PreTrainedModel) -> int:
    """The bytes of the weights that one token needs: the decoder's, with its table of embeddings, which is its head.

    The weights that make the keys and values of cross-attention are not read, because the cache has these. Of the table
    of positions one row is read.
    """
    decoder: Any = network.get_decoder()  # type: ignore[no-untyped-call]
    unused: list[Tensor] = [decoder.embed_positions.weight]
    for layer in decoder.layers:
        unused += [*layer.encoder_attn.k_proj.parameters(), *layer.encoder_attn.v_proj.parameters()]
    return sum(map(stored_bytes, decoder.parameters())) - sum(map(stored_bytes, unused))
