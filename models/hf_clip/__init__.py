"""CLIP ViT-B/32 (Radford et al., 2021, arXiv:2103.00020) from transformers, on images and captions of four words.

Sizes: https://huggingface.co/openai/clip-vit-base-patch32, 151,277,313 parameters (open_clip's table,
docs/model_profile.csv: 151.28 million). Batches, lengths (six tokens with start and end) and the optimizer, AdamW at
5e-4 with a weight decay of 1e-4, are those of TorchBench's `hf_clip` (https://github.com/pytorch/benchmark at 0e83c44).
There, one image and one caption are repeated, and the temperature of the loss is fixed at 0.07. Here each pair is
different and, as in the paper, the temperature is trained.

By our count an eval step of 32 pairs takes 297 GFLOP and a train step 883. open_clip's table gives 8.82 GFLOP for an
image (282 for 32), and six tokens in 12 layers of 12 x 512^2 weights take 0.45 GFLOP by hand (15 for 32): 297. Three
times that are 890; the gradient of the images, 7, is not computed.
"""

from typing import ClassVar

from .._shared.clip import ClipModel


class Model(ClipModel):
    text_length: ClassVar[int] = 6
