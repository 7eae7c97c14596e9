"""The work of a step as two numbers, to compare a model here with the program that it is written after."""

from __future__ import annotations

from typing import Any

from torchzoo.measure.passes.flops import moved_bytes
from torchzoo.model.dispatch import OperatorMode


class CountedWork(OperatorMode):
    """Counts the operators that move bytes (a view moves none), and the bytes that they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0
        self.bytes_moved = 0

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        taken_apart = self.run_parts(func, args, kwargs)
        if taken_apart is not NotImplemented:
            return taken_apart
        result = func(*args, **kwargs)
        moved = moved_bytes(func, args, kwargs, result)
        self.operators += moved > 0
        self.bytes_moved += moved
        return result
