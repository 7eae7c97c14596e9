"""The work of one eager step: floating-point operations, by PyTorch's formulas and a few more, and bytes moved."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from torchzoo.measure.quantization import is_quantized_tensor
from torchzoo.record import Flops

aten = torch.ops.aten

#: Operators (without their overload) that compute much, as far as a name can tell. One that has a formula, PyTorch's or
#: one of `formulas`, is counted. One that has none is named in `Flops.without_formula`.
HEAVY = re.compile(
    r"(conv(?!ert)|linear|matmul|attention|rnn|lstm|gru_|gru$|_mm|mm_?$|mv_?$|dot$|linalg_|fft_|trilinear$|cdist|pdist|"
    r"euclidean_dist$|cholesky|triangular_solve|svd|(?<!w)eig(?!ht)|transformer_encoder_layer)"
)
#: Operators with such a name that compute little: an RNN cell's element-wise part, packed weights, properties, norms.
LIGHT = re.compile(
    r"(_(fused|differentiable)_(lstm|gru)_cell|pack$|prepack|unpack|reorder|flatten_weight|quantize_weight|upsample|"
    r"fftshift|fftfreq|cufft|linalg_(cross|diagonal|vander|norm|vector_norm|_powsum|_?check)|"
    r"conv.*_(stride|padding|dilation|groups|transpose|output_padding)$)"
)

#: Libraries whose operators are known. They compute a few operations per element, except those of HEAVY.
KNOWN_LIBRARIES = frozenset({"aten", "prim", "prims", "profiler", "quantized", "inductor"}) | {
    *("c10d", "c10d_functional", "_c10d_functional", "_dtensor", "fsdp", "symm_mem")  # of torch.distributed
}
#: Operators of other libraries that select or interpolate, with a few operations per element.
LIGHT_ELSEWHERE = frozenset(
    f"torchvision::{name}"
    for name in ("nms", "roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward", "ps_roi_align")
)

#: Operators that do not read the operand that they change: its old contents are overwritten.
WRITES_ONLY = re.compile(
    r"^(fill_|zero_|copy_|uniform_|normal_|bernoulli_|random_|exponential_|_foreach_(zero_|copy_))"
)
#: Operators that take the shape of a tensor but do not read it.
READS_NOTHING = re.compile(r"^((empty|zeros|ones|full|rand|randn|randint)_like|new_)")
#: Operators whose result is not written.
ALLOCATES = re.compile(r"^(new_)?empty(_like|_strided|_permuted|_quantized)?$|^resize_$|^set_$|^_resize_output_$")
#: Operators that read as many elements of their first operand as they return.
GATHERS = frozenset({"embedding", "index_select", "index", "_unsafe_index", "gather", "take", "select_scatter"})
#: The operator's results from this one on are workspaces, as large as the library likes; backward has `workspace`.
WORKSPACES = {"mkldnn_rnn_layer": 3}
#: Operators that change their first operand in place: as many of its elements as the other operands have.
SCATTERS = re.compile(
    r"^(_index_put_impl_|index_put_|scatter_|scatter_add_|scatter_reduce_|index_add_|index_copy_|put_)$"
)


def count_work(step: Callable[[], Any]) -> Flops:
    """Run `step` once and count what its operators do, backward passes and optimizers included.

    A multiply-add is two operations. Matrix products, convolutions, attention and recurrent layers count, by the shapes
    of their operands (`torch.utils.flop_counter` and `formulas`). The masked half of causal attention, padding and
    recomputation count, too. Element-wise work, reductions, normalisations and lookups never count; `bytes_moved` shows
    them. `without_formula` has the calls of operators that compute much but have no formula: the total is then too low.

    `bytes_moved` is the sum, over all operators, of the bytes of their operands and results: what kernels that are not
    fused read and write if no cache helps them. A view moves nothing. An operator in place reads and writes what it
    changes. A lookup reads what it returns. A dimension that is only expanded is read once. The sum is not a lower
    bound for fused code, which keeps intermediate results in registers. It is not exact for eager, either: caches save
    traffic, and a kernel's workspace and what it reads more than once are not seen.
    """
    counter = _Counter()
    with counter:
        step()
    return Flops(
        total=sum(sum(by_dtype.values()) for by_dtype in counter.flops.values()),
        by_operator={name: dict(by_dtype) for name, by_dtype in counter.flops.items()},
        without_formula=dict(counter.without_formula),
        bytes_moved=counter.bytes_moved,
    )


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each operator that is executed. An operator that is made of others is seen as those.

    It is like `torch.utils.flop_counter.FlopCounterMode`, with two differences: it does not attribute work to modules
    (which fails with second derivatives), and it counts by the operands' dtypes and adds up their bytes.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.without_formula: Counter[str] = Counter()
        self.bytes_moved = 0
        self._formulas = formulas()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _are_distributed(types) or any(map(is_quantized_tensor, types)):
            return NotImplemented  # it runs as operators on the tensors inside, which come here next
        if any(issubclass(one, FakeTensor) for one in types):
            return func(*args, **kwargs)  # torch.distributed asks for the shapes of all ranks together
        is_higher_order = isinstance(func, torch._ops.HigherOrderOperator)
        packet = func if is_higher_order else func._overloadpacket
        if not is_higher_order and packet not in self._formulas and func.namespace != "prim":
            with self:
                taken_apart = func.decompose(*args, **kwargs)
            if taken_apart is not NotImplemented:
                return taken_apart
        result = func(*args, **kwargs)
        self._count(packet, args, kwargs, result)
        if not is_higher_order:
            self.bytes_moved += moved_bytes(func, args, kwargs, result)
        return result

    def _count(self, packet: Any, args: Any, kwargs: Any, result: Any) -> None:
        name = getattr(packet, "_qualified_op_name", str(packet))
        operations = 0
        if packet in self._formulas:
            try:
                operations = self._formulas[packet](*args, **kwargs, out_val=result)
            except AssertionError:  # PyTorch's formula does not know these shapes
                self.without_formula[name] += 1
        elif computes_much(name) or isinstance(packet, torch._ops.HigherOrderOperator):
            self.without_formula[name] += 1
        if operations:
            self.flops[name][_dtype(args)] += operations


def _are_distributed(types: Iterable[type]) -> bool:
    distributed = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and any(issubclass(one, distributed.DTensor) for one in types)


def computes_much(name: str) -> bool:
    """Whether an operator (`aten::mm`) computes more than a few operations per element, by its name and library.

    Any operator of an unknown library may.
    """
    library, _, operator = name.partition("::")
    if library in KNOWN_LIBRARIES:
        return bool(HEAVY.search(operator)) and not LIGHT.search(operator)
    return name not in LIGHT_ELSEWHERE


def _dtype(args: Any) -> str:
    """The dtype of the first tensor among the operands; all operands of a product have the same."""
    return next(str(leaf.dtype).removeprefix("torch.") for leaf in tree_leaves(args) if isinstance(leaf, Tensor))


# --- formulas that PyTorch does not have, or has wrong; each takes the operator's operands and its result ---


def _matrix_vector(matrix: Tensor, _vector: Tensor, **_: Any) -> int:
    return 2 * matrix.numel()


def _add_matrix_vector(_bias: Tensor, matrix: Tensor, _vector: Tensor, **_: Any) -> int:
    return 2 * matrix.numel()


def _dot(a: Tensor, _b: Tensor, **_: Any) -> int:
    return 2 * a.numel()


def _product(a: Tensor, b: Tensor, *_args: Any, **_: Any) -> int:
    return 2 * a.numel() * b.shape[-1]


def _add_product(_bias: Tensor, a: Tensor, b: Tensor, *_args: Any, **_: Any) -> int:
    return 2 * a.numel() * b.shape[-1]


def _grouped_product(a: Tensor, b: Tensor, *_args: Any, **_: Any) -> int:
    """Rows of a, columns of b, or what is summed over is divided into groups, each with its own matrix of the other."""
    if a.ndim == 3 and b.ndim == 2:
        return 2 * a[0].numel() * b.shape[-1]
    return 2 * a.numel() * b.shape[-1]


def _packed_product(a: Tensor, *_args: Any, out_val: Tensor, **_: Any) -> int:
    return 2 * a.shape[-1] * out_val.numel()


def _solve_triangular(a: Tensor, _b: Tensor, *, unitriangular: bool = False, out_val: Tensor, **_: Any) -> int:
    """Each unknown takes a multiply-add for each one found before it, and a division."""
    unknowns = a.shape[-1]
    right_hand_sides = out_val.numel() // unknowns
    return right_hand_sides * unknowns * (unknowns - 1 + (not unitriangular))


def _euclidean_distances(a: Tensor, b: Tensor, **_: Any) -> int:
    """A product of all rows of a with all of b. Squared norms and ones stand beside the rows, in two columns more."""
    return 2 * prod(a.shape[:-1]) * b.shape[-2] * (a.shape[-1] + 2)


def _trilinear(
    a: Tensor, b: Tensor, c: Tensor, expand_a: list[int], expand_b: list[int], expand_c: list[int], *_: Any, **__: Any
) -> int:
    """Two multiplications and an addition for each element of the three operands' common shape."""
    shapes = []
    for tensor, dimensions in ((a, expand_a), (b, expand_b), (c, expand_c)):
        shape = list(tensor.shape)
        for dimension in dimensions:
            shape.insert(dimension, 1)
        shapes.append(shape)
    return int(3 * prod(max(sizes) for sizes in zip(*shapes, strict=True)))


def _convolution_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    _bias_sizes: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: bool,  # noqa: FBT001  by position, as the operator has it
    _output_padding: Any,
    _groups: int,
    output_mask: list[bool],
    **_: Any,
) -> int:
    """Each gradient costs what the forward pass does.

    (PyTorch's own formula, 2.15, counts the weight's gradient `groups` times over.)
    """
    batch, *positions = (x if transposed else grad_output).shape
    forward = 2 * batch * prod(positions[1:]) * weight.numel()
    return forward * sum(output_mask[:2])


def _rnn(x: Tensor, weights: Iterable[Tensor]) -> int:
    """Each weight matrix of each layer and direction is multiplied with one vector per sequence and time step."""
    tokens = x.numel() // x.shape[-1]
    return 2 * tokens * sum(weight.numel() for weight in weights if weight.ndim == 2)


def _cudnn_rnn(x: Tensor, weights: list[Tensor], *_args: Any, **_: Any) -> int:
    return _rnn(x, weights)


def _cudnn_rnn_backward(x: Tensor, weights: list[Tensor], *args: Any, **_: Any) -> int:
    """The data's gradient, and the weights' where the mask (the last operand) asks for it."""
    return _rnn(x, weights) * (2 if args[-1][3] else 1)


def _mkldnn_rnn(x: Tensor, w_input: Tensor, w_hidden: Tensor, *_args: Any, **_: Any) -> int:
    return _rnn(x, (w_input, w_hidden))


def _mkldnn_rnn_backward(x: Tensor, w_input: Tensor, w_hidden: Tensor, *_args: Any, **_: Any) -> int:
    return 2 * _rnn(x, (w_input, w_hidden))


def _quantized_convolution(_x: Tensor, packed: Any, *_args: Any, out_val: Tensor, **_: Any) -> int:
    """`packed` unpacks to a weight of (channels out, channels in of a group, kernel ...)."""
    weight: Tensor = packed.unpack()[0]
    return 2 * out_val.numel() * prod(weight.shape[1:])


def _quantized_linear(x: Tensor, _packed: Any, *_args: Any, out_val: Tensor, **_: Any) -> int:
    return 2 * out_val.numel() * x.shape[-1]


def _deformable_convolution(_x: Tensor, weight: Tensor, *_args: Any, out_val: Tensor, **_: Any) -> int:
    """The convolution itself; sampling at offsets is interpolation, a few operations per element."""
    return 2 * out_val.numel() * prod(weight.shape[1:])


def _deformable_convolution_backward(grad: Tensor, _x: Tensor, weight: Tensor, *_args: Any, **_: Any) -> int:
    """Gradients of the sampled columns and of the weight."""
    return 2 * 2 * grad.numel() * prod(weight.shape[1:])


FORMULAS: dict[Any, Callable[..., int]] = {
    aten.addmm_: flop_registry[aten.addmm],
    aten.baddbmm_: flop_registry[aten.baddbmm],
    aten.mv: _matrix_vector,
    aten.addmv: _add_matrix_vector,
    aten.addmv_: _add_matrix_vector,
    aten.dot: _dot,
    aten.vdot: _dot,
    aten.addbmm: _add_product,
    aten.addbmm_: _add_product,
    aten._addmm_activation: _add_product,
    aten._int_mm: _product,
    aten._grouped_mm: _grouped_product,
    aten._weight_int4pack_mm: _packed_product,
    aten._weight_int8pack_mm: _packed_product,
    aten.linalg_solve_triangular: _solve_triangular,
    aten._trilinear: _trilinear,
    aten._euclidean_dist: _euclidean_distances,
    aten.convolution_backward: _convolution_backward,
    aten._cudnn_rnn: _cudnn_rnn,
    aten._cudnn_rnn_backward: _cudnn_rnn_backward,
    aten.miopen_rnn: _cudnn_rnn,
    aten.miopen_rnn_backward: _cudnn_rnn_backward,
    aten.mkldnn_rnn_layer: _mkldnn_rnn,
    aten.mkldnn_rnn_layer_backward: _mkldnn_rnn_backward,
    # torch 2.11 has none for the CPU's attention
    aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[aten._scaled_dot_product_flash_attention],
    aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        aten._scaled_dot_product_flash_attention_backward
    ],
}


_QUANTIZED_CONVOLUTIONS = ("conv1d", "conv1d_relu", "conv2d", "conv2d_relu", "conv3d", "conv3d_relu")
_QUANTIZED_LINEARS = ("linear", "linear_relu", "linear_dynamic", "linear_relu_dynamic")


def formulas() -> dict[Any, Callable[..., int]]:
    """All formulas: PyTorch's, those above, and those of quantized and torchvision operators where these exist."""
    elsewhere: dict[Any, dict[str, Callable[..., int]]] = {
        torch.ops.quantized: dict.fromkeys(_QUANTIZED_CONVOLUTIONS, _quantized_convolution)
        | dict.fromkeys(_QUANTIZED_LINEARS, _quantized_linear),
        torch.ops.torchvision: {
            "deform_conv2d": _deformable_convolution,
            "_deform_conv2d_backward": _deformable_convolution_backward,
        },
    }
    there = {
        getattr(library, name): formula
        for library, by_name in elsewhere.items()
        for name, formula in by_name.items()
        if hasattr(library, name)
    }
    return {**flop_registry, **FORMULAS, **there}


# --- bytes ---


def moved_bytes(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Bytes that one operator reads and writes, by its operands, its results, and what it changes by its schema.

    Args:
        func: an `OpOverload`.
        args, kwargs: its operands; `out=` is written only.
        result: what it returned.
    """
    name = func._schema.name.partition("::")[2]
    if ALLOCATES.match(name):
        return 0
    read: dict[int, Tensor] = {}
    changed: dict[int, Tensor] = {}
    for argument, value in _by_argument(func._schema, args, kwargs):
        if argument.name == "workspace":
            continue
        tensors = {id(leaf): leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)}
        is_changed = argument.alias_info is not None and argument.alias_info.is_write
        if is_changed:
            changed |= tensors
        if not (is_changed and (argument.kwarg_only or WRITES_ONLY.match(name))) and not READS_NOTHING.match(name):
            read |= tensors
    if name in WORKSPACES:
        result = result[: WORKSPACES[name]]
    old = {_storage(tensor) for tensor in (read | changed).values()}
    new = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and _storage(leaf) not in old]
    if not new and not changed and any(isinstance(leaf, Tensor) for leaf in tree_leaves(result)):
        return 0  # a view
    first = next(iter(read), None)
    sizes = {key: tensor_bytes(tensor) for key, tensor in read.items()}
    written = sum(map(tensor_bytes, new)) + sum(map(tensor_bytes, changed.values()))
    if first is not None and name in GATHERS:
        sizes[first] = min(sizes[first], written)
    if first is not None and SCATTERS.match(name):
        others = max((size for key, size in sizes.items() if key != first), default=0)
        sizes[first] = written = min(sizes[first], others)
    return sum(sizes.values()) + written


def _by_argument(schema: Any, args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    return [(argument, given[argument.name]) for argument in schema.arguments if argument.name in given]


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of the elements that are distinct in memory: an expanded dimension counts once."""
    if tensor.layout is torch.sparse_coo:
        return tensor_bytes(tensor._indices()) + tensor_bytes(tensor._values())
    if tensor.layout is not torch.strided:
        return tensor._nnz() * tensor.element_size()
    distinct = prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 0)
    return distinct * tensor.element_size()


def _storage(tensor: Tensor) -> int:
    """A number for the memory behind a tensor; for the tensor itself where it has no ordinary storage."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)
