"""Qwen3-VL 2B (Qwen team, 2025, arXiv:2511.21631) reading an image of 1024 x 1024 and text.

Sizes: the configuration of Qwen/Qwen3-VL-2B-Instruct. It is published as 2 billion parameters; its weights and ours
have 2,127,532,032. A prompt is 256 tokens of text and an image, whose 64 x 64 patches become 1,024 tokens; `prefill`
encodes it, too. `decode` reads text alone: what the image became is in the cache. Training has such prompts, and the
loss of their text. Its optimizer is that of `CausalLM`.

By our count, a prefill takes 8.33 TFLOP (from networks of three and four layers: each further layer adds the same), and
a token in decoding 3.91 GFLOP. By hand, the encoder's layers take 2 operations for each of 4,096 patches and 302
million weights: 2.47 TFLOP. Its attention takes 4 x 4,096 x 4,096 x 1,024 in each of 24 layers: 1.65. Patches and the
four projections to the text's width take 0.22. The text's layers take 2 operations for each of 1,280 tokens and 1,409
million weights: 3.61. Attention adds 4 x 1,280 x 1,280 x 2,048 in each of 28 layers: 0.38. Decoding takes 3.44 GFLOP
for the weights (with the head), and 0.47 for attention to a full cache. For a train step of 2 prompts there is no count
of ours, only one by hand: 54.7 TFLOP, three times as much for a prompt as in a prefill, with the head for all of its
tokens.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch

from .._shared.causal_lm import CausalLM
from .prompts import IMAGE, image_prompts


class Model(CausalLM):
    prompt_length = 256 + 1024
    not_decoded = "model.visual"
    sizes: ClassVar[dict[str, Any]] = {
        "text": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
        "vision": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "depth": 24,
            "deepstack_visual_indexes": (5, 11, 17),
        },
        "prompt": {"side": 64, "text_length": 256},
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "text": {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8},
        "vision": {
            "hidden_size": 64,
            "intermediate_size": 96,
            "depth": 3,
            "num_heads": 4,
            "deepstack_visual_indexes": (0, 1),
        },
        "prompt": {"side": 4, "text_length": 12},
    }

    def build_network(self) -> nn.Module:
        positions = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20]}
        text = {"num_key_value_heads": 8, "head_dim": 128, "rope_parameters": positions, **self.sizes["text"]}
        vision = {"num_heads": 16, "out_hidden_size": text["hidden_size"], **self.sizes["vision"]}
        config = Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True)
        return Qwen3VLForConditionalGeneration(config)

    def build_batch(self) -> Batch:
        if self.mode is Mode.DECODE:
            return super().build_batch()
        inputs = image_prompts(self.data, self.batch_size, **self.sizes["prompt"])
        if self.mode is Mode.TRAIN:
            inputs["labels"] = inputs["input_ids"].masked_fill(inputs["input_ids"] == IMAGE, -100)
        return Batch(inputs)
