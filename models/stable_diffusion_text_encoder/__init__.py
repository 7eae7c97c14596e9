"""The text encoder of Stable Diffusion 2 (Rombach et al., 2022, arXiv:2112.10752), on a text of ten tokens.

It is the text side of OpenCLIP's ViT-H/14 (Cherti et al., 2022, arXiv:2212.07143) without its last layer: 23 layers of
16 heads, width 1,024. Sizes: https://huggingface.co/stabilityai/stable-diffusion-2, 340,387,840 parameters by our
count; a text of 10 tokens takes 5.80 GFLOP. By hand: 10 tokens times 23 layers of 12 x 1,024^2 weights, 5.79, and 0.01
for attention. open_clip's table (docs/model_profile.csv) gives the text side of ViT-H-14 354.03 million parameters.
Without its last layer (12.60) and its projection (1.05) that is 340.39. The input is that of the module which
TorchBench's model of this name hands to compilers (https://github.com/pytorch/benchmark at 0e83c44): one text of 10
tokens. (Its own evaluation draws a whole image, where texts are padded to 77.)
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel

from torchzoo.tasks import Batch, NetworkModel


class Model(NetworkModel):
    sample_unit = "texts"
    length = 10
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
