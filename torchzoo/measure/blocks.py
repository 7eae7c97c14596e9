"""Find the repeated blocks of a network, which FSDP2 shards and `--compile-scope block` compiles one by one."""

from __future__ import annotations

from torch import nn


def blocks(network: nn.Module) -> list[nn.Module]:
    """Return the repeated blocks of a network: the children of lists and sequences with several modules of one class.

    A block has children itself. Blocks inside other blocks do not count.
    """
    found: list[nn.Module] = []
    for child in network.children():
        if isinstance(child, nn.ModuleList | nn.Sequential) and _are_blocks(list(child.children())):
            found += child.children()
        else:
            found += blocks(child)
    return found


def _are_blocks(modules: list[nn.Module]) -> bool:
    is_one_class = len({type(one) for one in modules}) == 1
    return len(modules) > 1 and is_one_class and all(list(one.children()) for one in modules)
