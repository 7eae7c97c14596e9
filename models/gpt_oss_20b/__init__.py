"""gpt-oss-20b (OpenAI, 2025, arXiv:2508.10925) generating with a static cache, in bfloat16.

The model card names 20.91 billion parameters, 3.61 billion of them active in a token without the table of embeddings.
Here: 20,914,757,184 and 3,608,307,264. In the published weights those of the experts are MXFP4 (12.8 GiB in all).
PyTorch has no operators for that format: here they are bfloat16 (39 GiB), as in the authors' own implementation in
PyTorch. A step reads four times the bytes of the experts that a server with MXFP4 kernels reads.

The network is built in bfloat16. At fp32 it would be 84 GB. `torchzoo/networks/gpt_oss.py` says what a step computes.
"""

import torch
from torch import nn
from transformers import AutoModelForCausalLM, GptOssConfig

from torchzoo.networks.gpt_oss import GptOss


class Model(GptOss):
    def build_network(self) -> nn.Module:
        network: nn.Module = AutoModelForCausalLM.from_config(GptOssConfig(**self.sizes), dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
        return network
