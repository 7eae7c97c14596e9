"""Fresh processes that answer at once, in place of those of a server."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from examples import FACTS
from torchzoo.files import to_json
from torchzoo.measure.fresh_turns import Ask
from torchzoo.record import Failed, Took
from torchzoo.run import protocol
from torchzoo.run.pool import Pool


class FakeTurns:
    """Notes what fresh processes are asked.

    Args:
        monkeypatch: replaces the processes.
        answer: the result of a process.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Ask], Took | Failed]) -> None:
        self.asked: list[Ask] = []
        self.found_in_caches: list[list[str]] = []

        def start(pool: Pool, ticket: int, function: str, argument: bytes, scratch: str, fresh_log: str) -> None:
            assert function == "torchzoo.run.fresh:work"
            assert fresh_log
            ask = msgspec.json.decode(argument, type=Ask)
            assert ask.scratch == scratch
            self.asked.append(ask)
            self.found_in_caches.append(sorted(path.name for path in Path(ask.caches).iterdir()))
            (Path(ask.caches) / ask.function).touch()
            line = msgspec.Raw(to_json(answer(ask)))
            pool._said += [protocol.Said(ticket=ticket, line=line), protocol.Ended(ticket=ticket, code=0)]
            pool._scratch[ticket] = scratch

        def kill(pool: Pool, ticket: int) -> None:
            shutil.rmtree(pool._scratch.pop(ticket))

        monkeypatch.setattr(Pool, "start", start)
        monkeypatch.setattr(Pool, "kill", kill)
        monkeypatch.setattr(Pool, "machine_info", lambda _: FACTS)
        monkeypatch.setattr(Pool, "missing", lambda *_: {})
