"""A dispatch mode that sees each operator of a step, also inside higher-order operators and wrapper tensors."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_map

from torchzoo.model.tensors import tensors_in

#: Higher-order operators that PyTorch computes in eager by plain operators.
_MADE_OF_OPERATORS = frozenset({"flex_attention", "flex_attention_backward"})

#: Higher-order operators that run one operator, which is their operand, with a saved state of random numbers.
_WITH_RANDOM_STATE = frozenset(
    {"run_and_save_rng_state", "run_with_rng_state", "graphsafe_run_with_rng_state", "run_dtensor_rng_op"}
)


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that passes each operator that computes to `see`, which runs it and returns its result.

    Higher-order operators (`torch.cond`, `while_loop`, `flex_attention` ...) go to `see_higher_order`. By default, the
    operators that they run go to `see`: of the chosen branch, of each turn of a loop, of eager attention. Operators on
    wrapper tensors (nested, sharded, quantized) appear as those on the inner tensors. Operators on fake tensors compute
    nothing, and are not seen.
    """

    supports_higher_order_operators = True

    def __init_subclass__(cls) -> None:  # untyped in PyTorch
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let Dynamo trace under the mode: in eager, PyTorch calls a higher-order operator by `torch.compile`.

        The code that Dynamo has traced runs under the mode, operator by operator.
        """
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            if any(isinstance(tensor, FakeTensor) for tensor in tensors_in((args, kwargs))):
                return func(*args, **kwargs)
            return self.see_higher_order(func, args, kwargs)
        if any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented
        if any(issubclass(one, FakeTensor) for one in types):
            return func(*args, **kwargs)
        return self.see(func, args, kwargs)

    def see(self, func: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator."""
        return func(*args, **kwargs)

    def see_higher_order(self, func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a higher-order operator."""
        return self.run_inside(func, args, kwargs)

    def run_inside(self, func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a higher-order operator so that its inner operators are seen."""
        if str(func) in _MADE_OF_OPERATORS:
            with self:
                return func.py_kernels[DispatchKey.CompositeExplicitAutograd](*args, **kwargs)
        args, kwargs = tree_map(functools.partial(self._seen_inside, func), (args, kwargs))
        return func(*args, **kwargs)

    def run_parts(self, func: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a composite operator so that its parts are seen; return NotImplemented, without running, for others.

        In inference mode, composite operators reach the mode whole. Nested tensors in PyTorch's older layout have no
        sizes, so operators on them are never decomposed.
        """
        if any(tensor.is_nested for tensor in tensors_in((args, kwargs))):
            return NotImplemented
        with self:
            return func.decompose(*args, **kwargs)

    def _seen_inside(self, func: HigherOrderOperator, operand: Any) -> Any:
        if not runs(func, operand):
            return operand

        @functools.wraps(operand)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return operand(*args, **kwargs)

        return run


def runs(func: HigherOrderOperator, operand: Any) -> bool:
    """Whether a higher-order operator runs this operand: a function, a graph, or an operator."""
    if isinstance(operand, OpOverload):
        return str(func) in _WITH_RANDOM_STATE
    return callable(operand) and not isinstance(operand, type | torch.Tensor | OpOverloadPacket)
