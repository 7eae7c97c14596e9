"""ONNX Runtime: run the network exported to ONNX. Inputs and outputs are bound in place, without a copy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from torch import Tensor, nn
from torch._C._profiler import _RecordFunctionFast

from torchzoo.backends import NotRunnable
from torchzoo.backends.call import Call
from torchzoo.case import Backend
from torchzoo.model.tensors import tensors_in

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def compile_network(network: nn.Module, call: Call, backend: Backend) -> Callable[..., Any]:
    """Return a function of the network's tensors, in the order of the call.

    Raises:
        NotRunnable: the installed onnxruntime has no provider for the device.
    """
    del backend
    provider = PROVIDERS[tensors_in((call.args, call.kwargs))[0].device.type]
    if provider not in onnxruntime.get_available_providers():
        raise NotRunnable(f"the installed onnxruntime has no {provider}: pip install onnxruntime-gpu")
    example_outputs, rebuild = call.outputs(network)
    program = torch.onnx.export(network, call.args, kwargs=call.kwargs, dynamo=True)
    assert program is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        program.save(path)
        session = onnxruntime.InferenceSession(path, providers=[provider])
    like = [
        torch.empty_like(output, device="meta", memory_format=torch.contiguous_format) for output in example_outputs
    ]
    device = example_outputs[0].device
    del example_outputs

    def run(*args: Any, **kwargs: Any) -> Any:
        binding = session.io_binding()
        outputs = [torch.empty_like(one, device=device) for one in like]  # the step may keep those of earlier calls
        # A copy that `contiguous` makes must live until the network has run.
        inputs = [tensor.contiguous() for tensor in tensors_in((args, kwargs))]
        for value, tensor in zip(session.get_inputs(), inputs, strict=True):
            _bind(binding.bind_input, value.name, tensor)
        for value, tensor in zip(session.get_outputs(), outputs, strict=True):
            _bind(binding.bind_output, value.name, tensor)
        with _RecordFunctionFast("onnxruntime::run"):  # the profiler sees no operators inside
            session.run_with_iobinding(binding)
        return rebuild(outputs)

    return run


def _bind(bind: Callable[..., None], name: str, tensor: Tensor) -> None:
    index = tensor.device.index or 0
    dtype = torch.zeros((), dtype=tensor.dtype).numpy().dtype.type
    bind(name, tensor.device.type, index, dtype, tuple(tensor.shape), tensor.data_ptr())
