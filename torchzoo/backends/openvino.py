"""OpenVINO through its Dynamo backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openvino.torch  # noqa: F401  registers the backend with Dynamo
import torch
from torch import nn

from torchzoo.backends.call import Call
from torchzoo.record import Backend


def compile_network(network: nn.Module, call: Call, backend: Backend) -> Callable[..., Any]:
    """The module's call under Dynamo with the backend `openvino`."""
    del call, backend
    return torch.compile(network._call_impl, backend="openvino")
