"""What a worker tells its runner, in lines of JSON: a stage that begins, figures, the outcome.

The runner reads what is there and never waits for more, so that a worker that writes half a line, or nonsense, costs
only its own case. What can't be read again can't be sent.
"""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

import msgspec

from torchzoo.files import to_json
from torchzoo.record import Outcome
from torchzoo.run.workers import Garbled, Timed
from torchzoo.settings import Stage

#: A line with more bytes than this is no message: the largest outcomes have some MB.
LONGEST_LINE = 256 * 2**20

_Kind = TypeVar("_Kind")
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Stage | Outcome | Timed)


def encode(message: Stage | Outcome | Timed) -> bytes:
    """The line of a message.

    Raises:
        ValueError: it could not be read again; the text says which field is wrong.
    """
    line = to_json(message)
    _decoder.decode(line)
    return line + b"\n"


def send(connection: Connection, line: bytes) -> None:
    """Write a line of `encode`, whole."""
    write_line(connection.fileno(), line)


def write_line(file: int, line: bytes) -> None:
    """Write a line to a file descriptor that waits, whole."""
    while line:
        line = line[os.write(file, line) :]


class LineReader(Generic[_Kind]):
    """Reads lines of JSON from a file descriptor, without waiting.

    Args:
        file: of a pipe or a socket.
        decoder: of a line.
    """

    def __init__(self, file: int, decoder: msgspec.json.Decoder[_Kind]) -> None:
        self._file = file
        self._decoder = decoder
        self._unread = bytearray()
        self.is_open = True
        os.set_blocking(self._file, False)

    def read(self) -> list[_Kind | Garbled]:
        """The messages that have come since the last call. After one that can't be read there are no more."""
        while self.is_open:
            try:
                came = os.read(self._file, 2**20)
            except BlockingIOError:
                break
            except OSError:
                came = b""
            self._unread += came
            self.is_open = bool(came) and len(self._unread) <= LONGEST_LINE
            if came and not self.is_open:
                return [Garbled(f"it sent {len(self._unread)} bytes without the end of a line")]
        *lines, rest = self._unread.split(b"\n")
        self._unread = rest
        messages: list[_Kind | Garbled] = []
        for line in lines:
            try:
                messages.append(self._decoder.decode(line))
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                self.is_open = False
                self._unread.clear()
                return [*messages, Garbled(f"it sent what is no message: {str(error)[:100]}")]
        return messages


class Reader(LineReader[Stage | Outcome | Timed]):
    """Reads what a worker tells its runner over a connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.fileno(), _decoder)
