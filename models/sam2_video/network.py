"""transformers' SAM 2 as one network, from the frames of videos to the masks of what a point shows in the first one."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Sam2VideoConfig, Sam2VideoInferenceSession, Sam2VideoModel

OBJECT = 1  # its name in a session


def video_config(sizes: dict[str, Any], image_size: int) -> Sam2VideoConfig:
    """The configuration for square frames of `image_size` and an image encoder (Hiera) of these sizes."""
    return Sam2VideoConfig(
        vision_config={
            "backbone_config": {"model_type": "sam2_hiera_det_model", "image_size": [image_size] * 2, **sizes},
            "backbone_channel_list": sizes["embed_dim_per_stage"][::-1],
            "backbone_feature_sizes": [[image_size // stride] * 2 for stride in (4, 8, 16)],
        },
        prompt_encoder_config={"image_size": image_size},
        image_size=image_size,
        memory_attention_rope_feat_sizes=[image_size // 16] * 2,
    )


class Sam2Video(Sam2VideoModel):  # type: ignore[no-untyped-call]
    """transformers runs it in inference mode, whose tensors AOTAutograd refuses. A step has no gradients anyway."""

    forward = Sam2VideoModel.forward.__wrapped__


class Tracker(nn.Module):
    """Tracks one object of each video (F, 3, H, W), frame by frame. Each call makes new sessions: it remembers nothing.

    Shape letters: B videos, F frames, H, W the size of a frame, S the size of a mask, a quarter of the frame's.
    """

    def __init__(self, config: Sam2VideoConfig) -> None:
        super().__init__()
        self.model = Sam2Video(config)

    def forward(self, videos: Tensor, points: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """Track what a point shows in the first frame of each video.

        Args:
            videos: (B, F, 3, H, W).
            points: (B, 1, 1, 1, 2), x and y in pixels.
            labels: (B, 1, 1, 1), 1 for a point inside of the object.

        Returns: masks (B, F, S, S), scores of the object's presence (B, F), and what the frame after the last would
            remember of the last: features (B, ...) and a pointer (B, C) to the object.
        """
        tracks = [self.track(*each) for each in zip(videos, points, labels, strict=True)]
        return tuple(map(torch.stack, zip(*tracks, strict=True)))

    def track(self, video: Tensor, point: Tensor, label: Tensor) -> tuple[Tensor, ...]:
        names = ("inference_device", "inference_state_device", "video_storage_device")
        devices: dict[str, Any] = dict.fromkeys(names, video.device)
        session = Sam2VideoInferenceSession(video=video, dtype=video.dtype, **devices)
        inputs = {"point_coords": point, "point_labels": label}
        index = session.obj_id_to_idx(OBJECT)
        session.add_point_inputs(index, 0, inputs)
        session.obj_with_new_inputs = [OBJECT]
        frames = [self.model(session, frame_idx=frame) for frame in range(len(video))]
        masks = torch.cat([frame.pred_masks for frame in frames])
        scores = torch.cat([frame.object_score_logits for frame in frames])
        memory = session.output_dict_per_obj[index]["non_cond_frame_outputs"][len(video) - 1]
        return masks.squeeze(1), scores.squeeze(1), memory["maskmem_features"], memory["object_pointer"].flatten()
