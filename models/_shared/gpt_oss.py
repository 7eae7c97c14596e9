"""gpt-oss (OpenAI, 2025, arXiv:2508.10925): decoders with experts and attention sinks.

Every other layer has a window. Sizes: the model card's section 2, and the configuration of the published weights,
https://huggingface.co/openai/gpt-oss-20b.

transformers computes all experts by `torch.nn.functional.grouped_mm`: tokens are sorted by their experts, and their
numbers are counted by `histc`. On GPUs since Hopper that waits for nothing in bfloat16. In other dtypes PyTorch reads
the numbers on the host, and multiplies group by group. If the network is compiled in such a dtype, transformers
replaces PyTorch's operator by one of its own, `transformers::grouped_mm_fallback`, which reads the numbers and
multiplies group by group, too. Autocast knows neither operator: the experts keep their dtype. Attention is written in
single operators: `scaled_dot_product_attention` takes no sink. (FlexAttention can, and transformers calls it on CUDA if
it is asked to.)
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import GptOssConfig, GptOssForCausalLM, GptOssModel
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssTopKRouter

from torchzoo.case import Mode

from .causal_lm import CausalLM


def expected_distinct_share(chosen: int, experts: int, tokens: int) -> float:
    """The share of the experts that `tokens` tokens choose together, if each takes `chosen` of them at random.

    A token leaves an expert out with probability 1 - chosen / experts; all tokens do so with its `tokens`-th power.
    """
    return 1.0 - (1.0 - chosen / experts) ** tokens


@torch.no_grad()
def choose_evenly(decoder: GptOssModel, tokens: Tensor) -> None:
    """Set the routers' biases so that `tokens` (B, T) choose the experts of each layer about evenly.

    The states of tokens that share a context grow alike from layer to layer, so that with random weights all of them
    would choose the same experts. A router's bias takes the scores of the mean state away. Each is set in one pass,
    before the router's own call. On the meta device there are no states.
    """

    def take_mean_away(router: GptOssTopKRouter, inputs: tuple[Tensor]) -> None:
        router.bias.copy_(-(router.weight @ inputs[0].mean(dim=0)))

    if tokens.is_meta:
        return
    routers = [module for module in decoder.modules() if isinstance(module, GptOssTopKRouter)]
    hooks = [router.register_forward_pre_hook(take_mean_away) for router in routers]
    decoder(input_ids=tokens, use_cache=False)
    for hook in hooks:
        hook.remove()


class GptOss(CausalLM):
    """A gpt-oss of the size of the 20B, whose tokens choose experts about evenly, as in one that was trained to do so.

    In decoding, random weights and a random cache do that. In training and in a prefill, `choose_evenly` does.
    """

    prompt_length = 1000
    cache_length = 2048
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 201_088,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_hidden_layers": 24,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "attention_bias": True,
        "sliding_window": 128,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150_000.0,
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        "tie_word_embeddings": False,
        "pad_token_id": 199_999,
        "eos_token_id": 200_002,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1024,
        "hidden_size": 128,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_local_experts": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "sliding_window": 8,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }

    def build_network(self) -> nn.Module:
        return GptOssForCausalLM(GptOssConfig(**self.sizes))

    def build(self) -> None:
        super().build()
        if self.mode is not Mode.DECODE:
            (decoder,) = (module for module in self.network.modules() if isinstance(module, GptOssModel))
            choose_evenly(decoder, self.batch.inputs["input_ids"])  # type: ignore[call-overload]

    @property
    def bytes_read_per_step(self) -> int | None:
        """Of the experts, those that the batch is expected to choose in each layer: see `expected_distinct_share`."""
        everything = super().bytes_read_per_step
        if everything is None:
            return None
        experts = sum(weight.nbytes for name, weight in self.network.named_parameters() if ".experts." in name)
        chosen, count = self.sizes["num_experts_per_tok"], self.sizes["num_local_experts"]
        return round(everything - experts * (1.0 - expected_distinct_share(chosen, count, self.batch_size)))
