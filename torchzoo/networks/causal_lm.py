"""The task base of transformers decoders that generate."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from torchzoo.case import Mode
from torchzoo.networks.generation import CachedNetwork, weight_bytes_read
from torchzoo.tasks import Batch, LanguageModel


class CausalLM(LanguageModel):
    """A transformers decoder that is trained, evaluated, and generates with a static cache.

    - `prefill`: prompts (B, `prompt_length`) fill an empty cache. Its latency is the time to the first token.
    - `decode`: one token of each sequence (B, 1) is read with the `cache_length - 1` tokens before it, so that the
      cache is full. Its latency is the time of a token. The cache holds random keys and values.

    The cache has room for `cache_length` tokens in both. Every step begins with the same number of cached tokens. A
    prompt may come with further inputs, such as images.
    """

    prompt_length: ClassVar[int] = 1024
    cache_length: ClassVar[int] = 2048
    #: A part of the network that a step of decoding does not read, such as an encoder of images.
    not_decoded: ClassVar[str | None] = None
    #: The arguments of the network's configuration, and those that make it small enough for a test on the CPU.
    sizes: ClassVar[dict[str, Any]] = {}
    small_sizes: ClassVar[dict[str, Any]] = {}

    @classmethod
    def small(cls) -> type[CausalLM] | None:
        if not cls.small_sizes:
            return None
        lengths = {"train_length": 32, "eval_length": 32, "prompt_length": 16, "cache_length": 32}
        return type("Small", (cls,), {"sizes": cls.sizes | cls.small_sizes, **lengths})

    def build(self) -> None:
        super().build()
        if not self.mode.generates:
            return
        self.sample_unit = "tokens"
        cached = 0 if self.mode is Mode.PREFILL else self.cache_length - 1
        tokens: Tensor = self.batch.inputs["input_ids"]  # type: ignore[call-overload]
        self.network = CachedNetwork(self.network, tokens, length=self.cache_length, cached=cached)  # type: ignore[arg-type]
        if cached:
            self.network.fill(self.data.normal)

    def build_batch(self) -> Batch:
        if not self.mode.generates:
            return super().build_batch()
        vocabulary_size: int = self.network.config.get_text_config().vocab_size  # type: ignore[union-attr, operator]
        length = self.prompt_length if self.mode is Mode.PREFILL else 1
        return Batch({"input_ids": self.data.tokens(self.batch_size, length, vocabulary_size)})

    @property
    def samples_per_step(self) -> int:
        return self.batch_size * (self.prompt_length if self.mode is Mode.PREFILL else 1)

    @property
    def bytes_read_per_step(self) -> int | None:
        if self.mode is not Mode.DECODE:
            return None
        assert isinstance(self.network, CachedNetwork)
        return weight_bytes_read(self.network.network, without=self.not_decoded) + self.network.cache_bytes()

    def prefill_step(self) -> Tensor:
        return self._generate()

    def decode_step(self) -> Tensor:
        return self._generate()

    @torch.no_grad()
    def _generate(self) -> Tensor:
        self.network.rewind()  # type: ignore[operator]
        with self.autocast():
            logits: Tensor = self.network(**self.batch.inputs)  # type: ignore[arg-type]
        return logits
