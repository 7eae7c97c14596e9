"""What the fork server does once for all workers: it imports torch, the measuring code, and the models' libraries.

After each library it looks at what a worker would inherit. Settings are put back. A library that changed something else
ends the server, which is then started without it (`torchzoo.run.fork_server`).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import psutil

from torchzoo.devices.generic import Device
from torchzoo.errors import attempt
from torchzoo.measure.global_state import PUT_BACK_BY_SERVER, GlobalState
from torchzoo.run import reaper
from torchzoo.run.fork_server import Loaded
from torchzoo.run.prctl import adopt_orphans, end_with_parent
from torchzoo.run.worker import PRELOAD_VARIABLE, REPORT_VARIABLE

#: What an import has done after which no process of the server can use the device.
USED_ACCELERATOR = "the state of the device"


class Inherited:
    """What workers would inherit: settings, functions of torch, threads, open files, child processes, a used device."""

    def __init__(self) -> None:
        self.settings = GlobalState()
        self._functions = _functions_of_torch()
        self._threads = threading.active_count()
        self._files = _open_files()

    def changes(self) -> tuple[str, ...]:
        """What can't be put back."""
        found = []
        now = _functions_of_torch()
        replaced = [name for name, function in self._functions.items() if now.get(name) is not function]
        found += [name for name in replaced if not _is_torchs(now.get(name))]
        if threading.active_count() != self._threads:
            found.append("the threads")
        if self._files - _open_files():
            found.append("the open files")
        if psutil.Process().children():
            found.append("the processes")
        if _has_used_accelerator():
            found.append(USED_ACCELERATOR)
        return tuple(found)


@contextlib.contextmanager
def no_warnings_of_the_future() -> Iterator[None]:
    """Inside, it is not shown that something will end or change: no user of torchzoo can do anything about that."""
    show = warnings.showwarning

    def show_others(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, (FutureWarning, DeprecationWarning)):
            show(message, category, *place, **more)

    warnings.showwarning = show_others
    try:
        yield
    finally:
        if warnings.showwarning is show_others:  # a library may have put its own there
            warnings.showwarning = show


def load(names: list[str], report: Path | None) -> None:
    """Import libraries, each `module` or `module:attribute`. (Some import a submodule only when its attribute is read.)

    A package is looked at before its modules and their attributes: if it changes something, none of them is tried.
    One that can't be imported must not end the server: the workers of its models report it.
    """
    before = Inherited()
    for library in dict.fromkeys(part for name in names for part in _parts(name)):
        _tell(report, Loaded(library=library))
        module, _, attribute = library.partition(":")
        with before.settings:
            imported = attempt(partial(import_module, module))
            if attribute and not isinstance(imported, Exception):
                attempt(partial(getattr, imported, attribute))
        if put_back := before.settings.put_back():
            package = module.partition(".")[0]
            known = PUT_BACK_BY_SERVER.get(package, ())
            PUT_BACK_BY_SERVER[package] = tuple(dict.fromkeys([*known, *put_back]))
        changed = before.changes()
        # One that uses the device does so for a library of its own, and then the rest of its package does, too.
        culprit = module.partition(".")[0] if USED_ACCELERATOR in changed else library
        _tell(report, Loaded(library=culprit, is_over=True, changed=changed))
        if changed:
            reaper.kill_all(os.getpid())


def _parts(name: str) -> list[str]:
    """Of `a.b:c`: `a`, `a.b` and `a.b:c`."""
    module, _, attribute = name.partition(":")
    modules = list(accumulate(module.split("."), "{}.{}".format))
    return [*modules, name] if attribute else modules


def _tell(report: Path | None, line: Loaded) -> None:
    with contextlib.suppress(OSError):  # the disk is full: then nobody knows which library ended the server
        if report is not None and report.exists():  # not there any more: a server that was started again
            with report.open("ab", buffering=0) as file:
                file.write(msgspec.json.encode(line) + b"\n")


def _functions_of_torch() -> dict[str, object]:
    """What stands under the names that models call. A library that replaces one changes it for all models."""
    import torch

    places = {"torch": torch, "torch.nn.functional": torch.nn.functional, "torch.Tensor": torch.Tensor}
    return {
        f"{place}.{name}": function
        for place, holder in places.items()
        for name in dir(holder)
        if not name.startswith("__") and callable(function := getattr(holder, name))
    }


def _is_torchs(function: object) -> bool:
    """Whether PyTorch itself put it there, as Dynamo does when it is imported."""
    return str(getattr(function, "__module__", "")).partition(".")[0] == "torch"


def _has_used_accelerator() -> bool:
    """Whether something in this process has used the device: CUDA can't be used in its forks then."""
    return Device.is_in_use()


def _open_files() -> set[str]:
    files = Path("/proc/self/fd")
    return {file.name for file in files.iterdir()} if files.is_dir() else set()


def _end_workers() -> None:
    """When the server ends, all that descends from it ends."""
    if os.getpid() == _server:
        gc.unfreeze()  # what is frozen when Python ends looks like a leak to libraries that look for leaks
        for pid in reaper.descendants(_server):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


_server = os.getpid()
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal: the runner ends the others
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked until here, see `interrupts.sigint_blocked`
os.dup2(2, 1)  # standard output is the run's: what libraries print is none of its results
adopt_orphans()  # processes that their worker leaves behind become children of this one, and are found
end_with_parent()  # while it imports, it can't see that the runner is gone; later it can, and ends its workers then
warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")  # of those

_report = os.environ.get(REPORT_VARIABLE)
with no_warnings_of_the_future():
    load(list(filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(","))), Path(_report) if _report else None)

# Inductor's and Triton's own source files are part of the keys of their caches. Each process would read them all.
if "torch._inductor.async_compile" in sys.modules:
    from torch._inductor.codecache import torch_key
    from torch._inductor.runtime.triton_compat import HAS_TRITON, triton_key

    attempt(torch_key)
    if HAS_TRITON:
        attempt(triton_key)

# The garbage collector of a worker need not look at what the server has loaded, nor copy its pages.
gc.collect()
gc.freeze()
atexit.register(_end_workers)
end_with_parent(ends=False)
