"""gpt-oss-20b (OpenAI, 2025, arXiv:2508.10925) generating with a static cache, in bfloat16.

The model card names 20.91 billion parameters, 3.61 billion of them active in a token without the table of embeddings.
Here: 20,914,757,184 and 3,608,307,264. By our count, a prefill takes 6.66 TFLOP, and a token in decoding 7.64 GFLOP. By
hand: 2 operations for each token and active weight make 6.06 TFLOP in a prefill, whose head reads one token, and 7.21
GFLOP in decoding. Attention takes 4 x 4,096 for each token, key and layer. 12 layers read all 2,048 places of their
cache. The 12 layers with a window read the prompt's 1,000 keys, and 128 in decoding. That adds 0.60 TFLOP, and 0.43
GFLOP in decoding.

In the published weights those of the experts are MXFP4 (12.8 GiB in all). Here they are bfloat16 (39 GiB), as in the
authors' own implementation in PyTorch: a step reads almost four times the bytes of the experts that a server with MXFP4
kernels reads. The model multiplies activations in bfloat16 with weights in MXFP4, and PyTorch 2.15 has no operator for
that: its `scaled_mm` multiplies MXFP4 with MXFP4 only and, of NVIDIA's GPUs, on B200 and B300 only. transformers can do
it, but with Triton kernels that the package `kernels` downloads while the network is built.

The network is built in bfloat16. At fp32 it would be 84 GB. `models/_shared/gpt_oss.py` says what a step computes.
"""

import torch
from torch import nn
from transformers import AutoModelForCausalLM, GptOssConfig

from .._shared.gpt_oss import GptOss


class Model(GptOss):
    def build_network(self) -> nn.Module:
        network: nn.Module = AutoModelForCausalLM.from_config(GptOssConfig(**self.sizes), dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
        return network
