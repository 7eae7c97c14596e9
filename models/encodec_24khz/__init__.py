"""EnCodec at 24 kHz (Défossez et al., 2022, arXiv:2210.13438) encoding and decoding 10 s of audio at 6 kbit/s.

Sizes: the configuration of https://huggingface.co/facebook/encodec_24khz. At 6 kbit/s it has 8 codebooks of 1,024
vectors for each 320 samples. Ours has 14,851,810 parameters. The published file has 93.1 MB, which is 23.3 million
numbers: these parameters, and 32 codebooks with their moving averages (8.4 million), which are not trained by
gradients. The 24 codebooks for higher rates are left out here. As in the authors' code, convolutions keep their weight
normalisation in evaluation.

A batch is one excerpt, as in the authors' command, which codes one file. A step has 61.16 GFLOP by our count and by
hand: convolutions 47.0, four LSTM layers 12.6, the distances to the codebooks 1.6. The codebooks are random, as the
weights are, at a scale at which the codes change over time.
"""

from typing import Any

from torch import nn
from transformers import EncodecConfig, EncodecModel

from .._shared.codec import AudioCodec, pad_by_numbers


class Model(AudioCodec):
    audio_samples = 240_000

    def build_network(self) -> nn.Module:
        network = EncodecModel(EncodecConfig(target_bandwidths=[6.0]))
        layer: Any
        for layer in network.quantizer.layers:
            layer.codebook.embed.normal_(std=0.01)  # the encoder's outputs differ by so much over time
        pad_by_numbers(network)
        return network
