"""Wan 2.1 T2V 1.3B (Wan team, 2025, arXiv:2503.20314): a diffusion transformer that makes videos from text.

Sizes: `wan/configs/wan_t2v_1_3B.py` of https://github.com/Wan-Video/Wan2.1. The card says 1.3 billion parameters; the
weights and ours have 1,418,996,800.

An eval step is the network's part of one step of sampling 81 frames of 480 x 832, without guidance, which would double
the batch, and without the update by the scheduler. They are 21 latent frames of 60 x 104: 32,760 tokens, which all
attend to each other and to 512 tokens of text. Random numbers stand for what the text encoder and the autoencoder give.
Training is flow matching at times whose logits are normal, on 5 latent frames (17 of the video). The paper trains on 5
seconds of video; that is more than 80 GB hold at fp32. AdamW and the clipping are those of `Denoiser`.

By our count an eval step takes 283 TFLOP and a train step 94.8. By hand, with width D = 1,536 and N = 32,760 tokens: 30
blocks of 6 D^2 + 2 x 8,960 D weights a token and the keys and values of the text take 82, their attention of 4 N^2 D
operations (and of the text) 201; 283. Training has 7,800 tokens and takes three times its forward pass, without
gradients of the inputs: 94.8. We found no published number.
"""

from typing import Any, ClassVar

from diffusers import WanTransformer3DModel
from torch import Tensor, nn

from torchzoo.model import Inputs

from .._shared.denoising import FlowMatching


class Model(FlowMatching):
    train_latents = (16, 5, 60, 104)
    eval_latents = (16, 21, 60, 104)
    sizes: ClassVar[dict[str, Any]] = {
        "patch_size": (1, 2, 2),
        "num_layers": 30,
        "num_attention_heads": 12,
        "attention_head_dim": 128,
        "ffn_dim": 8960,
        "in_channels": 16,
        "out_channels": 16,
        "text_dim": 4096,
        "freq_dim": 256,
        "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads",
        "eps": 1e-6,
    }
    small_sizes: ClassVar[dict[str, Any]] = {"num_layers": 2, "num_attention_heads": 2, "ffn_dim": 512}
    small_data: ClassVar[dict[str, Any]] = {"train_latents": (16, 2, 8, 8), "eval_latents": (16, 3, 8, 8)}

    def build_network(self) -> nn.Module:
        return WanTransformer3DModel(**self.sizes)  # type: ignore[no-untyped-call, return-value]

    def build_inputs(self, latents: Tensor, times: Tensor) -> Inputs:
        text = self.data.normal(self.batch_size, 512, 4096)
        return {"hidden_states": latents, "timestep": 1000 * times, "encoder_hidden_states": text}
