"""Mimi (Défossez et al., 2024, arXiv:2410.00037) encoding and decoding 10 s of speech at 1.1 kbit/s.

Sizes: transformers' defaults, those of https://huggingface.co/kyutai/mimi. As in the paper, 8 codebooks of 2,048
vectors code each 1,920 samples (12.5 frames a second). Ours has 79,308,609 parameters. The published file has 385 MB,
which is 96.2 million numbers: these parameters, and 32 codebooks (16.8 million), which are not trained by gradients.
The 24 that the paper does not use are left out here. The 10 s are encoded at once, not as a stream; attention reaches
back 250 frames, which is all of them. A quotient that transformers makes of each codebook in the first call is made
before it, as in the authors' code after loading.

A batch is one excerpt: a codec works on one stream. A step has 110.2 GFLOP by our count, and by hand:
convolutions 82.0, linear layers 25.2 and attention 2.0 in two transformers of 8 layers, and 1.0 for the distances to
the codebooks.
"""

from typing import Any

from torch import nn
from transformers import MimiConfig, MimiModel

from .._shared.codec import AudioCodec, pad_by_numbers


class Model(AudioCodec):
    audio_samples = 240_000

    def build_network(self) -> nn.Module:
        network = MimiModel(MimiConfig(num_quantizers=8))
        module: Any
        for module in network.quantizer.modules():
            if hasattr(module, "embed_sum"):
                embeddings = module.embed_sum.normal_()
                del module._embed
                module.register_buffer("_embed", embeddings)
        pad_by_numbers(network)
        return network
