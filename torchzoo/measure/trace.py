"""PyTorch's structured trace of what compilation does, as `tlparse` reads it, and where Dynamo's minifier writes."""

from __future__ import annotations

import logging
from pathlib import Path

import torch._dynamo.config
import torch._logging._internal as torch_logs

#: PyTorch's logger of the trace. It takes part in compilation only: steps that are compiled already write nothing.
_LOGGER = logging.getLogger("torch.__trace")


class _File(logging.FileHandler):
    """A trace of ours."""


class StructuredTrace:
    """Writes the trace into a file, in addition to what TORCH_TRACE asks for. The file is made by the first entry.

    (PyTorch reads TORCH_TRACE when it is imported. Workers are forked from a process that has imported it.)
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.path = folder / f"dedicated_log_torch_trace_rank_{rank}.log"  # names of files that tlparse looks for
        self._handler = _File(self.path, delay=True, encoding="utf-8")
        self._handler.setFormatter(torch_logs.TorchLogsFormatter(trace=True))

    def start(self) -> None:
        """Begin to write. What the minifier writes, if TORCHDYNAMO_REPRO_AFTER asks for it, goes to the same folder."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _LOGGER.addHandler(self._handler)
        if torch._dynamo.config.repro_after is not None:
            torch._dynamo.config.debug_dir_root = str(self.path.parent)

    def stop(self) -> None:
        """Write no more."""
        _LOGGER.removeHandler(self._handler)
        self._handler.close()


def is_traced() -> bool:
    """Whether a structured trace is written in this process, by `StructuredTrace` or for TORCH_TRACE.

    Compiling takes longer then. (PyTorch's own handler is always there at first. Without TORCH_TRACE it has no folder.)
    """
    return any(
        isinstance(handler, _File) or getattr(handler, "root_dir", None) is not None for handler in _LOGGER.handlers
    )
