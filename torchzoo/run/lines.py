"""Lines of JSON between processes.

Nobody waits for more than is there, so that a process that writes half a line, or nonsense, costs only its own case.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Generic, TypeVar

import msgspec

#: A line with more bytes than this is no message: the largest outcomes have some MB.
LONGEST_LINE = 256 * 2**20

_Kind = TypeVar("_Kind")


class Garbled(msgspec.Struct, frozen=True, tag=True):
    """A process sent what is no message. Nothing that comes after it is read."""

    what: str


def function_named(text: str) -> Callable[..., Any]:
    """Return the function that a message names as `module:function`."""
    module, _, name = text.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


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
        self.file = file
        self._decoder = decoder
        self._unread = bytearray()
        self.is_open = True
        os.set_blocking(self.file, False)

    def read(self) -> list[_Kind | Garbled]:
        """Return the messages since the last call. After one that can't be read there are no more."""
        while self.is_open:
            try:
                came = os.read(self.file, 2**20)
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
            message = decoded(line, self._decoder)
            messages.append(message)
            if isinstance(message, Garbled):
                self.is_open = False
                self._unread.clear()
                break
        return messages


def decoded(line: bytes | bytearray | msgspec.Raw, decoder: msgspec.json.Decoder[_Kind]) -> _Kind | Garbled:
    """Return the message in a line."""
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return Garbled(f"it sent what is no message: {str(error)[:100]}")
