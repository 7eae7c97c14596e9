"""The backends torchzoo knows, as facts that need no torch; their code is in this package's modules."""

from __future__ import annotations

import dataclasses

from torchzoo.case import CompileScope, Mode


@dataclasses.dataclass(frozen=True, kw_only=True)
class BackendInfo:
    """What `plan` must know of a backend.

    `module` is a module of `torchzoo.backends` with `compile_network(network, call, backend)`, and, where `scopes`
    has STEP, `compile_step(step, backend)`. `package` must be importable; `install` says what to do where it isn't.
    """

    module: str | None  # None: nothing to compile
    uses_dynamo: bool = False
    options: tuple[str, ...] = ()
    package: str | None = None
    install: str = ""
    modes: tuple[Mode, ...] = tuple(Mode)
    devices: tuple[str, ...] = ()  # device types; empty: any
    scopes: tuple[CompileScope, ...] = (CompileScope.NETWORK,)
    why_limited: str = ""  # the reason behind modes, devices and scopes


class NotRunnable(Exception):
    """A case can't be run here as labelled, for a reason that is nobody's fault: it becomes a skip."""


_DYNAMO_SCOPES = tuple(CompileScope)

BACKENDS: dict[str, BackendInfo] = {
    "eager": BackendInfo(module=None, scopes=_DYNAMO_SCOPES),
    "inductor": BackendInfo(
        module="dynamo",
        uses_dynamo=True,
        options=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
        scopes=_DYNAMO_SCOPES,
    ),
    "cudagraphs": BackendInfo(
        module="dynamo",
        uses_dynamo=True,
        devices=("cuda",),
        scopes=_DYNAMO_SCOPES,
        why_limited="CUDA graphs need a CUDA device",
    ),
    "aot_eager": BackendInfo(module="dynamo", uses_dynamo=True, scopes=_DYNAMO_SCOPES),
    "torchscript": BackendInfo(
        module="torchscript", options=("trace", "script"), why_limited="TorchScript takes modules, not whole steps"
    ),
    "export": BackendInfo(
        module="export", modes=(Mode.EVAL,), why_limited="torch.export gives one forward graph of a module"
    ),
    "tensorrt": BackendInfo(
        module="tensorrt",
        uses_dynamo=True,
        package="torch_tensorrt",
        install="pip install torch-tensorrt",
        modes=(Mode.EVAL,),
        devices=("cuda",),
        why_limited="TensorRT runs inference on NVIDIA GPUs",
    ),
    "onnxrt": BackendInfo(
        module="onnxrt",
        package="onnxruntime",
        install="pip install onnx onnxscript onnxruntime (onnxruntime-gpu for CUDA)",
        modes=(Mode.EVAL,),
        devices=("cpu", "cuda"),
        why_limited="ONNX Runtime is used for inference",
    ),
    "openvino": BackendInfo(
        module="openvino",
        package="openvino",
        install="pip install openvino",
        modes=(Mode.EVAL,),
        devices=("cpu",),
        why_limited="OpenVINO is used for inference on the CPU",
    ),
}

#: Any other backend that Dynamo has registered.
REGISTERED_WITH_DYNAMO = BackendInfo(module="dynamo", uses_dynamo=True, scopes=_DYNAMO_SCOPES)


def info(name: str) -> BackendInfo:
    """The facts of a backend; names not listed here are Dynamo's."""
    return BACKENDS.get(name, REGISTERED_WITH_DYNAMO)
