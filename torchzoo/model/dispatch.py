"""A dispatch mode that sees each operator of a step, also inside of higher-order operators and wrapper tensors."""

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

#: Higher-order operators that PyTorch computes in eager by plain operators of their own.
_MADE_OF_OPERATORS = frozenset({"flex_attention", "flex_attention_backward"})


class OperatorMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives each operator that computes something to `see`, which runs it and returns its result.

    A higher-order operator (`torch.cond`, `while_loop`, `flex_attention` ...) goes to `see_higher_order`. By default,
    what it runs comes to `see`: the branch that is taken, each turn of a loop, the operators of eager attention.
    Operators on wrapper tensors (nested, sharded, quantized) come as those on the tensors inside. Operators on fake
    tensors compute nothing, and are not seen.
    """

    supports_higher_order_operators = True

    def __init_subclass__(cls) -> None:  # both are untyped in PyTorch
        super().__init_subclass__()  # type: ignore[no-untyped-call]

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let Dynamo trace under the mode: in eager, PyTorch calls a higher-order operator by `torch.compile`.

        What Dynamo has traced for it runs under the mode, operator by operator.
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
        """Run a higher-order operator so that the operators which it runs are seen."""
        if str(func) in _MADE_OF_OPERATORS:
            with self:
                return func.py_kernels[DispatchKey.CompositeExplicitAutograd](*args, **kwargs)
        args, kwargs = tree_map(self._seen_inside, (args, kwargs))
        return func(*args, **kwargs)

    def run_parts(self, func: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator that is made of others so that these are seen. NotImplemented, and nothing, for any other.

        (In inference mode, such operators come whole.) Nested tensors in PyTorch's older layout have no sizes, so that
        operators on them are not taken apart.
        """
        if any(tensor.is_nested for tensor in tensors_in((args, kwargs))):
            return NotImplemented
        with self:
            return func.decompose(*args, **kwargs)

    def _seen_inside(self, operand: Any) -> Any:
        if not takes_operators(operand):
            return operand

        @functools.wraps(operand)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return operand(*args, **kwargs)

        return run


def takes_operators(operand: Any) -> bool:
    """Whether the operand of a higher-order operator is a function or a graph that it runs."""
    return callable(operand) and not isinstance(operand, type | torch.Tensor | OpOverload | OpOverloadPacket)
