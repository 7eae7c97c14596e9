"""Device memory that a worker does not use while it compiles or waits, and lends to other workers of its device.

While Dynamo traces and its compilers work, a model has its weights on the device, and nothing else. A worker says so to
its runner, which starts others beside it (`torchzoo.run.room`), and it asks before its step goes on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch._dynamo.callback import CallbackArgs

#: Memory is lent while the first compilations last: there are few long ones, and each time the step may have to wait.
COMPILATIONS = 4
#: Dynamo's names for tracing a function, and for compiling the backward pass of one. What else it calls a compilation
#: happens in the middle of a step, which needs its memory.
_OF_GRAPHS = ("DYNAMO", "LAZY_BACKWARD")


class Lending:
    """Lends memory of the device that this process uses, and takes it back.

    Args:
        lend: tells the runner how many bytes PyTorch's allocator holds now, and how many it held at most. Without it,
            nothing is ever lent.
        take_back: returns when the memory may be used again.
    """

    def __init__(
        self, lend: Callable[[int, int], object] | None = None, take_back: Callable[[], object] = lambda: None
    ) -> None:
        self._lend, self._take_back = lend, take_back
        self._is_lent = False
        self._peak_bytes = 0
        self._compilations = 0
        self.waited_s = 0.0  # how long lending and taking back have held compilations up

    def lend(self) -> None:
        """Give what the allocator only keeps back to the device, and say how much is left."""
        if self._lend is None:
            return
        try:
            self._peak_bytes = max(self._peak_bytes, torch.accelerator.max_memory_reserved())
        except RuntimeError:
            return
        if not self._peak_bytes:  # the allocator does not count, so nobody knows what can be lent
            return
        torch.accelerator.empty_cache()
        self._lend(torch.accelerator.memory_reserved(), self._peak_bytes)
        self._is_lent = True

    def returned(self) -> None:
        """Note that the runner gave the memory back by itself, for the window."""
        self._is_lent = False

    def take_back(self) -> None:
        """Wait until what was lent may be used again."""
        if self._is_lent:
            self._is_lent = False
            self._take_back()

    @contextlib.contextmanager
    def while_compiling(self) -> Iterator[None]:
        """Lend whenever Dynamo compiles a graph."""
        if self._lend is None:
            yield
            return
        from torch._dynamo.callback import callback_handler

        self._compilations = 0
        callback_handler.register_start_callback(self._compilation_begins)
        callback_handler.register_end_callback(self._compilation_ends)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # `torch._dynamo.reset` has removed them
                callback_handler.remove_start_callback(self._compilation_begins)
                callback_handler.remove_end_callback(self._compilation_ends)

    def _compilation_begins(self, of: CallbackArgs) -> None:
        if of.callback_trigger.name in _OF_GRAPHS and self._compilations < COMPILATIONS:
            self._compilations += 1
            self._held_up(self.lend)

    def _compilation_ends(self, _: CallbackArgs) -> None:
        self._held_up(self.take_back)

    def _held_up(self, by: Callable[[], None]) -> None:
        began = time.perf_counter()
        by()
        self.waited_s += time.perf_counter() - began
