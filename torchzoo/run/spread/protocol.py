"""What a run's controller and its nodes tell each other: lines of JSON, whatever carries them.

A node is a host, or the part of one that was allocated. The controller owns the run's folder.
"""

from __future__ import annotations

from typing import Any

import msgspec

from torchzoo.case import Backend, Case
from torchzoo.files import to_json
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import Record
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.spec import ModelSpec

#: A node that runs says something at least so often.
ALIVE_EVERY_S = 5.0

# --- what the controller tells a node ---


class Prepare(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Load torch and the libraries of these models and backends. The answer is `Prepared`."""

    models: tuple[ModelSpec, ...]
    backends: tuple[Backend, ...]
    import_limit_s: float
    models_root: str  # where the controller has the zoo's own folders; a node may have them elsewhere


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From now on there will be leases. The answer is `Begun`.

    `settings.jobs` and `settings.compile_threads` are not used: they follow from `jobs` and from the node's cores.
    """

    host: str  # the node's name in the run
    settings: Settings
    jobs: int | None
    cases: int  # of the whole run: a node needs no more jobs
    devices: tuple[str, ...]
    device_indices: tuple[int, ...] | None
    worlds: tuple[int, ...]


class Lease(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run these cases, too."""

    cases: Plan


Request = Prepare | Begin | Lease

# --- what a node tells the controller ---


class Prepared(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    machine: MachineInfo
    missing: dict[str, str]  # as `resources.missing` gives it


class Begun(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    lanes: tuple[Lane, ...]
    most_alive: int  # so many cases the node works on at once
    settings: Settings  # with the node's jobs
    undisturbed_loop_s: float


class Entered(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker begins a stage."""

    case: Case
    lane: Lane
    stage: Stage


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    record: Record
    log: str  # the end of what the worker printed


class Alive(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """There is nothing else to say."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The node can't go on: one line that says why."""

    message: str


Answer = Prepared | Begun | Entered | Finished | Alive | Refused

_requests: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Request)
_answers: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Answer)


def line_of(message: Request | Answer) -> bytes:
    """The line of a message."""
    return to_json(message) + b"\n"


def request_decoder() -> msgspec.json.Decoder[Request]:
    """Of lines that a node reads."""
    return _requests


def answer_of(line: bytes) -> Answer:
    """What a node's line says.

    Raises:
        msgspec.MsgspecError: it is no answer.
    """
    answer: Answer = _answers.decode(line)
    return answer
