"""What a run needs of the engine that places its nodes. Ray and Slurm have real ones; tests use fakes."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import msgspec

from torchzoo.errors import TorchzooError
from torchzoo.run.spread import protocol


class EngineError(TorchzooError):
    """The engine can't be used, or has no node for the run. The message is one line that says what to do."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The engine has placed a node, and it can be told something."""

    host: str  # a name for its lanes that no other node has at the same time


class Said(msgspec.Struct, frozen=True, kw_only=True):
    answer: protocol.Answer


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """The engine says that the node is gone, or that its process is."""

    why: str


Event = Joined | Said | Lost


class Nodes(Protocol):
    """Nodes by name. Use as a context: on leaving, no process of the run is left on any of them.

    A node that comes back after it was lost has another name. What a node says after it was lost may still come.
    """

    def tell(self, name: str, request: protocol.Request) -> None:
        """Send a request. If the node is gone, that is an event, not an error."""
        ...

    def wait(self, timeout_s: float) -> list[tuple[str, Event]]:
        """What happened within `timeout_s`, each with the node's name, in its order."""
        ...

    def dismiss(self, name: str) -> None:
        """End a node, if it still runs, and give back what it has."""
        ...

    @property
    def expected(self) -> int:
        """How many nodes the engine may still place. None is placed any more if it is 0."""
        ...

    def __enter__(self) -> Nodes: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...
