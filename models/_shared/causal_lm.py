"""The task base of transformers decoders that generate."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, LanguageModel

from .generation import CachedNetwork, weight_bytes_read


class CausalLM(LanguageModel):
    """A transformers decoder that is trained, evaluated, and generates with a static cache.

    - `prefill`: prompts (B, `prompt_length`) fill an empty cache. Its latency is the time to the first token.
    - `decode`: one token of each sequence (B, 1) is read with the `cache_length - 1` tokens before it, so that the
      cache is full. Its latency is the time of a token. The cache holds random keys and values.

    The cache has room for `cache_length` tokens in both. Every step begins with the same number of cached tokens. (In
    decode, states of recurrent layers and full windows go on from the step before.) A prompt may come with further
    inputs, such as images.

    Training has the optimizer of Llama 2 (Touvron et al., 2023, arXiv:2307.09288, section 2.2), which many followed:
    AdamW, gradients clipped to a norm of 1. Here, vectors (biases, normalisations) are not decayed.
    """

    max_grad_norm = 1.0
    learning_rate: ClassVar[float] = 3e-4
    betas: ClassVar[tuple[float, float]] = (0.9, 0.95)
    epsilon: ClassVar[float] = 1e-5
    weight_decay: ClassVar[float] = 0.1
    #: Whether training keeps only the inputs of layers, and computes what is inside of them again in the backward pass.
    checkpoints_layers: ClassVar[bool] = False

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
        if self.mode is Mode.TRAIN:
            self.network.config.get_text_config().use_cache = False  # type: ignore[union-attr, operator]
            if self.checkpoints_layers:
                checkpoint_layers(self.network)  # type: ignore[arg-type]
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

    def build_optimizer(self) -> torch.optim.Optimizer:
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        groups = [
            {"params": [one for one in trained if one.ndim >= 2], "weight_decay": self.weight_decay},
            {"params": [one for one in trained if one.ndim < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.learning_rate, betas=self.betas, eps=self.epsilon)

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


def checkpoint_layers(network: PreTrainedModel) -> None:
    """Keep only the inputs of `network`'s layers in training, by `torch.utils.checkpoint`. It must have no dropout."""
    name = "activation_checkpointing_enable"
    enable = getattr(network, name if hasattr(network, name) else "gradient_checkpointing_enable")  # transformers 5.17
    enable({"use_reentrant": False, "preserve_rng_state": False})
    # It made the embedding's output need a gradient. Only reentrant checkpoints want that; it breaks Dynamo's graph.
    network.disable_input_require_grads()  # type: ignore[no-untyped-call]
