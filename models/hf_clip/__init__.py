"""CLIP ViT-B/32 (Radford et al., 2021, arXiv:2103.00020) from transformers, on images and captions of four words.

Sizes: https://huggingface.co/openai/clip-vit-base-patch32, 151,277,313 parameters. Batches, lengths (six tokens with
start and end) and the optimizer, AdamW at 5e-4 with a weight decay of 1e-4, are those of TorchBench's `hf_clip`
(https://github.com/pytorch/benchmark at 0e83c44). There, one image and one caption are repeated, and the temperature of
the loss is fixed at 0.07. Here each pair is different and, as in the paper, the temperature is trained.
"""

from typing import ClassVar

from torchzoo.networks.clip import ClipModel


class Model(ClipModel):
    text_length: ClassVar[int] = 6
