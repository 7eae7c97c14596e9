"""What a task of the Slurm job does: it starts a node's process, and passes lines on by the shared folder."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchzoo.run.spread import protocol
from torchzoo.run.spread.mailbox import CONTROLLER, Hello, Inbox, Outbox, line_of_hello
from torchzoo.run.spread.relay import Relay, node_environment

LOOK_EVERY_S = 1.0
#: The controller writes its sign of life every few seconds; a network's file system may show it a minute later.
CONTROLLER_SILENCE_S = 180.0


class NodeTask:
    """The function that submitit runs. It keeps nothing: when Slurm requeues the task, a new node joins the run.

    Args:
        folder: shared with the controller.
        number: of the task.
        variables: the controller's environment variables.
        prefixes: see `relay.node_environment`.
        root: likewise.
    """

    def __init__(
        self, folder: Path, number: int, variables: Mapping[str, str], prefixes: Sequence[str], root: str
    ) -> None:
        self.folder = folder
        self.number = number
        self.variables = dict(variables)
        self.prefixes = tuple(prefixes)
        self.root = root

    def __call__(self) -> None:
        signal.signal(signal.SIGTERM, _leave)  # as `scancel` sends it; submitit would ignore it
        name = f"{self.number}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"
        relay = Relay(node_environment(os.environ, self.variables, self.prefixes, self.root))
        try:
            carry(relay, self.folder, name, os.environ.get("SLURMD_NODENAME", os.uname().nodename))
        finally:
            relay.end()

    def checkpoint(self) -> Any:
        """What submitit submits again before the task is preempted or its time is over: the same."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def carry(relay: Relay, folder: Path, name: str, host: str) -> None:
    """Pass lines on until the node has ended or the controller is gone."""
    inbox, outbox = Inbox(folder / f"{name}.in"), Outbox(folder / f"{name}.out")
    outbox.write(line_of_hello(Hello(host=host)))
    sign, changed_s = b"", time.monotonic()
    while True:
        lines, ended = relay.said(LOOK_EVERY_S)
        if lines:
            outbox.write(b"".join(lines))
        if ended is not None:
            outbox.write(protocol.line_of(protocol.Refused(message=ended)))
            return
        if told := inbox.lines():
            relay.tell(b"".join(told))
        now_s = time.monotonic()
        if (seen := _read(folder / CONTROLLER)) != sign:
            sign, changed_s = seen, now_s
        elif now_s - changed_s > CONTROLLER_SILENCE_S:
            return


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # not there, or the file system is away for a moment
        return b""


def _leave(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)
