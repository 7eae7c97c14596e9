"""LLaVA 1.5 7B (Liu et al., 2023, arXiv:2304.08485 and arXiv:2310.03744) reading an image and 512 tokens of text.

Sizes: https://huggingface.co/llava-hf/llava-1.5-7b-hf: Llama 7B with 32,064 words, CLIP ViT-L/14 at 336 pixels, a
projector of two layers; its weights and ours have 7,063,427,072 parameters. As in the authors' code, the features of
the image are those of CLIP's layer before the last. (The last layer, 12,596,224 parameters, is computed and not read,
0.1% of the step.)

The step computes the logits of 576 tokens of an image and 512 random tokens of text, all at once. TorchBench's `llava`
(https://github.com/pytorch/benchmark at 0e83c44) reads the 512 tokens of text alone: it sees no image, and its vision
tower computes nothing. It names the 13B weights, but transformers does not know the fields of their configuration, so
that its sizes are transformers' defaults, which are those of 7B with 32,000 words.

A step takes 15.4 TFLOP by our count. By hand: the language model takes 2 operations for each of 1,088 tokens and
6,607,339,520 weights (all but its table of embeddings), 14.378, and 4 x 1,088 x 1,088 x 4,096 for attention in each of
32 layers, 0.621. The vision tower takes 2 operations for each of 577 tokens and 302,309,376 weights, 0.349, and 4 x 577
x 577 x 1,024 in each of 24 layers, 0.033. The projector takes 0.024.
"""

from typing import Any, ClassVar

import torch
from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

from torchzoo.model.tasks import Batch, LanguageModel


class Model(LanguageModel):
    sizes: ClassVar[dict[str, Any]] = {
        "text": {"vocab_size": 32_064, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32},
        "vision": {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 336,
        },
        "heads": 32,
        "image_token": 32_000,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "text": {"vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
        "vision": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": 56,
        },
        "heads": 2,
        "image_token": 990,
    }

    def build_network(self) -> nn.Module:
        text = LlamaConfig(**self.sizes["text"], num_attention_heads=self.sizes["heads"], use_cache=False)
        vision = CLIPVisionConfig(**self.sizes["vision"], patch_size=14, projection_dim=768)
        config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=self.sizes["image_token"])
        return LlavaForConditionalGeneration(config)

    def build_batch(self) -> Batch:
        side, image_token = self.sizes["vision"]["image_size"], self.sizes["image_token"]
        tokens = self.data.tokens(self.batch_size, self.eval_length, image_token)  # words before this one
        places = torch.full((self.batch_size, (side // 14) ** 2), image_token)
        return Batch(
            {
                "input_ids": torch.cat([tokens[:, :1], places, tokens[:, 1:]], dim=1),
                "pixel_values": self.data.images(self.batch_size, 3, side, side),
            }
        )
