"""The work of a step as two numbers, to compare a model here with the program that it is written after."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from torchzoo.measure.passes.moved_bytes import moved_bytes


class CountedWork(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that move bytes (a view moves none), and the bytes that they read and write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators = 0
        self.bytes_moved = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with self:
            taken_apart = func.decompose(*args, **kwargs)
        if taken_apart is not NotImplemented:
            return taken_apart
        result = func(*args, **kwargs)
        moved = moved_bytes(func, args, kwargs, result)
        self.operators += moved > 0
        self.bytes_moved += moved
        return result
