"""CLIP ViT-B/32 (Radford et al., 2021, arXiv:2103.00020) at its full text length, finding the text of each image.

TorchBench's model of this name (https://github.com/pytorch/benchmark at 0e83c44) is `clip_vit_b32` of TorchMultimodal
(https://github.com/facebookresearch/multimodal), a library that is no longer maintained. This is transformers' CLIP
with the same sizes: 151,277,313 parameters (open_clip's table, docs/model_profile.csv: 151.28 million), one of them the
temperature, which TorchMultimodal keeps in its loss. Texts have all 77 tokens, which is what sets it apart from
`hf_clip`. The optimizer is AdamW at 5e-4 with a weight decay of 1e-4.

An eval step ends with the closest text of each image. TorchBench then looks up its words, image by image, on the host;
that is left out. It also reads 32 texts whatever the batch of images is; here a batch has as many texts as images.

By our count an eval step of 32 pairs takes 473 GFLOP and a train step 1,411. open_clip's table gives 14.78 GFLOP for a
pair, 473 for 32. Three times that are 1,419; the gradient of the images, 7, is not computed.
"""

from typing import ClassVar

from .._shared.clip import ClipModel


class Model(ClipModel):
    text_length: ClassVar[int] = 77
