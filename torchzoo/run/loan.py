"""Lending device memory: what a worker says of it to its runner.

Cases that are checked lend. Where nothing is checked, it takes less time to keep the memory (`benchmarks/replay.py`).
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from threading import Semaphore
from typing import TYPE_CHECKING

from torchzoo.run import messages
from torchzoo.run.workers import Asks, Lends

if TYPE_CHECKING:
    from torchzoo.measure.lending import Lending


def lending_to(connection: Connection, go: Semaphore) -> Lending:
    """Lending to the runner at the other end of the connection, which raises `go` when memory comes back."""
    from torchzoo.measure.lending import Lending

    def lend(held_bytes: int, peak_bytes: int) -> None:
        messages.send(connection, messages.encode(Lends(held_bytes=held_bytes, peak_bytes=peak_bytes)))

    def take_back() -> None:
        messages.send(connection, messages.encode(Asks()))
        go.acquire()

    return Lending(lend, take_back)
