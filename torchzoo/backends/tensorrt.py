"""TensorRT through torch_tensorrt's Dynamo backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_tensorrt  # noqa: F401  registers the backend with Dynamo
from torch import nn

from torchzoo.backends.call import Call
from torchzoo.case import Backend


def compile_network(network: nn.Module, call: Call, backend: Backend) -> Callable[..., Any]:
    """Compile the module's call with Dynamo and the backend `torch_tensorrt`."""
    del call, backend
    return torch.compile(network._call_impl, backend="torch_tensorrt")
