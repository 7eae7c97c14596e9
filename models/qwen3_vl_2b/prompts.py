"""Prompts with an image in the middle of their text, as the model's processor makes them."""

import torch
from torch import Tensor

from torchzoo.model.data import SyntheticData

#: The tokens below are words, those from here on have a meaning of their own.
FIRST_SPECIAL = 151_643
IMAGE_BEGINS, IMAGE_ENDS, IMAGE = 151_652, 151_653, 151_655
#: The numbers of a patch: 2 equal frames of 16 x 16 pixels in 3 colours.
PATCH = 3 * 2 * 16 * 16


def image_prompts(data: SyntheticData, batch_size: int, side: int, text_length: int) -> dict[str, Tensor]:
    """B prompts of `text_length` tokens and an image of `side` x `side` patches, of which every four become a token."""
    begin, length = text_length // 2, (side // 2) ** 2
    end = begin + length
    tokens = data.tokens(batch_size, text_length + length, FIRST_SPECIAL)
    tokens[:, begin - 1], tokens[:, begin:end], tokens[:, end] = IMAGE_BEGINS, IMAGE, IMAGE_ENDS
    return {
        "input_ids": tokens,
        "mm_token_type_ids": (tokens == IMAGE).long(),
        "pixel_values": data.normal(batch_size * side**2, PATCH),
        "image_grid_thw": torch.tensor([[1, side, side]], device=data.device).repeat(batch_size, 1),
    }
