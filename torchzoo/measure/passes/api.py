"""What of PyTorch's API one eager step touches: public functions, and the operators below autograd."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from torchzoo.errors import attempt
from torchzoo.record import ApiSurface


def step_api(step: Callable[[], Any]) -> ApiSurface:
    """The names that one step touches, each once. It runs the step three times; the caller has selected eager.

    Functions are those of the Python API that the step's code calls with tensors or to make them, as
    `torch.overrides.resolve_name` calls them (`torch.nn.functional.conv2d`, `torch.Tensor.view`, `torch.zeros`;
    properties too: `torch.Tensor.grad`). This is how TorchBench counts its API surface (a `TorchFunctionMode`;
    pytorch/benchmark, userbenchmark/api-coverage), but for functions that make tensors, which it leaves out, and for
    properties, which it counts as one. What a function calls in its turn is not seen; `nn.Module` classes are not
    counted, there or here: what is counted are the functions that they call when they run.

    Operators are what PyTorch gives a device to compute (`aten::mm`, of all namespaces, overloads taken together),
    in backward too, as a `TorchDispatchMode` sees them. Under such a mode PyTorch avoids some operations in place
    (it adds up gradients by `add`, not `add_`): by the profile of a step without, their twins in place are counted.

    A step that fails under a mode or the profiler gives the rest, and `reason` says what failed.
    """
    reasons: list[str] = []
    ran = _guarded("the profiler", lambda: _profiled(step), reasons)
    operators = _guarded("TorchDispatchMode", lambda: _dispatched(step), reasons)
    functions = _guarded("TorchFunctionMode", lambda: _called(step), reasons)
    operators = {f"{name}_" if name not in ran and f"{name}_" in ran else name for name in operators}
    return ApiSurface(functions=tuple(sorted(functions)), operators=tuple(sorted(operators)), reason="; ".join(reasons))


def _guarded(what: str, collect: Callable[[], set[str]], reasons: list[str]) -> set[str]:
    found = attempt(collect)  # what a library raises under a mode costs these names, not the case
    if isinstance(found, Exception):
        reasons.append(f"the step fails under {what}: {type(found).__name__}: {' '.join(str(found).split())[:200]}")
        return set()
    return found


def _profiled(step: Callable[[], Any]) -> set[str]:
    """All operators that run, those inside others too."""
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    raw = getattr(profiled.profiler, "kineto_results", None)  # as they are: making a tree of them takes long
    names = (event.name() for event in raw.events()) if raw is not None else (e.name for e in profiled.events() or ())
    return {name for name in names if "::" in name}


def _dispatched(step: Callable[[], Any]) -> set[str]:
    mode = _Operators()
    with mode:
        step()
    return mode.names


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]  # its __init_subclass__ is untyped
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "profiler":
            self.names.add(f"{func.namespace}::{func.name().rpartition('::')[2].partition('.')[0]}")
        return func(*args, **(kwargs or {}))


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
    """Where a user finds the function; None for what is private, and for operators called by their own name."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return None
    name = resolve_name(function) or _name_in_module(function)
    if name is None or any(re.match(r"_(?!_)", part) for part in name.split(".")):
        return None
    return re.sub(r"\.__(get|set|delete)__$", "", name)


def _name_in_module(function: Any) -> str | None:
    """Of a function that `resolve_name` does not know, such as `torch.autograd.grad`."""
    path = f"{getattr(function, '__module__', None) or 'torch'}.{getattr(function, '__name__', '')}"
    root, *parts = path.split(".")
    found: Any = torch if root == "torch" else None
    for part in parts:
        found = getattr(found, part, None)
    return path if found is function else None
