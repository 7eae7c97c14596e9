"""TorchScript: the network traced in one call, or its source compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchzoo.backends.call import Call
from torchzoo.case import Backend


def compile_network(network: nn.Module, call: Call, backend: Backend) -> Callable[..., Any]:
    """The network traced with its recorded call, or scripted. It shares the network's weights."""
    if backend.option == "script":
        scripted: Callable[..., Any] = torch.jit.script(network)
        return scripted
    inputs: dict[str, Any] = {"example_kwarg_inputs": call.as_kwargs(network)} if call.kwargs else {}
    if not call.kwargs:
        inputs["example_inputs"] = call.args
    traced = torch.jit.trace(network, check_trace=False, strict=False, **inputs)  # type: ignore[no-untyped-call]
    return with_output_type(traced, call.output_type)


def with_output_type(function: Callable[..., Any], output_type: type) -> Callable[..., Any]:
    """Return a mapping as the class that the network returns (transformers' ModelOutput): tracing makes it a dict."""
    if not (issubclass(output_type, dict) and output_type is not dict):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return output_type(**function(*args, **kwargs))

    return call
