"""`torch.export`: run the whole forward as one exported graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchzoo.backends.call import Call
from torchzoo.case import Backend


def compile_network(network: nn.Module, call: Call, backend: Backend) -> Callable[..., Any]:
    """Return the module of the exported program. Its weights are the network's own tensors."""
    del backend
    module: Callable[..., Any] = exported_program(network, call).module()
    return module


def exported_program(network: nn.Module, call: Call) -> torch.export.ExportedProgram:
    """Export the network's forward with the recorded call. Errors of torch.export give the reason."""
    return torch.export.export(network, call.args, call.kwargs)
