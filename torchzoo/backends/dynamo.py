"""`torch.compile` with inductor, cudagraphs, aot_eager or any backend registered with Dynamo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchzoo.backends.call import Call
from torchzoo.case import Backend


def compile_network(network: nn.Module, call: Call | None, backend: Backend) -> Callable[..., Any]:
    """The module's call under Dynamo, hooks included: the same that `network.compile()` installs.

    `compile()` of a module whose `forward` is PyTorch's own (`nn.Sequential`) compiles nothing, at least up to torch
    2.11: Dynamo skips PyTorch's own functions unless another function calls them. In `torch.compile(network)` there is
    such a function, so there is one here.
    """
    del call
    module_call: Callable[..., Any] = network._call_impl

    def from_outside(*args: Any, **kwargs: Any) -> Any:
        return module_call(*args, **kwargs)

    module_name = type(network).forward.__module__ or ""  # None in a GraphModule
    return _compiled(from_outside if module_name.startswith("torch.") else module_call, backend)


def compile_step(step: Callable[[], Any], backend: Backend) -> Callable[[], Any]:
    """The whole step under Dynamo: loss, backward and optimizer too."""
    return _compiled(step, backend)


def _compiled(function: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    if backend.option in (None, "default"):
        return torch.compile(function, backend=backend.name)
    return torch.compile(function, backend=backend.name, mode=backend.option)
