"""The encoder of Whisper tiny (Radford et al., 2022, arXiv:2212.04356) classifying 30 seconds of speech.

Sizes: transformers' defaults, which are Whisper tiny's: 4 layers of 6 heads, width 384, 80 mel channels, 3,000 frames.
The paper counts 39 million parameters with the decoder. TorchBench's `hf_Whisper` (https://github.com/pytorch/benchmark
at 0e83c44) is transformers' audio classifier, too: it has the encoder only, a projection to 256 and two classes.

TorchBench evaluates it only. Here it is trained, too, with TorchBench's Adam at 1e-3, at the batch that it names for
training. The sinusoids of the positions are fixed.
"""

from torch import nn
from transformers import WhisperConfig, WhisperForAudioClassification

from torchzoo.networks.whisper_classifier import WhisperClassifier


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
