"""Write PyTorch's structured trace of compilation, for `tlparse`, and choose the folder of Dynamo's minifier."""

from __future__ import annotations

import logging
from pathlib import Path

import torch._dynamo.config
import torch._logging._internal as torch_logs

#: PyTorch's logger of the trace, which takes part in compilation only: compiled steps write nothing.
_LOGGER = logging.getLogger("torch.__trace")


class _File(logging.FileHandler):
    """A trace file of torchzoo, as opposed to that of TORCH_TRACE."""


class StructuredTrace:
    """Write the trace into a file, in addition to that of TORCH_TRACE. The first entry creates the file.

    (PyTorch reads TORCH_TRACE when it is imported. Workers are forked from a process that has imported it.)
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.path = folder / f"dedicated_log_torch_trace_rank_{rank}.log"  # names of files that tlparse looks for
        self._handler = _File(self.path, delay=True, encoding="utf-8")
        self._handler.setFormatter(torch_logs.TorchLogsFormatter(trace=True))

    def start(self) -> None:
        """Begin to write. The minifier, if TORCHDYNAMO_REPRO_AFTER enables it, writes to the same folder."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _LOGGER.addHandler(self._handler)
        if torch._dynamo.config.repro_after is not None:
            torch._dynamo.config.debug_dir_root = str(self.path.parent)

    def stop(self) -> None:
        """Stop writing."""
        _LOGGER.removeHandler(self._handler)
        self._handler.close()


def is_traced() -> bool:
    """Whether a structured trace is written in this process, by `StructuredTrace` or for TORCH_TRACE.

    Compiling takes longer then. (PyTorch's own handler is always there; without TORCH_TRACE it has no folder.)
    """
    return any(
        isinstance(handler, _File) or getattr(handler, "root_dir", None) is not None for handler in _LOGGER.handlers
    )
