"""Quantize models by torchao: choose the Linear layers, and check that they compute as the precision says.

Everything is cast to bf16 first, as with the precision `bf16`. Then
- `int8wo` stores weights in 8 bits with a scale for each row, `int4wo` in 4 bits with a scale and a zero point for each
  group of 128 numbers of a row. Both multiply in bf16;
- `fp8` multiplies in float8 (e4m3; the gradients of outputs e5m2), with one scale for each tensor that is multiplied,
  computed in each step. In training, weights stay in bf16 and are cast in each step.

torchao's settings of inductor are not used: the backend compiles as it does with every other precision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from torchzoo.backends import NotRunnable
from torchzoo.case import Mode, Precision
from torchzoo.devices import device_of

if TYPE_CHECKING:
    from torchzoo.model import Model

#: Numbers of a row that share a scale with `int4wo`: torchao's default.
INT4_GROUP = 128

#: torchao 0.18 mistakes the single scale of a weight of this shape for scales of blocks of 128 by 128, expects other
#: activations, and fails.
TAKEN_FOR_BLOCKS = (128, 128)


class _Kind(NamedTuple):
    in_multiple: int  # of which the number of inputs of a layer must be a multiple
    out_multiple: int
    dtypes: tuple[torch.dtype, ...]  # of quantized operands; those of int4 are packed into int32
    operators: tuple[str, ...]  # how the names of operators begin, one of which must compute with such operands
    config: str  # torchao's, for inference


_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_KINDS = {
    Precision.FP8: _Kind(16, 16, _FLOAT8, ("_scaled_mm",), "Float8DynamicActivationFloat8WeightConfig"),
    # PyTorch's kernel for the CPU, which inductor calls, crashes with other numbers of inputs (torch 2.11 and 2.15).
    Precision.INT8WO: _Kind(16, 1, (torch.int8,), ("_to_copy", "_weight_int8pack_mm"), "Int8WeightOnlyConfig"),
    Precision.INT4WO: _Kind(INT4_GROUP, 1, (torch.int32,), ("_weight_int4pack_mm",), "Int4WeightOnlyConfig"),
}

#: The dtypes of quantized operands.
QUANTIZED_DTYPES = frozenset(dtype for kind in _KINDS.values() for dtype in kind.dtypes)


def is_quantized_tensor(one: Any) -> bool:
    """Whether an object is a tensor class of torchao, which wraps numbers and their scales, or an instance of one."""
    cls = one if isinstance(one, type) else type(one)
    return issubclass(cls, Tensor) and cls.__module__.startswith("torchao.")


def layers_to_quantize(network: nn.Module, precision: Precision) -> dict[str, nn.Linear]:
    """Return the Linear layers that a quantized precision changes, by path.

    Their sizes must suit the kernels. A layer with its own `forward`, or with a computed weight, is left out, and so is
    the output layer of `nn.MultiheadAttention`, which is never called itself.
    """
    kind = _KINDS[precision]
    return {
        path: module
        for path, module in network.named_modules()
        if isinstance(module, nn.Linear)
        and type(module).forward is nn.Linear.forward
        and not isinstance(module, NonDynamicallyQuantizableLinear)
        and "weight" in module._parameters
        and module.in_features % kind.in_multiple == 0
        and module.out_features % kind.out_multiple == 0
        and not (precision is Precision.FP8 and tuple(module.weight.shape) == TAKEN_FOR_BLOCKS)
    }


def require_support(device: torch.device, precision: Precision) -> None:
    """Raise `NotRunnable` where the device lacks the kernels."""
    own = device_of(device)
    if precision is Precision.FP8 and not own.computes_in("fp8"):
        raise NotRunnable("products in float8 need an NVIDIA GPU of compute capability 8.9 or more (Ada, Hopper)")
    if precision is Precision.INT4WO and not own.computes_in("int4"):
        raise NotRunnable("PyTorch's kernel for packed int4 needs an NVIDIA GPU of compute capability 8.0 or more")


def quantize(model: Model, precision: Precision) -> dict[str, str]:
    """Let torchao quantize the networks of `model`, which are in bf16. Return what was done, for the record.

    Raises:
        NotRunnable: no Linear layer has sizes that suit the kernels, or torchao is not installed.
    """
    chosen = {name: layers_to_quantize(network, precision) for name, network in model.networks().items()}
    count = sum(map(len, chosen.values()))
    if count == 0:
        raise NotRunnable(f"{precision} changes Linear layers, and this model has none {_sizes(precision)}")
    networks = model.networks()
    linears = sum(isinstance(module, nn.Linear) for network in networks.values() for module in network.modules())
    weights = {id(layer.weight): layer.weight.numel() for layers in chosen.values() for layer in layers.values()}
    parameters = sum(one.numel() for network in networks.values() for one in network.parameters())
    share = sum(weights.values()) / parameters
    try:
        import torchao
    except ImportError as error:
        raise NotRunnable(f"quantized precisions need torchao: pip install torchao ({error})") from error
    for name, layers in chosen.items():
        if layers:
            how = _quantize_network(networks[name], layers, precision, model.mode)
    return {
        "base_dtype": "bfloat16",
        "quantized_by": f"torchao {torchao.__version__} {how}",
        "quantized_layers": f"{count} of {linears} Linear layers, {share:.0%} of parameters",
    }


def _quantize_network(network: nn.Module, layers: dict[str, nn.Linear], precision: Precision, mode: Mode) -> str:
    """Quantize these layers. Return the name of the function or configuration of torchao."""
    chosen = set(layers.values())
    if precision is Precision.FP8 and mode is Mode.TRAIN:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        if "" in layers:
            raise NotRunnable("torchao converts layers inside a network, and this network is one Linear layer")
        config = Float8LinearConfig(pad_inner_dim=True)  # a batch need not be a multiple of 16
        convert_to_float8_training(network, module_filter_fn=lambda module, _: module in chosen, config=config)
        return "convert_to_float8_training"
    from torchao import quantization

    name = _KINDS[precision].config
    options: dict[str, Any] = {"set_inductor_config": False}
    if precision is Precision.INT4WO:  # the packing of PyTorch's own kernel; all others need more packages
        options |= {"group_size": INT4_GROUP, "int4_packing_format": "tile_packed_to_4d"}
    config = getattr(quantization, name)(**options)
    quantization.quantize_(network, config, filter_fn=lambda module, _: module in chosen)
    return name


def _sizes(precision: Precision) -> str:
    kind = _KINDS[precision]
    both = kind.in_multiple == kind.out_multiple
    return f"whose {'sizes are' if both else 'number of inputs is'} a multiple of {kind.in_multiple}"


def why_not_reached(model: Model, precision: Precision, operators: dict[str, int]) -> str | None:
    """Return why the model does not compute as the label says, or None if it does.

    Args:
        model: after `quantize` and one eager step.
        precision: the precision of the label.
        operators: how many operators of the step had an operand of QUANTIZED_DTYPES, by name without library.
    """
    kind = _KINDS[precision]
    if precision.is_weight_only or model.mode is not Mode.TRAIN:
        weights = [one for network in model.networks().values() for one in network.parameters()]
        stored = {part.dtype for one in weights if is_quantized_tensor(one) for part in inner_tensors(one)}
        if not stored & set(kind.dtypes):
            found = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in stored)) or "no quantized weights"
            return f"precision {precision} promises weights in {_names(kind)}, but the networks have {found}"
    if not any(name.startswith(kind.operators) for name in operators):
        found = ", ".join(sorted(operators)) or "no operator"
        return f"precision {precision} promises {' or '.join(kind.operators)} on {_names(kind)}, but there is {found}"
    return None


def _names(kind: _Kind) -> str:
    return " or ".join(str(dtype).removeprefix("torch.") for dtype in kind.dtypes)


def inner_tensors(tensor: Tensor) -> list[Tensor]:
    """Return the tensors that a wrapper holds; for an ordinary tensor, the tensor itself."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in inner_tensors(getattr(tensor, name))]


@contextlib.contextmanager
def refusals_are_skips(precision: Precision) -> Iterator[None]:
    """Turn torchao's refusal of an operator on a quantized weight into the reason why the case can't run.

    Raises:
        NotRunnable: in place of torchao's NotImplementedError.
    """
    try:
        yield
    except NotImplementedError as error:
        words = " ".join(str(error).split())
        if not precision.is_quantized or "dispatch: attempting to run unimplemented" not in words:
            raise
        raise NotRunnable(
            f"the model does with the weight of a Linear layer what torchao can't: {words[:300]}"
        ) from error
