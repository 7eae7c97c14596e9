"""Which calls of `scaled_dot_product_attention` a step makes, in eager and compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch._dynamo
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class Call(NamedTuple):
    query: torch.Size
    key: torch.Size
    value: torch.Size
    mask: torch.Size | None
    is_causal: bool


def described(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **others: Any) -> Call:
    mask = None if attn_mask is None else attn_mask.shape
    return Call(query.shape, key.shape, value.shape, mask, bool(others.get("is_causal")))


class _Calls(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Call] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            self.seen.append(described(*args, **(kwargs or {})))
        return func(*args, **(kwargs or {}))


def eager_calls(model: Any) -> list[Call]:
    with _Calls() as calls:
        model.measured_step()
    return calls.seen


def compiled_calls(model: Any) -> list[Call]:
    """Those of the graphs that Dynamo makes of the network."""
    seen: list[Call] = []

    def look(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        for node in graph.graph.nodes:
            if node.target is F.scaled_dot_product_attention:
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: one.meta["example_value"])
                seen.append(described(*args, **kwargs))
        return graph.forward

    torch._dynamo.reset()
    model.network.compile(backend=look)
    model.measured_step()
    return seen
