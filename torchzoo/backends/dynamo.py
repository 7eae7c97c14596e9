"""`torch.compile` with inductor, cudagraphs, aot_eager or any other backend registered with Dynamo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchzoo.backends import NotRunnable
from torchzoo.backends.call import Call
from torchzoo.case import Backend, Parallel


def compile_network(network: nn.Module, call: Call | None, backend: Backend) -> Callable[..., Any]:
    """Compile the network's call with Dynamo."""
    del call
    return _compiled(_call_of(network), backend)


def compile_block(block: nn.Module, backend: Backend, parallel: Parallel) -> Callable[..., Any]:
    """Compile a block's call with Dynamo, which keeps compiled code by function: blocks of one class share it.

    Raises:
        NotRunnable: Dynamo would compile nothing.
    """
    if parallel is Parallel.FSDP2 and _has_pytorchs_forward(block):
        raise NotRunnable("its blocks are of a class of PyTorch's own, whose call Dynamo leaves to Python under FSDP2")
    return _compiled(_call_of(block), backend)


def compile_step(step: Callable[[], Any], backend: Backend) -> Callable[[], Any]:
    """Compile the whole step with Dynamo: loss, backward and optimizer too."""
    return _compiled(step, backend)


def _compiled(function: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    if backend.option in (None, "default"):
        return torch.compile(function, backend=backend.name)
    return torch.compile(function, backend=backend.name, mode=backend.option)


def _call_of(module: nn.Module) -> Callable[..., Any]:
    """The module's call, hooks included, as `module.compile()` compiles it.

    Dynamo skips functions of PyTorch (such as the `forward` of `nn.Sequential`) unless another function calls them, at
    least up to torch 2.11, so `compile()` of such a module compiles nothing. `torch.compile(network)` calls it from a
    function, as is done here.
    """
    module_call: Callable[..., Any] = module._call_impl

    def from_outside(*args: Any, **kwargs: Any) -> Any:
        return module_call(*args, **kwargs)

    return from_outside if _has_pytorchs_forward(module) else module_call


def _has_pytorchs_forward(module: nn.Module) -> bool:
    return (type(module).forward.__module__ or "").startswith("torch.")  # None in a GraphModule of torch 2.11
