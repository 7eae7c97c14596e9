"""The encoder of Distil-Whisper medium.en (Gandhi et al., 2023, arXiv:2311.00430) classifying 30 seconds of speech.

Sizes: https://huggingface.co/distil-whisper/distil-medium.en. Distillation leaves the encoder of Whisper medium as it
is: 24 layers of 16 heads, width 1,024. The model card counts 394 million parameters with a decoder of two layers.
TorchBench's `hf_distil_whisper` (https://github.com/pytorch/benchmark at 0e83c44) is transformers' audio classifier,
too: it has the encoder only, a projection to 256 and two classes.

TorchBench evaluates it only. Here it is trained, too, with TorchBench's Adam at 1e-3, at the batch that it names for
training. The sinusoids of the positions are fixed.

Ours has 307,479,298 parameters: the encoder's 307,216,384, the projection's 262,400 and the classes' 514. A step of
evaluation has 1,138.9 GFLOP for one clip, by our count and by hand: convolutions 10.9, linear layers 906.0, attention
221.2 and the projection 0.8. A step of training has 27,321 for 8 clips: 24 times as many, less the gradient of the
spectrograms, which nothing needs (11.8).
"""

from typing import Any, ClassVar

from torch import nn
from transformers import WhisperConfig, WhisperForAudioClassification

from .._shared.whisper_classifier import WhisperClassifier


class Model(WhisperClassifier):
    sizes: ClassVar[dict[str, Any]] = {
        "d_model": 1024,
        "encoder_layers": 24,
        "encoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
    }

    @classmethod
    def small(cls) -> type["Model"]:
        sizes = {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 64}
        return type("Small", (cls,), {"sizes": sizes, "frames": 64})

    def build_network(self) -> nn.Module:
        config = WhisperConfig(  # type: ignore[call-arg]  # num_labels is of all configurations
            num_mel_bins=self.mel_channels,
            max_source_positions=self.frames // 2,
            classifier_proj_size=256,
            num_labels=self.num_classes,
            **self.sizes,
        )
        return WhisperForAudioClassification(config)
