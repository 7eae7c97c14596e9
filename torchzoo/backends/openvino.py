"""OpenVINO on the CPU: run the network converted with one recorded call.

OpenVINO's Dynamo backend is not used, since it fails on its own guards (torch 2.15, openvino 2026.4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openvino
import openvino.properties.hint as hints
import torch
from torch import nn
from torch._C._profiler import _RecordFunctionFast

from torchzoo.backends.call import Call
from torchzoo.case import Backend
from torchzoo.model.tensors import tensors_in

TYPES = {torch.float32: openvino.Type.f32, torch.float16: openvino.Type.f16, torch.bfloat16: openvino.Type.bf16}


def compile_network(network: nn.Module, call: Call, backend: Backend) -> Callable[..., Any]:
    """Return a function of the network's tensors that computes in the dtype of its weights.

    OpenVINO's default for float32 models is bfloat16 on CPUs that have it.
    """
    del backend
    _, rebuild = call.outputs(network)
    model = openvino.convert_model(network, example_input=call.as_kwargs(network) if call.kwargs else call.args)
    dtype = next((parameter.dtype for parameter in network.parameters()), torch.float32)
    config = {hints.inference_precision: TYPES[dtype]} if dtype in TYPES else {}
    compiled = openvino.compile_model(model, "CPU", config)

    def run(*args: Any, **kwargs: Any) -> Any:
        arrays = [tensor.numpy() for tensor in tensors_in((args, kwargs))]
        with _RecordFunctionFast("openvino::run"):  # the profiler sees no operators inside
            results = compiled(arrays, share_inputs=True)  # copies of outputs, which the next call would overwrite
        return rebuild([torch.from_numpy(results[index]) for index in range(len(results))])

    return run
