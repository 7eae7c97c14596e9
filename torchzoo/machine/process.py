"""Keep a measuring process from being slow by chance, through its heap and the memory of Python's frames.

**Heap.** glibc returns the free end of its heap to the system once some megabytes are free there. Whether a step's
memory lies at that end is chance. If it does, each step returns its memory and gets it back page by page: 4,600 page
faults a step of a small ResNet in some processes, and 1 in others. `keep_freed` keeps freed memory, as do the
allocators that PyTorch's tuning guide recommends for the CPU. Blocks of more than 32 MiB are mapped and unmapped each
time in every process.

**Frames.** CPython keeps the frames of running functions in chunks of 16 KiB. A call whose frame does not fit into the
rest of a chunk allocates a new chunk and frees it on return. A function at the end of a chunk that calls others pays
for that in each call: about 100 times the usual cost. Which function this is depends on the stack depth at the call, so
some processes are slow and others are not. Code that inductor generates for a GPU is most at risk, because its frame is
large and it calls a Python function for each kernel. `with_room` starts a thread's frames in one large chunk. The
backward pass on an accelerator runs in a thread of PyTorch's, where Python begins a new chunk, as it does for users.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # from malloc.h
_NEVER = -1
_MMAP_BYTES = 32 * 2**20  # the largest value of glibc, which approaches it by itself as blocks are freed


def keep_freed() -> None:
    """Keep freed memory in this process and its forks. Does nothing without glibc, or if the user set up the heap."""
    if _has_glibc() and not is_chosen(os.environ):
        libc = ctypes.CDLL(None)
        libc.mallopt(_TRIM_THRESHOLD, _NEVER)
        libc.mallopt(_MMAP_THRESHOLD, _MMAP_BYTES)


def give_back() -> None:
    """Return the free memory of the heap to the system, once. Does nothing without glibc."""
    if _has_glibc():
        ctypes.CDLL(None).malloc_trim(0)


def is_chosen(variables: Mapping[str, str]) -> bool:
    """Whether environment variables configure the heap: MALLOC_... and GLIBC_TUNABLES (mallopt(3))."""
    return any(name.startswith("MALLOC_") for name in variables) or "malloc" in variables.get("GLIBC_TUNABLES", "")


def described() -> str:
    """The heap's description in records: the library of `malloc` and its settings; empty without glibc."""
    if not _has_glibc():
        return ""
    library = _library_of_malloc()
    if not library.startswith("libc."):  # LD_PRELOAD
        return library
    rule = "as variables set it" if is_chosen(os.environ) else "freed memory is kept"
    return f"glibc {platform.libc_ver()[1]}, {rule}"


class _Symbol(ctypes.Structure):
    """The result of dladdr(3) for an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _library_of_malloc() -> str:
    """The name of the file that has the process's `malloc`: `libc.so.6`, `libjemalloc.so.2`.

    In some interpreters, as Debian's, the process's symbol is a jump to `malloc`. Then the libraries of LD_PRELOAD are
    searched in their order, and the C library after them.
    """
    file = _file_of_malloc(None)
    if ".so" in file.name:
        return file.name
    preloaded = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return next((Path(one).name for one in preloaded if _file_of_malloc(one).name == Path(one).name), "libc.so.6")


def _file_of_malloc(library: str | None) -> Path:
    """The file of the `malloc` that this library finds first; None: the process."""
    opened, found = ctypes.CDLL(library), _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.cast(opened.malloc, ctypes.c_void_p), ctypes.byref(found))
    return Path(os.fsdecode(found.file or b"libc.so.6"))


def _has_glibc() -> bool:
    return sys.platform == "linux" and platform.libc_ver()[0] == "glibc"


#: The 8-byte entries that the first frame requests. The chunk has 1 MiB, the next power of two: 470 KiB are free.
_ENTRIES = 70_000

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _call(function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    return function(*arguments, **keywords)


_call_with_room = FunctionType(_call.__code__.replace(co_stacksize=_ENTRIES), globals())


def with_room(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a function so that the frames of its calls, in its own thread, fit into one chunk."""

    @functools.wraps(function)
    def wrapper(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        result: _Result = _call_with_room(function, arguments, keywords)
        return result

    return wrapper
