"""Whisper large-v3-turbo (Radford et al., 2022, arXiv:2212.04356; OpenAI, 2024) writing down 30 seconds of speech.

Sizes: the configuration of openai/whisper-large-v3-turbo. Its card says 809 M parameters; its weights and ours have
808,878,080. The encoder makes 1,500 states of 3,000 frames with 128 mel bands. A transcript begins with 4 tokens (its
start, the language, the task, no timestamps) and has at most 448: training has as many, and a step of decoding reads
the last one. AdamW, its settings and the clipping are those of the paper's appendix F. The sinusoids of the encoder's
positions are fixed.

A step of evaluation has 18,190 GFLOP for 8 recordings, by our count and by hand: per recording convolutions 17.7,
linear layers 1,887.4 and attention 368.6. A step of decoding has 2.849 for 8 tokens, by both: per token linear layers
0.184, attention 0.040 and the table of tokens 0.133. A step of training has 59,320 by hand: three times the encoder's
and the decoder's (198.9 per recording, of which the table of tokens has 59.5), less the gradient of the spectrograms.
"""

from typing import Any, ClassVar

import torch
from torch import nn
from transformers import WhisperConfig, WhisperForConditionalGeneration

from .._shared.encoder_decoder import SpeechRecogniser


class Model(SpeechRecogniser):
    max_grad_norm = 1.0
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 51866,
        "num_mel_bins": 128,
        "d_model": 1280,
        "encoder_layers": 32,
        "encoder_attention_heads": 20,
        "encoder_ffn_dim": 5120,
        "decoder_layers": 4,
        "decoder_attention_heads": 20,
        "decoder_ffn_dim": 5120,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "pad_token_id": 50257,
        "bos_token_id": 50257,
        "eos_token_id": 50257,
        "decoder_start_token_id": 50258,
    }
    small_sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 1000,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "decoder_start_token_id": 1,
        "d_model": 128,
        "encoder_layers": 3,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 256,
        "decoder_ffn_dim": 256,
        "max_source_positions": 25,
    }
    small_data: ClassVar[dict[str, Any]] = {"frame_count": 50, "state_count": 25, "target_length": 16}

    def build_network(self) -> nn.Module:
        return WhisperForConditionalGeneration(WhisperConfig(**self.sizes, use_cache=False))

    def build_optimizer(self) -> torch.optim.Optimizer:
        trained = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        return torch.optim.AdamW(trained, lr=1.75e-4, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.1)
