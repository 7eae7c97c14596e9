"""Load libraries into the server, and prove that each leaves everything else as it was.

After each library, the server looks at what a worker would inherit. Settings are put back. Where a library changed
something else, the runner starts a new server without it.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil

from torchzoo.devices import accelerator_is_in_use
from torchzoo.errors import attempt
from torchzoo.measure.global_state import PUT_BACK_BY_SERVER, GlobalState
from torchzoo.run import worker  # noqa: F401  each worker finds it loaded
from torchzoo.run.protocol import Loaded, Loading

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
        """Return what can't be put back."""
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
        if accelerator_is_in_use():
            found.append(USED_ACCELERATOR)
        return tuple(found)


@contextlib.contextmanager
def no_warnings_of_the_future() -> Iterator[None]:
    """Hide warnings that something will end or change: no user of torchzoo can do anything about that."""
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


def load(names: Sequence[str], tell: Callable[[Loading | Loaded], None]) -> bool:
    """Import libraries, each `module` or `module:attribute`. (Some import a submodule only when its attribute is read.)

    A package is looked at before its modules and their attributes: if it changes something, none of them is tried. A
    library that can't be imported is no problem here: the workers of its models report it.

    Args:
        names: the libraries.
        tell: is told of each import before and after it.

    Returns:
        Whether processes may be forked: no library has changed anything that can't be put back.
    """
    before = Inherited()
    for library in dict.fromkeys(part for name in names for part in _parts(name)):
        tell(Loading(library=library))
        module, _, attribute = library.partition(":")
        with before.settings, no_warnings_of_the_future():
            imported = attempt(partial(import_module, module))
            if attribute and not isinstance(imported, Exception):
                attempt(partial(getattr, imported, attribute))
        package = module.partition(".")[0]
        if put_back := before.settings.put_back():
            known = PUT_BACK_BY_SERVER.get(package, ())
            PUT_BACK_BY_SERVER[package] = tuple(dict.fromkeys([*known, *put_back]))
        changed = before.changes()
        # A module that uses the device does so for a library of its own, and then the rest of its package does, too.
        tell(Loaded(library=package if USED_ACCELERATOR in changed else library, changed=changed))
        if changed:
            return False
    _read_keys_of_caches()
    # The garbage collector of a worker need not look at what the server has loaded, nor copy its pages.
    gc.collect()
    gc.freeze()
    return True


def _read_keys_of_caches() -> None:
    """Let inductor and Triton read their own source files, parts of the keys of their caches, once for all workers."""
    if "torch._inductor.async_compile" in sys.modules:
        from torch._inductor.codecache import torch_key
        from torch._inductor.runtime.triton_compat import HAS_TRITON, triton_key

        attempt(torch_key)
        if HAS_TRITON:
            attempt(triton_key)


def _parts(name: str) -> list[str]:
    """Of `a.b:c`: `a`, `a.b` and `a.b:c`."""
    module, _, attribute = name.partition(":")
    modules = list(accumulate(module.split("."), "{}.{}".format))
    return [*modules, name] if attribute else modules


def _functions_of_torch() -> dict[str, object]:
    """Return what models call, by name. A library that replaces a function changes it for all models."""
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


def _open_files() -> set[str]:
    files = Path("/proc/self/fd")
    return {file.name for file in files.iterdir()} if files.is_dir() else set()
