"""Keep and restore the process state that a model's code can change: settings of PyTorch and Python, and the clock.

A model's library may change settings when it is imported, and a model when it is built. The server of
workers (`torchzoo.run.preload`) and every worker restore them, so that the steps of every case have the same state.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar

import torch
from torch.distributions import Distribution

from torchzoo.devices import switches

_Result = TypeVar("_Result")

#: Environment variables that PyTorch, its compilers and its libraries read.
PREFIXES = ("CUBLAS", "CUDA", "CUDNN", "GOMP", "KMP", "MKL", "NCCL", "OMP", "OPENBLAS", "PYTORCH", "TORCH", "TRITON")
ENVIRONMENT = "environment"


@dataclass(frozen=True)
class Setting:
    name: str
    get: Callable[[], Any]
    put: Callable[[Any], object]


def _attribute(name: str, owner: Any, attribute: str) -> Setting:
    return Setting(name, lambda: getattr(owner, attribute), lambda value: setattr(owner, attribute, value))


def _handler(number: signal.Signals) -> Setting:
    return Setting(f"handler of {number.name}", lambda: signal.getsignal(number), lambda v: signal.signal(number, v))


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}


def _put_environment(values: dict[str, str]) -> None:
    for name in _environment().keys() - values.keys():
        del os.environ[name]
    os.environ.update(values)


def _folder() -> str | None:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # the folder was deleted
        return None


def _put_folder(path: str | None) -> None:
    if path is not None:
        os.chdir(path)


SETTINGS = (
    Setting("threads", torch.get_num_threads, torch.set_num_threads),
    Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("default device", torch.get_default_device, torch.set_default_device),
    Setting("gradients", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting("anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    Setting("float32 matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    Setting(
        "deterministic algorithms",
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    *(
        _attribute(f"cudnn.{name}", torch.backends.cudnn, name)
        for name in ("enabled", "benchmark", "deterministic", "allow_tf32")
    ),
    *(Setting(switch.name, switch.get, switch.put) for switch in switches()),
    Setting(
        "checks of distributions' arguments",
        lambda: Distribution._validate_args,
        Distribution.set_default_validate_args,
    ),
    Setting(ENVIRONMENT, _environment, _put_environment),
    Setting("folder", _folder, _put_folder),
    *(
        _attribute(f"time.{name}", time, name)
        for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "time", "sleep")
    ),
    *map(_handler, (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM)),
    Setting("garbage collection", gc.isenabled, lambda value: gc.enable() if value else gc.disable()),
    Setting("garbage collection's thresholds", gc.get_threshold, lambda value: gc.set_threshold(*value)),
    Setting("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Setting("trace function", sys.gettrace, sys.settrace),
    Setting("profile function", sys.getprofile, sys.setprofile),
)


#: By package, the settings that its import changed in the server, which restored them. Workers inherit this.
PUT_BACK_BY_SERVER: dict[str, tuple[str, ...]] = {}


class GlobalState:
    """The settings at the time of construction.

    As a context manager this object watches who sets environment variables. PyTorch's own modules set some when they
    are imported (such as the folder of inductor's cache): these belong to PyTorch's state, and are no change by the
    library that imports PyTorch.
    """

    def __init__(self) -> None:
        self._values = {setting.name: setting.get() for setting in SETTINGS}
        self._putenv = os.putenv

    def __enter__(self) -> Self:
        self._putenv = os.putenv
        os.putenv = self._watched_putenv
        return self

    def __exit__(self, *_: object) -> None:
        os.putenv = self._putenv

    def changes(self) -> tuple[str, ...]:
        """Return the names of the settings that have changed, with the names of environment variables."""
        return tuple(self._told(setting) for setting in self._changed())

    def put_back(self) -> tuple[str, ...]:
        """Restore all settings; return the names of those that had changed."""
        changed = self._changed()
        told = tuple(map(self._told, changed))
        for setting in changed:
            setting.put(self._values[setting.name])
        return told

    def _changed(self) -> list[Setting]:
        return [setting for setting in SETTINGS if setting.get() != self._values[setting.name]]

    def _told(self, setting: Setting) -> str:
        if setting.name != ENVIRONMENT:
            return setting.name
        variables = {name for name, _ in self._values[ENVIRONMENT].items() ^ _environment().items()}
        return f"{setting.name} ({', '.join(sorted(variables))})"

    def _watched_putenv(self, name: Any, value: Any) -> None:
        """`os.putenv`, which `os.environ` calls."""
        self._putenv(name, value)
        if (variable := os.fsdecode(name)).startswith(PREFIXES) and _is_import_of_torch(sys._getframe(1)):
            self._values[ENVIRONMENT] = {**self._values[ENVIRONMENT], variable: os.fsdecode(value)}


def keeping_state(action: Callable[[], _Result]) -> tuple[_Result, tuple[str, ...]]:
    """Call a model's code, and return its result and the names of the settings that it changed, which are restored."""
    with GlobalState() as before:
        result = action()
    return result, before.put_back()


def _is_import_of_torch(frame: FrameType | None) -> bool:
    """Whether PyTorch or Triton set a variable while Python imported them, not for a library that calls them."""
    callers = set()
    while frame is not None and (name := str(frame.f_globals.get("__name__")).partition(".")[0]) != "importlib":
        callers.add(name)
        frame = frame.f_back
    callers -= {"os", "_collections_abc"}  # the methods of os.environ
    return frame is not None and bool(callers) and callers <= {"torch", "triton"}
