"""The encoder of Whisper tiny (Radford et al., 2022, arXiv:2212.04356) classifying 30 seconds of speech.

Sizes: transformers' defaults, which are Whisper tiny's: 4 layers of 6 heads, width 384, 80 mel channels, 3,000 frames.
The paper counts 39 million parameters with the decoder. TorchBench's `hf_Whisper` (https://github.com/pytorch/benchmark
at 0e83c44) is transformers' audio classifier, too: it has the encoder only, a projection to 256 and two classes.

TorchBench evaluates it only. Here it is trained, too, with TorchBench's Adam at 1e-3, at the batch that it names for
training. The sinusoids of the positions are fixed.

Ours has 8,307,458 parameters: the encoder's 8,208,384, the projection's 98,560 and the classes' 514. A step of
evaluation has 297.9 GFLOP for 8 clips, by our count and by hand: per clip convolutions 1.9, linear layers 21.2,
attention 13.8 and the projection 0.3. A step of training has 889.2: three times as many, less the gradient of the
spectrograms, which nothing needs (4.4).
"""

from torch import nn
from transformers import WhisperConfig, WhisperForAudioClassification

from .._shared.whisper_classifier import WhisperClassifier


class Model(WhisperClassifier):
    def build_network(self) -> nn.Module:
        config = WhisperConfig(  # type: ignore[call-arg]  # num_labels is of all configurations
            num_mel_bins=self.mel_channels,
            d_model=384,
            encoder_layers=4,
            encoder_attention_heads=6,
            encoder_ffn_dim=1536,
            classifier_proj_size=256,
            num_labels=self.num_classes,
        )
        return WhisperForAudioClassification(config)
