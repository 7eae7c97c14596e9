"""moondream (Korrapati, 2024, https://github.com/vikhyat/moondream) reading an image and 512 tokens.

It answers questions about images: SigLIP (Zhai et al., 2023, arXiv:2303.15343) looks, Phi-1.5 (Li et al., 2023,
arXiv:2309.05463) writes. Sizes are those of moondream1. SigLIP is the ViT of 400 million parameters at 378 pixels,
whose 27 x 27 patches become as many tokens by an MLP of two layers. Phi-1.5 has transformers' defaults (24 layers of 32
heads, width 2,048). No library has the two together; `network.py` does.

Ours has 1,857,482,608 parameters: SigLIP 412,987,248, the MLP 26,224,640, Phi-1.5 1,418,270,720. moondream2, which has
the same parts, is published as 1.86 billion. Phi-1.5 alone is published as 1.3 billion: with only one of its tables of
51,200 words (at the input and in the head) it has 1,313,413,120.

The step computes the logits of the image and of 512 random tokens at once. TorchBench's `moondream`
(https://github.com/pytorch/benchmark at 0e83c44) is `PhiForCausalLM`, on the 512 tokens alone: it sees no image.

By our count a step takes 4.27 TFLOP. By hand: 2 operations for each of 729 patches and 411,466,608 + 677,376 weights
of SigLIP, 0.601; attention of 4 x 729 x 729 x 1,152 in each of 27 layers, 0.066; the MLP, 0.038. Phi takes 2 operations
for each of 1,241 tokens and 1,312,817,152 weights (1,207,959,552 in the layers, 104,857,600 in the head), 3.258, and 4
x 1,241 x 1,241 x 2,048 for attention in each layer, 0.303.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import PhiConfig, SiglipVisionConfig

from torchzoo.model.tasks import Batch, LanguageModel

from .network import Moondream


class Model(LanguageModel):
    sizes: ClassVar[dict[str, Any]] = {
        "text": {
            "vocab_size": 51_200,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "max_position_embeddings": 2048,
        },
        "vision": {
            "image_size": 378,
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
        },
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "text": {
            "vocab_size": 1000,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
        },
        "vision": {
            "image_size": 56,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
        },
    }

    def build_network(self) -> nn.Module:
        vision = SiglipVisionConfig(**self.sizes["vision"], patch_size=14, vision_use_head=False)
        return Moondream(vision, PhiConfig(**self.sizes["text"], use_cache=False))

    def build_batch(self) -> Batch:
        side = self.sizes["vision"]["image_size"]
        image = self.data.images(self.batch_size, 3, side, side)
        tokens = self.data.tokens(self.batch_size, self.eval_length, self.sizes["text"]["vocab_size"])
        return Batch({"pixel_values": image, "input_ids": tokens})
