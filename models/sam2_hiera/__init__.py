"""SAM 2.1 with Hiera-B+ (Ravi et al., 2024, arXiv:2408.00714), segmenting what a point of an image shows.

Sizes: `sam2.1_hiera_b+.yaml` of https://github.com/facebookresearch/sam2 and the defaults of its `Hiera`. Its table
says 80.8 M parameters, with the memory of videos. This folder segments one image: the tracking of objects through a
video, with memory attention, is not part of it. So ours has 73,328,401.

A step encodes images of 1024 x 1024 and decodes three masks of 256 x 256 for one point of each, with their scores.

By our count a step takes 651 GFLOP. By hand, from the configuration: Hiera 638 (matrices and the attention in windows,
padded where 14 does not divide 64), the neck's 1 x 1 convolutions 9, the mask decoder 4; 650 in all. We found no
published number.
"""

from typing import Any, ClassVar

import torch
from torch import nn
from transformers import Sam2Config, Sam2Model

from torchzoo.model.tasks import Batch

from .._shared.segmentation import PromptableSegmenter


class Model(PromptableSegmenter):
    results = ("pred_masks", "iou_scores", "object_score_logits")
    sizes: ClassVar[dict[str, Any]] = {
        "hidden_size": 112,
        "num_attention_heads": 2,
        "blocks_per_stage": [2, 3, 16, 3],
        "embed_dim_per_stage": [112, 224, 448, 896],
        "num_attention_heads_per_stage": [2, 4, 8, 16],
        "window_size_per_stage": [8, 4, 14, 7],
        "global_attention_blocks": [12, 16, 20],
        "window_positional_embedding_background_size": [14, 14],
    }

    def build_network(self) -> nn.Module:
        backbone = {"model_type": "sam2_hiera_det_model", **self.sizes}
        widths = self.sizes["embed_dim_per_stage"][::-1]
        return Sam2Model(Sam2Config(vision_config={"backbone_config": backbone, "backbone_channel_list": widths}))

    def build_batch(self) -> Batch:
        inputs = {
            "pixel_values": self.data.images(self.batch_size, 3, 1024, 1024),
            "input_points": self.data.uniform(self.batch_size, 1, 1, 2, high=1024),  # for one mask, one point: x, y
            "input_labels": torch.ones(self.batch_size, 1, 1, dtype=torch.int64, device=self.device),  # it is inside
        }
        return Batch(inputs)
