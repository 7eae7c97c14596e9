"""Count the work of a step: floating-point operations, and the bytes that its operators move."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from math import prod
from typing import Any

import msgspec
import torch
import torch._dynamo.config
from torch import Tensor
from torch.utils._pytree import tree_leaves

from torchzoo import backends
from torchzoo.case import Backend, Case
from torchzoo.measure.passes import Fields, PassContext
from torchzoo.measure.passes.flop_formulas import formulas, sparse_product
from torchzoo.measure.variant import candidate_variant
from torchzoo.model import Model
from torchzoo.model.dispatch import OperatorMode, runs
from torchzoo.model.tensors import stored_bytes, tensors_in
from torchzoo.record import EAGER_VARIANT, Flops


def measure(context: PassContext) -> Fields:
    """Count the work of eager's step, and of the graphs that Dynamo captures for the candidate."""
    own = context.ranks.own
    if context.variant.name == EAGER_VARIANT:
        return {"flops": count_work(context.variant.step)}
    if own.world > 1 or not backends.info(own.case.backend.name).uses_dynamo:
        return {}
    return {"candidate_flops": count_captured_work(own.model, own.model.measured_step, own.case)}


# The bytes that an operator reads and writes, by its operands and results.

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
#: By operator, the first of its results that is a workspace of the kernel, which the backward reads as `workspace`. The
#: size of workspaces depends on the library and on the processor.
WORKSPACES = {"mkldnn_rnn_layer": 3}
#: Operators that change their first operand in place, in as many elements as the other operands have.
SCATTERS = re.compile(
    r"^(_index_put_impl_|index_put_|scatter_|scatter_add_|scatter_reduce_|index_add_|index_copy_|put_)$"
)


def moved_bytes(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """Return the bytes that one operator reads and writes, by its operands, its results, and its schema's mutations.

    Args:
        func: an `OpOverload`.
        args, kwargs: its operands; `out=` is written only.
        result: its return value.
    """
    name = func._schema.name.partition("::")[2]
    if ALLOCATES.match(name):
        return 0
    read: dict[int, Tensor] = {}
    changed: dict[int, Tensor] = {}
    for argument, value in _by_argument(func._schema, args, kwargs):
        if argument.name == "workspace":
            continue
        tensors = {id(tensor): tensor for tensor in tensors_in(value)}
        is_changed = argument.alias_info is not None and argument.alias_info.is_write
        if is_changed:
            changed |= tensors
        if not (is_changed and (argument.kwarg_only or WRITES_ONLY.match(name))) and not READS_NOTHING.match(name):
            read |= tensors
    if name in WORKSPACES:
        result = result[: WORKSPACES[name]]
    old = {_storage(tensor) for tensor in (read | changed).values()}
    results = tensors_in(result)
    new = [tensor for tensor in results if _storage(tensor) not in old]
    if results and not new and not changed:
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
    """Return the bytes of the elements that are distinct in memory: an expanded dimension counts once."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return stored_bytes(tensor)
    distinct = prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride or size == 0)
    return distinct * tensor.element_size()


def _storage(tensor: Tensor) -> int:
    """Return a number for the memory behind a tensor; for the tensor itself where it has no ordinary storage."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


#: Operators (without their overload) that compute much, as far as a name can tell. If PyTorch or `flop_formulas` has a
#: formula, the operator is counted, otherwise it is named in `Flops.without_formula`.
HEAVY = re.compile(
    r"(conv(?!ert)|linear|matmul|attention|rnn|lstm|gru_|gru$|_mm|mm_?$|mv_?$|dot$|linalg_|fft_|trilinear$|cdist|pdist|"
    r"euclidean_dist$|cholesky|triangular_solve|svd|(?<!w)eig(?!ht)|transformer_encoder_layer)"
)
#: Operators with such a name that compute little: cells of RNNs whose matrix products are separate operators, the
#: packing and layout of weights, properties of a convolution, interpolation, norms.
LIGHT = re.compile(
    r"(_(fused|differentiable)_(lstm|gru)_cell|pack$|prepack|unpack|reorder|flatten_weight|quantize_weight|upsample|"
    r"fftshift|fftfreq|cufft|linalg_(cross|diagonal|vander|norm|vector_norm|_powsum|_?check)|"
    r"conv.*_(stride|padding|dilation|groups|transpose|output_padding)$)"
)

#: Fused attention, forward.
ATTENTION = re.compile(r"::_?(scaled_dot_product_\w*attention)(?!\w*backward)")

#: Steps until all graphs of a step are captured; the second step may find gradients that the first one made.
STEPS_TO_COMPILE = 2

#: Libraries whose operators are known. They compute a few operations per element, except those of HEAVY.
KNOWN_LIBRARIES = frozenset({"aten", "prim", "prims", "profiler", "quantized", "inductor"}) | {
    *("c10d", "c10d_functional", "_c10d_functional", "_dtensor", "fsdp", "symm_mem")  # of torch.distributed
}
#: Operators of other libraries that select or interpolate, with a few operations per element.
LIGHT_ELSEWHERE = frozenset(
    f"torchvision::{name}"
    for name in ("nms", "roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward", "ps_roi_align")
)


def count_work(step: Callable[[], Any]) -> Flops:
    """Run `step` once and count what its operators do, with backward passes and optimizers.

    A multiply-add is two operations. Matrix products, convolutions, attention and recurrent layers count, by the shapes
    of their operands (`torch.utils.flop_counter` and `formulas`). The masked half of causal attention, padding and
    recomputation count, too; of FlexAttention, the blocks that its mask keeps. Of `torch.cond` the branch that ran is
    counted, and of a loop each iteration. Element-wise work, reductions, normalisations and lookups never count;
    `bytes_moved` shows them. `without_formula` has the calls of operators that compute much but have no formula: the
    total is then too low.

    `bytes_moved` is the sum, over all operators, of the bytes of their operands and results: the memory traffic of
    kernels that are not fused if no cache helps them. A view moves nothing. An in-place operator reads and writes what
    it changes. A lookup reads what it returns. An expanded dimension is read once. The sum is not a lower bound for
    fused code, which keeps intermediate results in registers, nor is it exact for eager: caches save traffic, and
    workspaces of kernels and repeated reads are not seen.
    """
    counter = _Counter()
    with counter:
        step()
    return Flops(
        total=sum(sum(by_dtype.values()) for by_dtype in counter.flops.values()),
        by_operator={name: dict(by_dtype) for name, by_dtype in counter.flops.items()},
        without_formula=dict(counter.without_formula),
        bytes_moved=counter.bytes_moved,
        product_bytes=counter.product_bytes,
        attention=dict(counter.attention),
    )


def count_captured_work(model: Model, step: Callable[[], Any], case: Case) -> Flops:
    """Count the work of the graphs that Dynamo captures for the case's backend, as `count_work` does for eager.

    The graphs run operator by operator (Dynamo's backend `aot_eager`), so that each operator is seen: before the case's
    own compiler fuses, replaces or recomputes anything. Operators that Dynamo left to eager count as in eager.
    """
    shown = msgspec.structs.replace(case, backend=Backend("aot_eager"))
    # Code that was compiled for the case's own backend counts against the same limit of recompilations.
    with torch._dynamo.config.patch(recompile_limit=2 * torch._dynamo.config.recompile_limit):
        variant = candidate_variant(model, step, shown, dict.fromkeys(model.networks()))
        variant.select()
        for _ in range(STEPS_TO_COMPILE):
            variant.step()
        return count_work(variant.step)


class _Counter(OperatorMode):
    """Count each operator that is executed. An operator that is made of others is seen as these.

    In contrast to `torch.utils.flop_counter.FlopCounterMode`, work is not attributed to modules (which fails with
    second derivatives), and is counted by the operands' dtypes, with their bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.without_formula: Counter[str] = Counter()
        self.bytes_moved = self.product_bytes = 0
        self.attention: Counter[str] = Counter()
        self._formulas = formulas()
        self._is_counted = False  # whether a formula counts the operator that contains what runs now

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        packet = func._overloadpacket
        if packet not in self._formulas and func.namespace != "prim":
            taken_apart = self.run_parts(func, args, kwargs)
            if taken_apart is not NotImplemented:
                return taken_apart
        result = func(*args, **kwargs)
        moved = moved_bytes(func, args, kwargs, result)
        self.bytes_moved += moved
        if not self._is_counted and self._count(packet, packet._qualified_op_name, args, kwargs, result):
            self.product_bytes += moved
        if ATTENTION.search(func.name()):
            self.attention[_attention_call(func, args, kwargs)] += 1
        return result

    def see_higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        has_formula = func in self._formulas
        runs_operators = any(runs(func, operand) for operand in tree_leaves((args, kwargs)))
        was_counted, self._is_counted = self._is_counted, self._is_counted or has_formula
        try:
            result = self.run_inside(func, args, kwargs)
        finally:
            self._is_counted = was_counted
        if not was_counted and (has_formula or not runs_operators):
            self._count(func, f"{func.namespace}::{func.name()}", args, kwargs, result)
        return result

    def _count(self, packet: Any, name: str, args: Any, kwargs: Any, result: Any) -> bool:
        """Add the operations of an operator. Return whether there are any."""
        operations = 0
        if packet in self._formulas:
            formula = self._formulas[packet]
            if any(tensor.is_nested or tensor.layout is not torch.strided for tensor in tensors_in(args)):
                formula = sparse_product
            try:
                operations = formula(*args, **kwargs, out_val=result)
            except AssertionError:  # the formula does not know these shapes or kinds of tensors
                self.without_formula[name] += 1
        elif computes_much(name) or isinstance(packet, torch._ops.HigherOrderOperator):
            self.without_formula[name] += 1
        if operations:
            self.flops[name][_dtype(args)] += operations
        return bool(operations)


def _attention_call(func: Any, args: Any, kwargs: Any) -> str:
    """Return the operator of fused attention with the arguments that decide on its work."""
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    shapes = {name: "x".join(map(str, given[name].shape)) for name in ("query", "key", "value")}
    mask = next((given[name] for name in ("attn_mask", "attn_bias") if given.get(name) is not None), None)
    said = [f"{name} {shape}" for name, shape in shapes.items()]
    said.append("causal" if given.get("is_causal") else "not causal")
    if mask is not None:
        said.append(f"mask of {str(mask.dtype).removeprefix('torch.')}")
    return f"{func._schema.name.partition('::')[2].lstrip('_')} ({', '.join(said)})"


def computes_much(name: str) -> bool:
    """Whether an operator (`aten::mm`) computes more than a few operations per element, by its name and library.

    Operators of unknown libraries count as such.
    """
    library, _, operator = name.partition("::")
    if library in KNOWN_LIBRARIES:
        return bool(HEAVY.search(operator)) and not LIGHT.search(operator)
    return name not in LIGHT_ELSEWHERE


def _dtype(args: Any) -> str:
    """Return the dtype of the first tensor among the operands; all operands of a product have the same dtype."""
    return str(tensors_in(args)[0].dtype).removeprefix("torch.")
