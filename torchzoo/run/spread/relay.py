"""Starts a node's process on the host where an engine has placed it, and passes lines on.

Ray sends this file to its workers by value: it uses the standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

#: What says which devices were allocated comes from the host.
OF_THE_HOST = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
END_S = 20.0  # so long a node may take to end its workers


def node_environment(
    here: Mapping[str, str], controllers: Mapping[str, str], prefixes: Sequence[str], root: str
) -> dict[str, str]:
    """The environment variables of a node's process.

    Those that change how PyTorch computes are the controller's, as if the run were on its machine. Engines set some of
    them, such as the number of threads.

    Args:
        here: the variables on the node's host.
        controllers: the controller's.
        prefixes: how the names of those begin that change how PyTorch computes.
        root: where the controller has torchzoo. If the host has this folder, it has the same torchzoo.
    """

    def is_controllers(name: str) -> bool:
        return name.startswith(tuple(prefixes)) and name not in OF_THE_HOST

    found = {name: value for name, value in here.items() if not is_controllers(name)}
    found |= {name: value for name, value in controllers.items() if is_controllers(name)}
    if os.path.isdir(root):  # noqa: PTH112
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [root, found.get("PYTHONPATH")]))
    return found


class Relay:
    """A node's process. It ends with the process that made it, however that ends.

    Args:
        variables: all of its environment variables.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "torchzoo.run.spread.node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(variables),
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._is_open = True
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def tell(self, lines: bytes) -> None:
        """Pass lines on to the node. If it is gone, `said` will say so."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(lines)
            self._process.stdin.flush()

    def said(self, timeout_s: float) -> tuple[list[bytes], str | None]:
        """The lines that the node has said, waited for at most so long; and how it ended, if it has."""
        lines: list[bytes] = []
        while self._is_open:
            try:
                line = self._lines.get(timeout=0.0 if lines else timeout_s)
            except queue.Empty:
                return lines, None
            if line is None:
                self._is_open = False
            else:
                lines.append(line)
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            return lines, "its process can't be heard any more"
        return lines, f"its process ended by signal {-code}" if code < 0 else f"its process ended with status {code}"

    def end(self) -> None:
        """End the node's process and its workers."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its reaper ends its workers


class HostRelay(Relay):
    """A node's process with the variables of `node_environment`."""

    def __init__(self, controllers: Mapping[str, str], prefixes: Sequence[str], root: str) -> None:
        super().__init__(node_environment(os.environ, controllers, prefixes, root))
