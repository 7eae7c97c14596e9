"""SAM 3 (Carion et al., 2025, arXiv:2511.16719): boxes and masks of all things in an image that a phrase names.

Sizes: the configuration of facebook/sam3 and `sam3/model_builder.py` of https://github.com/facebookresearch/sam3. It is
published as 848 M parameters with its tracker of videos; ours, without it, has 840,376,374. A step encodes an image of
1008 x 1008 (5,184 patches) and a phrase of 32 tokens, and decodes 200 boxes with scores and with masks of 288 x 288.
The work does not depend on what is found. The encoder of boxes as prompts is there, and has nothing to do without them.

By our count a step takes 6.05 TFLOP (counted on the meta device, with the size of the feature map set in advance). By
hand, from the configuration: the ViT 5.40 TFLOP (in four of 32 layers a patch attends to all patches, in the others to
a window of 24 x 24), its neck 0.21, the encoder of the detector 0.26, the pixel decoder and masks 0.14, the text and
the decoder 0.04; 6.05 in all. We found no published number.
"""

from typing import Any, ClassVar

from torch import nn
from transformers import Sam3Config, Sam3Model

from torchzoo.model.tasks import Batch

from .._shared.segmentation import PromptableSegmenter


class Model(PromptableSegmenter):
    results = ("pred_masks", "pred_boxes", "pred_logits", "presence_logits")
    sizes: ClassVar[dict[str, Any]] = {
        "vision": {"hidden_size": 1024, "intermediate_size": 4736, "num_hidden_layers": 32, "num_attention_heads": 16},
        "image": {"image_size": 1008, "window_size": 24, "global_attn_indexes": [7, 15, 23, 31]},
        "text": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
        "detector": {"hidden_size": 256, "intermediate_size": 2048, "num_layers": 6, "num_attention_heads": 8},
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vision": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2},
        "image": {"image_size": 112, "window_size": 4, "global_attn_indexes": [1], "pretrain_image_size": 56},
        "text": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2},
        "detector": {"hidden_size": 256, "intermediate_size": 64, "num_layers": 2, "num_attention_heads": 8},
    }

    def build_network(self) -> nn.Module:
        backbone = {"model_type": "sam3_vit_model", "patch_size": 14, **self.sizes["vision"], **self.sizes["image"]}
        side = self.sizes["image"]["image_size"] // 14
        phrase = {"vocab_size": 49408, "max_position_embeddings": 32, "projection_dim": 512, "hidden_act": "gelu"}
        config = Sam3Config(
            vision_config={"backbone_config": backbone, "backbone_feature_sizes": [[n * side] * 2 for n in (4, 2, 1)]},
            text_config={"model_type": "clip_text_model", **phrase, **self.sizes["text"]},
            detr_encoder_config=dict(self.sizes["detector"]),
            detr_decoder_config={"num_queries": 200, **self.sizes["detector"]},
        )
        return Sam3Model(config)

    def build_batch(self) -> Batch:
        size = self.sizes["image"]["image_size"]
        image = self.data.images(self.batch_size, 3, size, size)
        return Batch({"pixel_values": image, "input_ids": self.data.tokens(self.batch_size, 32, 49408)})
