"""TorchScript: trace the network in one call, or compile its source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchzoo.backends.call import Call
from torchzoo.case import Backend


def compile_network(network: nn.Module, call: Call, backend: Backend) -> Callable[..., Any]:
    """Trace the network with its recorded call, or script it. The result shares the network's weights."""
    if backend.option == "script":
        scripted: Callable[..., Any] = torch.jit.script(network)
        return scripted
    inputs: dict[str, Any] = {"example_kwarg_inputs": call.as_kwargs(network)} if call.kwargs else {}
    if not call.kwargs:
        inputs["example_inputs"] = call.args
    traced = torch.jit.trace(network, check_trace=False, strict=False, **inputs)  # type: ignore[no-untyped-call]
    return with_output_type(traced, call.output_type)


def with_output_type(function: Callable[..., Any], output_type: type) -> Callable[..., Any]:
    """Make the function return the network's class of mapping (transformers' ModelOutput), not tracing's dict."""
    if not (issubclass(output_type, dict) and output_type is not dict):
        return function

    def call(*args: Any, **kwargs: Any) -> Any:
        return output_type(**function(*args, **kwargs))

    return call
