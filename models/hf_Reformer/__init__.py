"""Reformer (Kitaev et al., 2020, arXiv:2001.04451) filling in masked tokens of 4096-token texts.

Layers of local and of LSH attention in turn, reversible, with axial position embeddings; the size is the library's
default, with 128 buckets.

In training, each layer of transformers takes two seeds from the system, one for its attention and one for its
feed-forward part, and seeds PyTorch with them. With these seeds it computes both parts again going backward. Here each
seed follows from the seed before it, so that two steps from the same seed hash and drop out alike
(`models/_shared/reformer.py`). The operators are the same.
"""

from torch import Tensor, nn
from transformers import ReformerConfig, ReformerForMaskedLM

from torchzoo.model.tasks import LanguageModel

from .._shared.reformer import seed_layers


class Model(LanguageModel):
    train_length = 4096
    eval_length = 4096

    def build_network(self) -> nn.Module:
        config = ReformerConfig(
            vocab_size=320,
            hidden_size=256,
            attn_layers=["local", "lsh", "local", "lsh", "local", "lsh"],
            num_attention_heads=12,
            attention_head_size=64,
            feed_forward_size=512,
            local_attn_chunk_length=64,
            lsh_attn_chunk_length=64,
            num_buckets=128,
            num_hashes=1,
            axial_pos_shape=[64, 64],
            axial_pos_embds_dim=[64, 192],
            max_position_embeddings=4096,
            pad_token_id=None,  # nothing is padded, and the library need not look for padding on the host
            use_cache=False,
        )
        network = ReformerForMaskedLM(config)
        seed_layers(network)
        return network

    def backward(self, loss: Tensor, *, retain_graph: bool = False) -> None:
        with self.autocast():  # going backward, reversible layers compute their forward pass again
            super().backward(loss, retain_graph=retain_graph)
