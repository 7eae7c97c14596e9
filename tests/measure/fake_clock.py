"""A clock that only the steps of a test move."""

from __future__ import annotations

from collections.abc import Callable

from torchzoo.measure.variant import Variant


class FakeClock:
    """Steps move it forward. The device work of a step is done only when someone synchronises."""

    is_asynchronous = True

    def __init__(self) -> None:
        self.time_ns = 0
        self.pending_ns = 0
        self.synchronisations = 0

    def now_ns(self) -> int:
        return self.time_ns

    def synchronize(self) -> None:
        self.synchronisations += 1
        self.time_ns += self.pending_ns
        self.pending_ns = 0

    def mark(self) -> int:
        return self.time_ns + self.pending_ns

    def device_time_s(self, began: int, ended: int) -> float:
        return (ended - began) / 1e9

    def variant(self, name: str, seconds: Callable[[], float], selected: list[str] | None = None) -> Variant:
        def step() -> None:
            self.pending_ns += round(seconds() * 1e9)

        return Variant(name=name, step=step, select=lambda: None if selected is None else selected.append(name))
