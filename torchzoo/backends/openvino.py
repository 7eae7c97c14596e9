"""OpenVINO on the CPU: the network converted with one recorded call.

OpenVINO's Dynamo backend is not used: with torch 2.15 and openvino 2026.4 it fails on guards that it makes itself.
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
    """A function of the network's tensors that computes in the dtype of its weights.

    By itself, OpenVINO would choose bfloat16 for float32 models on CPUs that have it.
    """
    del backend
    _, rebuild = call.outputs(network)
    model = openvino.convert_model(network, example_input=call.as_kwargs(network) if call.kwargs else call.args)
    dtype = next((parameter.dtype for parameter in network.parameters()), torch.float32)
    config = {hints.inference_precision: TYPES[dtype]} if dtype in TYPES else {}
    compiled = openvino.compile_model(model, "CPU", config)

    def run(*args: Any, **kwargs: Any) -> Any:
        arrays = [tensor.numpy() for tensor in tensors_in((args, kwargs))]
        with _RecordFunctionFast("openvino::run"):  # the profiler sees no operators in there
            results = compiled(arrays, share_inputs=True)  # outputs are copies: the next call would write over its own
        return rebuild([torch.from_numpy(results[index]) for index in range(len(results))])

    return run
