"""List what one eager step uses of PyTorch: public functions, and the operators below autograd."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.profiler import ProfilerActivity, profile

from torchzoo.errors import attempt
from torchzoo.measure.passes import Fields, PassContext
from torchzoo.model.dispatch import OperatorMode
from torchzoo.record import ApiSurface


def measure(context: PassContext) -> Fields:
    """List what an eager step uses of PyTorch."""
    return {"api": step_api(context.variant.step)}


def step_api(step: Callable[[], Any]) -> ApiSurface:
    """Return the names that one step uses, each once. The step runs three times; the caller has selected eager.

    Functions are those of the Python API that the step's code calls, with tensors or to make them. They have the names
    of `torch.overrides.resolve_name`: `torch.nn.functional.conv2d`, `torch.Tensor.view`, `torch.zeros`, and properties
    such as `torch.Tensor.grad`. A function that another function calls is not seen. `nn.Module` classes do not count,
    but the functions that they call do. TorchBench counts its API surface in the same way, by a `TorchFunctionMode`
    (pytorch/benchmark, userbenchmark/api-coverage), with two differences: it leaves out functions that make tensors,
    and it counts all properties as one.

    Operators are what PyTorch gives a device to compute, in backward too: `aten::mm` and those of all other namespaces,
    with all overloads of an operator as one. A `TorchDispatchMode` sees them. Under such a mode PyTorch avoids some
    in-place operations (it adds up gradients with `add` instead of `add_`). If a profile of the step without the mode
    has the operator in place, the in-place operator is counted instead.

    If the step fails under a mode or the profiler, the other names are still there, and `reason` says what failed.
    """
    reasons: list[str] = []
    ran = _guarded("the profiler", lambda: _profiled(step), reasons)
    operators = _guarded("TorchDispatchMode", lambda: _dispatched(step), reasons)
    functions = _guarded("TorchFunctionMode", lambda: _called(step), reasons)
    operators = {f"{name}_" if name not in ran and f"{name}_" in ran else name for name in operators}
    return ApiSurface(functions=tuple(sorted(functions)), operators=tuple(sorted(operators)), reason="; ".join(reasons))


def _guarded(what: str, collect: Callable[[], set[str]], reasons: list[str]) -> set[str]:
    found = attempt(collect)  # if a library raises under a mode, only these names are lost
    if isinstance(found, Exception):
        reasons.append(f"the step fails under {what}: {type(found).__name__}: {' '.join(str(found).split())[:200]}")
        return set()
    return found


def _profiled(step: Callable[[], Any]) -> set[str]:
    """Return the names of all operators that run, also inside other operators."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    raw = getattr(profiled.profiler, "kineto_results", None)  # raw events: to make a tree of them takes long
    names = (event.name() for event in raw.events()) if raw is not None else (e.name for e in profiled.events() or ())
    return {name for name in names if "::" in name}


def _dispatched(step: Callable[[], Any]) -> set[str]:
    mode = _Operators()
    with mode:
        step()
    return mode.names


class _Operators(OperatorMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.namespace != "profiler":
            self.names.add(f"{func.namespace}::{func.name().rpartition('::')[2].partition('.')[0]}")
        return func(*args, **kwargs)

    def see_higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        self.names.add(f"{func.namespace}::{func.name()}")
        return super().see_higher_order(func, args, kwargs)


def _called(step: Callable[[], Any]) -> set[str]:
    with _Functions() as mode:
        step()
    return {name for name in map(_public_name, mode.functions) if name is not None}


class _Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.functions: set[Callable[..., Any]] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.functions.add(func)
        return func(*args, **(kwargs or {}))


def _public_name(function: Any) -> str | None:
    """Return the public name of a function; None for private functions and for operators called by their own name."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return None
    name = resolve_name(function) or _name_in_module(function)
    if name is None or any(re.match(r"_(?!_)", part) for part in name.split(".")):
        return None
    return re.sub(r"\.__(get|set|delete)__$", "", name)


def _name_in_module(function: Any) -> str | None:
    """Return the name of a function that `resolve_name` does not know, such as `torch.autograd.grad`."""
    path = f"{getattr(function, '__module__', None) or 'torch'}.{getattr(function, '__name__', '')}"
    root, *parts = path.split(".")
    found: Any = torch if root == "torch" else None
    for part in parts:
        found = getattr(found, part, None)
    return path if found is function else None
