"""LLaMA 7B (Touvron et al., 2023, arXiv:2302.13971) generating with a static cache, as simple_gpt has it.

https://github.com/meta-pytorch/simple_gpt (2023) generates fast in plain PyTorch because all shapes are fixed: the
cache has a place for each of 2,048 positions, attention always looks at all of them through a mask, and a position may
be a tensor. Sizes: 32 layers of 32 heads, width 4,096, 6,738,415,616 parameters (the paper says 6.7 billion). Decoding
takes 14.3 GFLOP for a token by our count, the prompt 142.9. By hand: 2 operations for each of 6,607,077,376 weights
(all but the table of embeddings) make 13.2 for a token. Attention to all places of the cache adds 4 x 2,048 x 4,096
in each layer: 1.1.

An eval step is what TorchBench's `simple_gpt` (https://github.com/pytorch/benchmark at 0e83c44) runs: a prompt of 10
tokens into the cache, the logits of all of them. A decode step reads one token at the last position of the cache, which
holds random keys and values. TorchBench casts to bfloat16: `--precision bf16` does that here. It also splits each layer
over all GPUs of the host, by DTensor or, as `simple_gpt_tp_manual`, by hand. `--world N --parallel tp` does that here,
by DTensor: each rank has some of the heads with their caches, and a share of the inner width of the feed-forward
layers. Each computes a part of a layer's output from these; an all-reduce adds the parts of all ranks. Ours splits the
product that makes queries, keys and values, as the version by hand does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, NetworkModel
from torchzoo.model.tensors import stored_bytes

from .._shared.llama import Config
from .network import StaticLlama

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle


class Model(NetworkModel):
    sample_unit = "tokens"
    network: StaticLlama
    config = Config(layers=32, heads=32, width=4096, length=2048)
    prompt_length = 10

    @classmethod
    def small(cls) -> type[Model]:
        config = Config(layers=2, heads=2, width=64, length=32, vocabulary_size=1000)
        return type("Small", (cls,), {"config": config})

    def build_network(self) -> StaticLlama:
        return StaticLlama(self.config, self.batch_size)

    def build_batch(self) -> Batch:
        length, start = (1, self.config.length - 1) if self.mode is Mode.DECODE else (self.prompt_length, 0)
        if self.mode is Mode.DECODE:
            self.network.fill(self.data.normal)
        tokens = self.data.tokens(self.batch_size, length, self.config.vocabulary_size)
        return Batch((tokens, start))

    @property
    def samples_per_step(self) -> int:
        return self.batch_size * (1 if self.mode is Mode.DECODE else self.prompt_length)

    @property
    def bytes_read_per_step(self) -> int | None:
        if self.mode is not Mode.DECODE:
            return None
        weights = sum(map(stored_bytes, self.network.parameters()))
        return weights - self.network.token.weight.nbytes + self.network.cache_bytes()

    def decode_step(self) -> Tensor:
        logits: Tensor = self.eval_step()
        return logits

    def tensor_parallel_plan(self) -> dict[str, ParallelStyle]:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        from torchzoo.model.tensor_parallel import SplitHeads

        return {
            "blocks.*.attention.query_key_value": ColwiseParallel(),
            "blocks.*.attention.cache": SplitHeads(),
            "blocks.*.attention.output": RowwiseParallel(),
            "blocks.*.feed_forward.gate": ColwiseParallel(),
            "blocks.*.feed_forward.inner": ColwiseParallel(),
            "blocks.*.feed_forward.outer": RowwiseParallel(),
        }
