"""The text encoder of Stable Diffusion 2 (Rombach et al., 2022, arXiv:2112.10752), on a text padded to 77 tokens.

It is the text side of OpenCLIP's ViT-H/14 (Cherti et al., 2022, arXiv:2212.07143) without its last layer: 23 layers of
16 heads, width 1,024. Sizes: https://huggingface.co/stabilityai/stable-diffusion-2, 340,387,840 parameters by our
count; a text of 77 tokens takes 45.1 GFLOP. By hand: 77 tokens times 23 layers of 12 x 1,024^2 weights, 44.57, and 4 x
77 x 77 x 1,024 operations of attention in each layer, 0.56. open_clip's table (docs/model_profile.csv) gives the text
side of ViT-H-14 354.03 million parameters. Without its last layer (12.60) and its projection (1.05) that is 340.39.

77 tokens are what TorchBench's model of this name (https://github.com/pytorch/benchmark at 0e83c44) encodes when it
draws an image: each text is padded to them. (To compilers it hands a text of 10 tokens.)
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel

from torchzoo.model.tasks import Batch, NetworkModel


class Model(NetworkModel):
    sample_unit = "texts"
    length = 77
    vocabulary_size = 49_408
    sizes: ClassVar[dict[str, Any]] = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 23,
        "num_attention_heads": 16,
    }

    @classmethod
    def small(cls) -> type["Model"]:
        sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
        return type("Small", (cls,), {"sizes": sizes})

    def build_network(self) -> nn.Module:
        config = CLIPTextConfig(vocab_size=self.vocabulary_size, hidden_act="gelu", **self.sizes)
        return CLIPTextModel(config)

    def build_batch(self) -> Batch:
        return Batch((self.data.tokens(self.batch_size, self.length, self.vocabulary_size),))

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        """What the U-Net attends to, (B, T, 1024)."""
        with self.autocast():
            states: Tensor = self.forward().last_hidden_state
        return states
