"""SAM 2.1 with Hiera-T (Ravi et al., 2024, arXiv:2408.00714), tracking what a point of a video's first frame shows.

Sizes: `sam2.1_hiera_t.yaml` of https://github.com/facebookresearch/sam2, which are transformers' defaults. Its table
says 38.9 M parameters; ours has 38,962,498, with the memory of videos.

A step tracks one object through 8 frames of 1024 x 1024, one after another, as the authors' predictor does. Each frame
is encoded; in all but the first, memory attention compares it with the memories of the first frame and of those before
it, at most 7; one of three masks is chosen; and the memory encoder writes a memory of it. The session that holds the
memories is new in each step. The results are masks of 256 x 256, scores of the object's presence, and the memory of the
last frame (so that no compiler leaves it out). The amount of work does not depend on them. They are not scaled up to
the size of a video, and no holes are filled.

A step has 5,231 GFLOP by our count. By hand: image encoder 8 x 292.4 = 2,339 (three blocks with global attention have
77 each), memory attention 2,768 in 7 frames (its keys are 1 to 7 times 4,096 places), memory encoder 91: 5,198 without
the mask decoder.
"""

from typing import Any, ClassVar

import torch
from torch import nn

from torchzoo.model.tasks import Batch, NetworkModel

from .._shared.sized import SizedModel
from .network import Tracker, video_config


class Model(SizedModel, NetworkModel):
    sample_unit = "frames"
    frame_count = 8
    image_size = 1024
    sizes: ClassVar[dict[str, Any]] = {
        "hidden_size": 96,
        "num_attention_heads": 1,
        "blocks_per_stage": [1, 2, 7, 2],
        "embed_dim_per_stage": [96, 192, 384, 768],
        "num_attention_heads_per_stage": [1, 2, 4, 8],
        "window_size_per_stage": [8, 4, 14, 7],
        "global_attention_blocks": [5, 7, 9],
        "window_positional_embedding_background_size": [7, 7],
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "blocks_per_stage": [1, 1, 2, 1],
        "embed_dim_per_stage": [16, 32, 64, 128],
        "hidden_size": 16,
        "global_attention_blocks": [3],
    }
    small_data: ClassVar[dict[str, Any]] = {"frame_count": 3, "image_size": 128}

    def build_network(self) -> nn.Module:
        return Tracker(video_config(self.sizes, self.image_size))

    def build_batch(self) -> Batch:
        size = self.image_size
        videos = self.data.normal(self.batch_size, self.frame_count, 3, size, size)
        point = self.data.uniform(self.batch_size, 1, 1, 1, 2, high=size)
        inside = torch.ones(self.batch_size, 1, 1, 1, dtype=torch.int64)
        return Batch((videos, point, inside))

    @property
    def samples_per_step(self) -> int:
        return self.batch_size * self.frame_count
