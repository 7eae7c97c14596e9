"""Segment Anything (Kirillov et al., 2023, arXiv:2304.02643) with the ViT-H, from transformers: masks of one point.

Sizes: https://huggingface.co/facebook/sam-vit-huge. The authors (https://segment-anything.com) count 632 million
parameters in the encoder of images and 4 million in the rest. Ours has 631,783,168, a table of positions of 5,242,880,
and 4,064,816: 641,090,864 in all. A step takes 5.96 TFLOP by our count. EfficientViT-SAM (arXiv:2402.05008) gives 2,973
GMAC for the encoder of images, which are 5.95 TFLOP. The step is that of TorchBench's `sam`
(https://github.com/pytorch/benchmark at 0e83c44): a photo of 1,800 x 1,200 pixels that was resized to 1,024 x 683 is
normalised and padded to a square, encoded, and segmented at one point; the three masks are enlarged to the photo's size
and cut off at zero. TorchBench reads and resizes the photo in the step, and takes the masks to the host; that is left
out. TorchBench's model names a batch of 32, but segments one photo whatever the batch is, so one is the default here.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import SamConfig, SamModel, SamPromptEncoderConfig, SamVisionConfig

from torchzoo.model.tasks import Batch, NetworkModel

from .network import Segmenter


class Model(NetworkModel):
    sample_unit = "images"
    height, width = 683, 1024
    original_size = (1200, 1800)
    point = (500 * 1024 / 1800, 375 * 1024 / 1800)  # x and y
    image_size = 1024
    sizes: ClassVar[dict[str, Any]] = {
        "hidden_size": 1280,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "global_attn_indexes": [7, 15, 23, 31],
    }

    @classmethod
    def small(cls) -> type["Model"]:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "global_attn_indexes": [1]}
        small = {"sizes": sizes, "image_size": 256, "height": 171, "width": 256, "original_size": (300, 450)}
        return type("Small", (cls,), small)

    def build_network(self) -> nn.Module:
        vision = SamVisionConfig(**self.sizes, image_size=self.image_size, initializer_range=0.02)
        prompt = SamPromptEncoderConfig(image_size=self.image_size)
        network = SamModel(SamConfig(vision_config=vision, prompt_encoder_config=prompt))
        return Segmenter(network, self.image_size, self.original_size)

    def build_batch(self) -> Batch:
        images = self.data.uniform(self.batch_size, 3, self.height, self.width, high=255.0)
        points = images.new_tensor(self.point).expand(self.batch_size, 1, 1, 2).contiguous()
        return Batch((images, points))
