"""Lines between a run's controller and its nodes in a shared folder, where there is no other connection.

For each node there are two files, `NAME.in` and `NAME.out`. Each has one writer, which only appends: the controller
writes the first, the node the second. So nothing needs a lock, and an outcome stays there if the controller is gone.
`controller` is written anew all the while: when its content no longer changes, the controller is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from torchzoo.record import Record
from torchzoo.run.spread import protocol
from torchzoo.store import StoreError, read_run

CONTROLLER = "controller"


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a node: where Slurm has placed it."""

    host: str


def line_of_hello(hello: Hello) -> bytes:
    """The line of a hello."""
    return msgspec.json.encode(hello) + b"\n"


class Outbox:
    """Appends lines to a file that another host reads."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, lines: bytes) -> None:
        with self._path.open("ab") as file:  # opened each time: closing makes a network's file system send it
            file.write(lines)


class Inbox:
    """Reads whole lines that another host appends to a file. The file may not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def lines(self) -> list[bytes]:
        """The lines that have come since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                came = file.read()
        except FileNotFoundError:
            return []
        whole = came[: came.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.splitlines(keepends=True)


def recovered(run: Path) -> Iterator[Record]:
    """The records that nodes told of cases that have none, in a run whose controller was gone by then."""
    boxes = sorted(run.glob("nodes/*/*.out"))
    if not boxes:
        return
    with contextlib.suppress(StoreError):  # whoever reads the run next says what is wrong with it
        found = read_run(run)
        without = set(found.manifest.cases) - found.finished
        for box in boxes:
            for line in Inbox(box).lines():
                answer = _answer_of(line)
                if isinstance(answer, protocol.Finished) and answer.record.case in without:
                    without.remove(answer.record.case)
                    yield answer.record


def _answer_of(line: bytes) -> protocol.Answer | None:
    try:
        return protocol.answer_of(line)
    except (msgspec.MsgspecError, ValueError):  # a node was killed while it wrote
        return None
