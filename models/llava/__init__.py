"""LLaVA 1.5 (Liu et al., 2023, arXiv:2304.08485 and arXiv:2310.03744) with 7 billion parameters, reading 512 tokens.

Sizes: transformers' defaults, which are LLaVA 1.5 7B: Llama 7B, CLIP ViT-L/14 at 336 pixels, a projector of two layers.
(The vocabulary of https://huggingface.co/llava-hf/llava-1.5-7b-hf is padded with 64 words more, which makes
7,063,427,072 parameters.) TorchBench's `llava` (https://github.com/pytorch/benchmark at 0e83c44) names the 13B weights,
but transformers does not know the fields of their configuration, so there, too, the defaults are built.

The step is TorchBench's: the logits of 512 random tokens, all at once. It gives no image. The vision tower, 303,507,456
of the 7,062,902,784 parameters, is in memory but computes nothing. A step takes 6.90 TFLOP by our count. By hand: 2
operations for each of 512 tokens and 6,607,077,376 weights of the language model (all but its table of embeddings) make
6.766. Attention adds 4 x 512 x 512 x 4,096 in each of 32 layers: 0.137.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

from torchzoo.tasks import Batch, LanguageModel


class Model(LanguageModel):
    sizes: ClassVar[dict[str, Any]] = {
        "text": {"vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32},
        "vision": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
        "heads": 32,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "text": {"vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
        "vision": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2},
        "heads": 2,
    }

    def build_network(self) -> nn.Module:
        text = LlamaConfig(**self.sizes["text"], num_attention_heads=self.sizes["heads"], use_cache=False)
        vision = CLIPVisionConfig(**self.sizes["vision"], image_size=336, patch_size=14, projection_dim=768)
        return LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=text))

    def build_batch(self) -> Batch:
        vocabulary_size: int = self.sizes["text"]["vocab_size"]
        return Batch({"input_ids": self.data.tokens(self.batch_size, self.eval_length, vocabulary_size)})
