"""Declare the backends as data that needs no torch. Their code is in the modules of this package."""

from __future__ import annotations

import dataclasses
import functools
from importlib import import_module
from pathlib import Path
from types import ModuleType

from torchzoo.case import Case, CompileScope, Mode, Precision
from torchzoo.errors import attempt, one_line
from torchzoo.zoo.folders import CatalogError, find_userbenchmarks, import_file


@dataclasses.dataclass(frozen=True, kw_only=True)
class BackendInfo:
    """The facts of a backend that `plan` needs.

    `preload` names modules that the server imports once, instead of every worker that compiles. `module` is a
    module of `torchzoo.backends` with `compile_network(network, call, backend)` and, if `scopes` has others than
    NETWORK, `compile_block(block, backend, parallel)` and `compile_step(step, backend)`. A backend of a userbenchmark
    compiles nothing, and changes the model's own step instead: `module` is a file of that folder with
    `changed_step(model, step, backend)`. `package` must be importable; if it is not, `install` says what to do.
    """

    module: str | None  # None for eager, which compiles nothing
    userbenchmark: Path | None = None  # the folder that has the module
    uses_dynamo: bool = False
    makes_updates: bool = False  # whether a changed step updates parameters by other code than eager
    preload: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    package: str | None = None
    install: str = ""
    modes: tuple[Mode, ...] = tuple(Mode)
    devices: tuple[str, ...] = ()  # device types; empty: any
    scopes: tuple[CompileScope, ...] = (CompileScope.NETWORK,)
    models: tuple[str, ...] = ()  # names of models; empty: any
    takes_autocast: bool = True  # whether compiled code follows autocast as the network does
    takes_ranks: bool = True  # whether several ranks can share a step
    takes_quantized: bool = True  # whether networks may have quantized tensors of torchao as weights
    takes_unlike_calls: bool = True  # whether code for one call of a network takes other sizes and numbers
    why_limited: str = ""  # the reason for all these limits

    def takes(self, case: Case) -> bool:
        """Whether the backend can run such a case; `why_limited` is the reason if not."""
        return (
            case.mode in self.modes
            and case.compile_scope in self.scopes
            and (not self.devices or case.device_type in self.devices)
            and (not self.models or case.model in self.models)
            and (case.precision not in AUTOCAST or self.takes_autocast)
            and (case.world == 1 or self.takes_ranks)
        )


AUTOCAST = (Precision.AMP, Precision.AMP_FP16, Precision.AMP_BF16)

#: The environment variable with the folder for a worker's own files, which is removed when the worker has ended.
SCRATCH_VARIABLE = "TORCHZOO_SCRATCH"


def cache_variables(folder: Path) -> dict[str, str]:
    """Environment variables that make inductor and Triton keep compiled code below this folder."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}


class NotRunnable(Exception):
    """A case can't run here as its label says, without a fault. The case is skipped, and the message is the reason."""


class NotFiniteByBackend(Exception):
    """Training is finite in eager and not with the backend. The case fails."""


_DYNAMO_SCOPES = tuple(CompileScope)
_DYNAMO = ("torch._dynamo", "torch._functorch.aot_autograd")
_INDUCTOR = (
    *_DYNAMO,
    "torch._inductor.compile_fx",
    "torch._inductor.async_compile",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.fx_passes.joint_graph",
    "torch._inductor.fx_passes.post_grad",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.fx_passes.serialized_patterns",
    "torch._inductor.runtime.triton_heuristics",
    "torch._inductor.select_algorithm",
)

BACKENDS: dict[str, BackendInfo] = {
    "eager": BackendInfo(module=None, scopes=_DYNAMO_SCOPES),
    "inductor": BackendInfo(
        module="dynamo",
        uses_dynamo=True,
        preload=_INDUCTOR,
        options=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
        scopes=_DYNAMO_SCOPES,
    ),
    "cudagraphs": BackendInfo(
        module="dynamo",
        uses_dynamo=True,
        preload=_DYNAMO,
        devices=("cuda",),
        scopes=_DYNAMO_SCOPES,
        why_limited="CUDA graphs need a CUDA device",
    ),
    "aot_eager": BackendInfo(module="dynamo", uses_dynamo=True, preload=_DYNAMO, scopes=_DYNAMO_SCOPES),
    "torchscript": BackendInfo(
        module="torchscript",
        takes_quantized=False,
        options=("trace", "script"),
        why_limited="TorchScript takes networks, not blocks or whole steps",
    ),
    "export": BackendInfo(
        module="export",
        takes_quantized=False,
        takes_unlike_calls=False,
        modes=(Mode.EVAL,),
        why_limited="torch.export gives one forward graph of a module",
    ),
    "aoti": BackendInfo(
        module="aoti",
        takes_quantized=False,
        takes_unlike_calls=False,
        preload=_INDUCTOR,
        modes=(Mode.EVAL,),
        takes_autocast=False,
        takes_ranks=False,
        why_limited="AOTInductor packs the forward graph of torch.export and a copy of the weights: it neither trains "
        "nor changes caches, and knows nothing of autocast or of other ranks",
    ),
    "tensorrt": BackendInfo(
        module="tensorrt",
        takes_quantized=False,
        uses_dynamo=True,
        package="torch_tensorrt",
        install="pip install torch-tensorrt",
        modes=(Mode.EVAL,),
        devices=("cuda",),
        why_limited="TensorRT runs inference on NVIDIA GPUs",
    ),
    "onnxrt": BackendInfo(
        module="onnxrt",
        takes_quantized=False,
        takes_unlike_calls=False,
        package="onnxruntime",
        install="pip install onnx onnxscript onnxruntime (onnxruntime-gpu for CUDA)",
        modes=(Mode.EVAL,),
        devices=("cpu", "cuda"),
        takes_autocast=False,
        why_limited="ONNX Runtime is used for inference, and the graph that is exported for it has no autocast",
    ),
    "openvino": BackendInfo(
        module="openvino",
        takes_quantized=False,
        takes_unlike_calls=False,
        package="openvino",
        install="pip install openvino",
        modes=(Mode.EVAL,),
        devices=("cpu",),
        takes_autocast=False,
        why_limited="OpenVINO is used for inference on the CPU, and what is converted for it has no autocast",
    ),
}

#: The facts of any other backend that is registered with Dynamo.
REGISTERED_WITH_DYNAMO = BackendInfo(module="dynamo", uses_dynamo=True, scopes=_DYNAMO_SCOPES)
#: The library of backends that Dynamo registers even without it, and how to install it.
LIBRARIES = {"tvm": ("tvm", "pip install apache-tvm"), "openxla": ("torch_xla", "pip install torch_xla")}


def info(name: str) -> BackendInfo:
    """Return the facts of a backend. A name that is neither in `BACKENDS` nor a userbenchmark's is one of Dynamo's."""
    if name in LIBRARIES:
        package, install = LIBRARIES[name]
        return dataclasses.replace(REGISTERED_WITH_DYNAMO, package=package, install=install)
    known = of_userbenchmarks() if "/" in name else BACKENDS
    return known.get(name, REGISTERED_WITH_DYNAMO)


def of_userbenchmarks() -> dict[str, BackendInfo]:
    """Return the backends of userbenchmarks by qualified name, `USERBENCHMARK/NAME`.

    The backends are the entries of `BACKENDS` in the file `backends.py` of a userbenchmark's folder, without torch.

    Raises:
        CatalogError: the code of such a file fails.
    """
    return {
        f"{userbenchmark}/{name}": dataclasses.replace(one, userbenchmark=folder)
        for userbenchmark, folder in find_userbenchmarks().items()
        if (folder / "backends.py").is_file()
        for name, one in _declared(folder).items()
    }


def _declared(folder: Path) -> dict[str, BackendInfo]:
    found = attempt(lambda: dict(_module_in(folder, "backends").BACKENDS))
    if isinstance(found, Exception):
        raise CatalogError(f"{folder / 'backends.py'}: {type(found).__name__}: {one_line(found)}") from found
    return found


@functools.cache
def _module_in(folder: Path, name: str) -> ModuleType:
    return import_file(folder / f"{name}.py", f"torchzoo_userbenchmarks.{folder.name}.{name}")


def module_of(name: str) -> ModuleType:
    """Import the code of a backend."""
    known = info(name)
    assert known.module is not None, "eager has no code of its own"
    if known.userbenchmark is not None:
        return _module_in(known.userbenchmark, known.module)
    return import_module(f"{__name__}.{known.module}")


def makes_updates(case: Case) -> bool:
    """Return whether the case updates parameters otherwise than eager: compiled, or by other code."""
    return case.mode is Mode.TRAIN and (
        case.compile_scope is CompileScope.STEP or info(case.backend.name).makes_updates
    )
