"""Apply precision and memory format to a model from outside, and check that it computes as its label says."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from torchzoo.backends import NotRunnable
from torchzoo.backends.call import Call
from torchzoo.case import MemoryFormat, Mode, NativeDtype, Precision
from torchzoo.devices import device_of
from torchzoo.measure.quantization import QUANTIZED_DTYPES, quantize, require_support, why_not_reached
from torchzoo.model import Model
from torchzoo.model.dispatch import OperatorMode
from torchzoo.model.tensors import COMPRESSED_LAYOUTS, cast, is_finite, is_inexact, kind_of, mapped, tensors_in

CAST_DTYPES = {
    Precision.FP32: torch.float32,
    Precision.TF32: torch.float32,
    Precision.FP16: torch.float16,
    Precision.BF16: torch.bfloat16,
    Precision.FP64: torch.float64,
    Precision.FP8: torch.bfloat16,  # before Linear layers are quantized
    Precision.INT8WO: torch.bfloat16,
    Precision.INT4WO: torch.bfloat16,
}
#: Half-precision dtypes. For complex numbers few operators have them: on a CPU no product and no Fourier transform.
HALVES = (torch.float16, torch.bfloat16)
NATIVE_DTYPES = {NativeDtype.FP32: torch.float32, NativeDtype.FP64: torch.float64}

#: PyTorch divides an operator on the CPU among threads if it has at least so many elements (at::internal::GRAIN_SIZE).
GRAIN_SIZE = 32_768


class LabelNotReached(RuntimeError):
    """The model does not do what the case's label says, so that its figures would be false."""


def apply_precision(model: Model, precision: Precision) -> dict[str, str]:
    """Make `model` compute at `precision`, by a cast, autocast, torchao or PyTorch's flags.

    Returns:
        The flags as they are then, and what torchao did.

    Raises:
        NotRunnable: the device does not compute in that precision, or not with a kind of tensor that the model has; or
            the model has nothing to quantize.
    """
    _require_support(model.device, precision)
    if precision in (Precision.FP32, Precision.TF32):
        torch.set_float32_matmul_precision("highest" if precision is Precision.FP32 else "high")
        torch.backends.cudnn.allow_tf32 = precision is Precision.TF32
    autocast_dtype = _autocast_dtype(model.device, precision)
    _require_kinds(model, precision, CAST_DTYPES.get(precision, autocast_dtype))
    if precision in CAST_DTYPES:
        to_dtype = partial(cast, dtype=CAST_DTYPES[precision])
        for network in model.networks().values():
            network._apply(to_dtype)  # type: ignore[no-untyped-call]  # `to` would make complex tensors real
        model.batch = mapped(to_dtype, model.batch)
    if autocast_dtype is not None:
        model.autocast_dtype = autocast_dtype
        if autocast_dtype is torch.float16 and model.mode is Mode.TRAIN:
            model.scaler = torch.amp.GradScaler(model.device.type)
    quantized = quantize(model, precision) if precision.is_quantized else {}
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": str(torch.backends.cudnn.allow_tf32),
        "cudnn_benchmark": str(torch.backends.cudnn.benchmark),
        "autocast_dtype": _name(autocast_dtype) if autocast_dtype else "off",
        "grad_scaler": "on" if model.scaler is not None else "off",
        **quantized,
    }


def _require_support(device: torch.device, precision: Precision) -> None:
    own = device_of(device)
    if precision is Precision.TF32 and not own.computes_in("tf32"):
        raise NotRunnable("TF32 is a format of NVIDIA GPUs since Ampere")
    if precision.is_quantized:
        require_support(device, precision)
    wants_bf16 = precision in (Precision.BF16, Precision.AMP_BF16) or precision.is_quantized
    if wants_bf16 and not own.computes_in("bf16"):
        raise NotRunnable("this device has no bfloat16 arithmetic")


def _require_kinds(model: Model, precision: Precision, dtype: torch.dtype | None) -> None:
    """Refuse half precision for kinds of tensors without such products. Autocast leaves complex numbers unchanged."""
    if dtype not in HALVES:
        return
    held = {f"input {index}": tensor for index, tensor in enumerate(tensors_in(model.batch))}
    for network_name, network in model.networks().items():
        tensors = itertools.chain(network.named_parameters(), network.named_buffers())
        held |= {f"{network_name}.{name}": tensor for name, tensor in tensors}
    for name, tensor in held.items():
        if tensor.is_complex() and precision in CAST_DTYPES:
            raise NotRunnable(f"{name} is {kind_of(tensor)}, and PyTorch has no complex products in {_name(dtype)}")
        if tensor.layout in COMPRESSED_LAYOUTS and is_inexact(tensor) and model.device.type == "cpu":
            raise NotRunnable(
                f"{name} is {kind_of(tensor)}, and on the CPU PyTorch has no products of such tensors in {_name(dtype)}"
            )


def _autocast_dtype(device: torch.device, precision: Precision) -> torch.dtype | None:
    if precision is Precision.AMP:
        return torch.get_autocast_dtype(device.type)
    return {Precision.AMP_FP16: torch.float16, Precision.AMP_BF16: torch.bfloat16}.get(precision)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def apply_memory_format(model: Model, memory_format: MemoryFormat) -> None:
    """Put 4-D weights and floating 4-D data into channels-last order.

    Raises:
        NotRunnable: the model has no 4-D weight, so the label would have no meaning.
    """
    if memory_format is MemoryFormat.CONTIGUOUS:
        return
    weights = [p for network in model.networks().values() for p in network.parameters() if p.ndim == 4]
    if not weights:
        raise NotRunnable("channels-last is an order of 4-D tensors, and no weight of this model has four dimensions")
    for network in model.networks().values():
        network.to(memory_format=torch.channels_last)
    model.batch = mapped(_channels_last, model.batch)
    if not all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights):
        raise LabelNotReached("some 4-D weights are not in channels-last order after the change")


def _channels_last(tensor: Tensor) -> Tensor:
    is_image = is_inexact(tensor) and tensor.ndim == 4 and not kind_of(tensor)
    return tensor.contiguous(memory_format=torch.channels_last) if is_image else tensor


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The findings of one eager step."""

    calls: dict[str, Call]  # the first call of each network that the step calls, by network name
    operator_dtypes: dict[str, int]  # how many floating results the operators compute, by dtype
    products: int = 0  # how many operators are matrix products, convolutions, attention or recurrent layers
    quantized_operators: dict[str, int] = field(default_factory=dict)  # counts of those with a quantized operand
    uses_cpu_threads: bool = False  # an operator has an operand on the CPU that is large enough for several threads
    result_is_finite: bool = True  # loss (train) or outputs (eval)

    def take_calls(self) -> dict[str, Call]:
        """Return the calls and drop them: they hold tensors, which would count in the memory of a variant."""
        calls = dict(self.calls)
        self.calls.clear()
        return calls


#: Operators that move, cast or fill numbers, and compute none. Views are recognised by their schema.
MOVES = frozenset(
    (
        *("_to_copy", "clone", "copy", "copy_", "detach", "fill", "fill_", "lift_fresh", "zero_"),
        *("empty_like", "full_like", "ones_like", "zeros_like"),
        *("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros"),
        *("_foreach_zero_", "_foreach_copy_"),
    )
)
#: Operators for which PyTorch's counter has no formula, and which consist of matrix products.
OTHER_PRODUCTS = frozenset(
    ("_cudnn_rnn", "_cudnn_rnn_backward", "miopen_rnn", "mkldnn_rnn_layer", "linear", "matmul", "_grouped_mm")
)


class _OperatorDtypes(OperatorMode):
    """Count the floating and complex results of operators by dtype, without scalars (losses, Adam's step counters).

    Views, copies and casts compute nothing, and integers are not computed with. Also count products, and the operators
    that have a quantized operand by name, and note whether an operator may use several threads of the CPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[torch.dtype] = Counter()
        self.quantized: Counter[str] = Counter()
        self.products = 0
        self.uses_cpu_threads = False

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        operands = tensors_in(args)
        if any(operand.device.type == "cpu" and operand.numel() >= GRAIN_SIZE for operand in operands):
            self.uses_cpu_threads = True
        name = func.name().rpartition("::")[2].partition(".")[0]
        if any(operand.dtype in QUANTIZED_DTYPES for operand in operands):
            self.quantized[name] += 1
        self.products += func.overloadpacket in flop_registry or name in OTHER_PRODUCTS
        results = func(*args, **kwargs)
        if func.is_view or name in MOVES or not any(map(is_inexact, operands)):
            return results
        # Foreach and fused operators return nothing.
        for leaf in _written(func, args) if results is None else tree_leaves(results):
            if is_inexact(leaf) and leaf.dim():
                self.counts[leaf.dtype] += 1
        return results


def _written(func: Any, args: tuple[Any, ...]) -> list[Any]:
    """Return the operands that an operator changes in place."""
    declared = func._schema.arguments
    changed = [value for value, one in zip(args, declared, strict=False) if one.alias_info and one.alias_info.is_write]
    return tree_leaves(changed)


def inspect_step(model: Model, step: Callable[[], Any]) -> Inspection:
    """Run one eager step. Return the dtypes in which it computes, and how it calls its networks."""
    calls: dict[str, Call] = {}
    with contextlib.ExitStack() as stack:
        for name, network in model.networks().items():
            stack.enter_context(_recording(network, partial(_keep, calls, name)))
        dtypes = stack.enter_context(_OperatorDtypes())
        result = step()
    return Inspection(
        calls=calls,
        operator_dtypes={_name(dtype): n for dtype, n in dtypes.counts.items()},
        products=dtypes.products,
        quantized_operators=dict(dtypes.quantized),
        uses_cpu_threads=dtypes.uses_cpu_threads,
        result_is_finite=is_finite(result),
    )


def _keep(calls: dict[str, Call], name: str, call: Call) -> None:
    """Keep the first call of a network, and how a later one differs from it."""
    first = calls.setdefault(name, call)
    if not first.unlike:
        calls[name] = replace(first, unlike=first.difference(call))


@contextlib.contextmanager
def _recording(network: nn.Module, keep: Callable[[Call], Any]) -> Iterator[None]:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        args, kwargs = mapped(Tensor.detach, (args, kwargs))
        keep(Call(args, kwargs, type(output)))

    handle = network.register_forward_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def check_precision(model: Model, precision: Precision, native: NativeDtype, inspection: Inspection) -> None:
    """Check that weights, data and arithmetic are what the label says.

    Raises:
        LabelNotReached: a floating or complex parameter or tensor of the model has another dtype than the label says,
            or no operator computes in that dtype.
        NotRunnable: autocast or TF32 changes nothing in this model.
    """
    dtype = CAST_DTYPES.get(precision, NATIVE_DTYPES[native])
    held: dict[str, Tensor] = {
        f"{network_name}.{name}": parameter
        for network_name, network in model.networks().items()
        for name, parameter in network.named_parameters()
    }
    held |= {f"data {index}": leaf for index, leaf in enumerate(tensors_in(vars(model)))}
    for name, tensor in held.items():
        promised = dtype.to_complex() if tensor.is_complex() else dtype
        if is_inexact(tensor) and tensor.dtype is not promised:
            raise LabelNotReached(
                f"precision {precision} promises {_name(promised)}, but {name} is {_name(tensor.dtype)}"
            )
    complex_name = () if dtype in HALVES else (_name(dtype.to_complex()),)
    if model.autocast_dtype is not None:
        if _name(model.autocast_dtype) not in inspection.operator_dtypes:
            raise NotRunnable(f"autocast to {_name(model.autocast_dtype)} changes none of this model's operators")
    elif held and not {_name(dtype), *complex_name} & inspection.operator_dtypes.keys():
        computed = ", ".join(sorted(inspection.operator_dtypes)) or "no floating dtype"
        raise LabelNotReached(f"precision {precision} promises {_name(dtype)}, but the step computes in {computed}")
    if precision is Precision.TF32 and not inspection.products:
        raise NotRunnable("TF32 is for matrix products and convolutions, and this model's step has none")
    if precision.is_quantized:
        reason = why_not_reached(model, precision, inspection.quantized_operators)
        if reason is not None:
            raise LabelNotReached(reason)
