"""`torch.export`: the whole forward as one graph, which runs as a module again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchzoo.backends.call import Call
from torchzoo.case import Backend


def compile_network(network: nn.Module, call: Call, backend: Backend) -> Callable[..., Any]:
    """The module of the exported program. Its weights are the network's own tensors."""
    del backend
    exported: Callable[..., Any] = torch.export.export(network, call.args, call.kwargs).module()
    return exported
