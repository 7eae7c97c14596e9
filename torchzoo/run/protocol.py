"""Messages between the runner, its servers and their processes: JSON, a line each.

A process tells stages, figures and its outcome. Its server passes these lines on as they are, and the runner decodes
them. What can't be read again can't be sent.
"""

from __future__ import annotations

from typing import Any

import msgspec

from torchzoo.bounds import LimitSeconds
from torchzoo.files import to_json
from torchzoo.record import Outcome
from torchzoo.run.workers import Timed
from torchzoo.settings import Stage

# --- requests of the runner to a server ---


class Load(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Import torch and libraries. The answers are `Loading` and `Loaded` for each, then `Ready`."""

    libraries: tuple[str, ...]  # each `module` or `module:attribute`
    paths: tuple[str, ...]  # where Python looks for modules; empty: in its own places


class Start(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Start a process that calls a function with an argument and its connection. The answer is `Started`."""

    ticket: int  # by which later messages name the process
    function: str  # `module:function`
    argument: msgspec.Raw
    scratch: str = ""  # a folder that is removed when the process has ended
    fresh_log: str = ""  # start a new interpreter, which prints into this file; empty: fork the server


class Proceed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Let a worker that waits begin this stage. The server passes the line on to the worker."""

    ticket: int
    stage: Stage
    limit_s: LimitSeconds | None = None  # of timing, from the run's budget; None: that of the settings


class Pause(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Stop a process with its process group. The answer is `Done`."""

    ticket: int


class Resume(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Continue a process with its process group."""

    ticket: int


class WriteStacks(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Let a worker and its ranks write into its log what they do."""

    ticket: int
    log: str


class Kill(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Kill a process with all that it has started, and remove its scratch folder. The answer is `Done`."""

    ticket: int


Request = Load | Start | Proceed | Pause | Resume | WriteStacks | Kill

# --- answers of a server ---


class Loading(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    library: str


class Loaded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    library: str
    changed: tuple[str, ...] = ()  # by its import, for everything that runs later; it can't be put back


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Processes can be started."""


class Started(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    ticket: int
    pid: int


class Done(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A `Pause` or a `Kill` was carried out."""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request can't be carried out: one line that says why."""

    message: str


class Said(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A line that a process has sent."""

    ticket: int
    line: msgspec.Raw


class Unreadable(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A process has sent what is no JSON. Nothing that comes after it is read."""

    ticket: int
    what: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A process has ended: its exit code, negative for a signal. There are no further messages of it."""

    ticket: int
    code: int
    with_server: bool = False  # since its server has ended


Answer = Loading | Loaded | Ready | Started | Done | Refused | Said | Unreadable | Ended

# --- questions: a process of the server calls a function, and tells what it returned ---


class Question(msgspec.Struct, frozen=True, kw_only=True):
    function: str  # `module:function`
    arguments: tuple[Any, ...]


class Told(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    result: Any


class CanNotTell(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    message: str


# --- lines ---

requests: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Request)
answers: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Answer)
of_worker: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Stage | Outcome | Timed)
of_question: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Told | CanNotTell)
#: Of a line whose content the reader passes on.
any_line: msgspec.json.Decoder[Any] = msgspec.json.Decoder(msgspec.Raw)


def encode(message: Stage | Outcome | Timed) -> bytes:
    """Return the line of a worker's message.

    Raises:
        ValueError: it could not be read again; the text says which field is wrong.
    """
    line = to_json(message)
    of_worker.decode(line)
    return line + b"\n"
