"""Reformer's layer from transformers (Kitaev et al., 2020, arXiv:2001.04451), with seeds that can be had again."""

import random

import torch
from torch import nn
from transformers.models.reformer.modeling_reformer import ReformerLayer


class SeededLayer(ReformerLayer):
    """A layer whose seeds follow from the seed that PyTorch's generator has."""

    def _init_attention_seed(self) -> None:
        self.attention_seed = next_seed("attention")
        torch.manual_seed(self.attention_seed)

    def _init_feed_forward_seed(self) -> None:
        self.feed_forward_seed = next_seed("feed-forward")
        torch.manual_seed(self.feed_forward_seed)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # Dynamo does not trace the library's own draw, either
def next_seed(purpose: str) -> int:
    """A seed that follows from the generator's last one, and differs by the purpose.

    Going backward, a step ends with the seed of its first attention, which the first feed-forward part has followed.
    Without the purpose, the next step would begin with that part's seed.
    """
    return random.Random(f"{purpose} {torch.initial_seed()}").getrandbits(63)  # noqa: S311  no secrets here


def seed_layers(network: nn.Module) -> None:
    """Let the seeds of all Reformer layers of a network follow from the seed that PyTorch's generator has."""
    for module in network.modules():
        if type(module) is ReformerLayer:
            module.__class__ = SeededLayer  # it keeps its weights
