"""SIGINT and SIGTERM, noted instead of raised where an exception would leave a process that nobody knows of."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Interrupts:
    """SIGINT and SIGTERM do not raise inside this context. From then on, there is something to read from `noted`."""

    def __init__(self) -> None:
        self.noted, self._note = multiprocessing.Pipe(duplex=False)
        self._before: dict[signal.Signals, Any] = {}

    @property
    def came(self) -> bool:
        return self.noted.poll()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is not threading.main_thread():  # no signal reaches another one
            return self
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def _on_signal(self, *_: object) -> None:
        if not self.came:  # one byte is enough, and a full pipe would block
            self._note.send_bytes(b"")

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: workers are killed, records are kept, temporary folders are removed."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
