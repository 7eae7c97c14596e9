"""AOTInductor: compile the exported network into a package (a file with code and weights), and load the package."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
import torch._inductor
import torch._inductor.cpp_builder
import torch._inductor.exc
from torch import nn
from torch._C._profiler import _RecordFunctionFast
from torch.utils._pytree import (
    SERIALIZED_TYPE_TO_PYTHON_TYPE,
    SUPPORTED_NODES,
    TreeSpec,
    _register_namedtuple,
    is_namedtuple_instance,
    tree_flatten,
    tree_unflatten,
)

from torchzoo.backends import SCRATCH_VARIABLE, NotRunnable
from torchzoo.backends.call import Call
from torchzoo.backends.export import exported_program
from torchzoo.case import Backend

#: The suffix of a package's file with the named tuples that its network takes or returns, a line for each.
NAMED_TUPLES = ".named_tuples"


class PackagedNetwork:
    """A network that runs from its package. The folder with the package lives as long as this object.

    Args:
        program: the loaded program.
        folder: the folder of the package and its unpacked files: GPU kernels are read from there when they first run.
        package_bytes: size of the package.
        compile_s: wall time from torch.export to the package.
        load_s: wall time of loading the package.
    """

    def __init__(
        self,
        program: Callable[..., Any],
        folder: tempfile.TemporaryDirectory[str],
        *,
        package_bytes: int,
        compile_s: float,
        load_s: float,
    ) -> None:
        self.program = program
        self.folder = folder
        self.package_bytes = package_bytes
        self.compile_s = compile_s
        self.load_s = load_s

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _RecordFunctionFast("aoti::run"):  # the profiler sees no fused CPU kernels inside
            return self.program(*args, **kwargs)


def compile_network(network: nn.Module, call: Call, backend: Backend) -> PackagedNetwork:
    """Compile the network ahead of time, with a copy of its weights, for inputs like those of the recorded call."""
    del backend
    folder = tempfile.TemporaryDirectory(
        dir=os.environ.get(SCRATCH_VARIABLE), prefix="aoti-", ignore_cleanup_errors=True
    )
    path = Path(folder.name) / "network.pt2"
    began_s = time.perf_counter()
    make_package(network, call, path)
    compiled_s = time.perf_counter()
    program = load_package(path)
    return PackagedNetwork(
        program,
        folder,
        package_bytes=path.stat().st_size,
        compile_s=compiled_s - began_s,
        load_s=time.perf_counter() - compiled_s,
    )


def make_package(network: nn.Module, call: Call, path: Path) -> None:
    """Compile the network, with a copy of its weights, into a package at `path` (a new file, `*.pt2`).

    Raises:
        NotRunnable: the C++ compiler's results would crash when loaded.
    """
    _require_shared_libstdcxx()
    program = exported_program(network, call)
    found = _named_tuples(program.call_spec.in_spec) | _named_tuples(program.call_spec.out_spec)
    path.with_suffix(NAMED_TUPLES).write_text("\n".join(sorted(map(_register, found))), encoding="utf-8")
    torch._inductor.aoti_compile_and_package(program, package_path=str(path))


def load_package(path: Path) -> Callable[..., Any]:
    """Load the package at `path`, which PyTorch unpacks into a folder beside it, as a function."""
    for named in path.with_suffix(NAMED_TUPLES).read_text(encoding="utf-8").splitlines():
        if named not in SERIALIZED_TYPE_TO_PYTHON_TYPE:
            module, _, name = named.partition(":")
            _register(attrgetter(name)(import_module(module)))
    with _temporary_files_in(str(path.parent)):
        program: Callable[..., Any] = torch._inductor.aoti_load_package(str(path))
    return program


def _named_tuples(structure: TreeSpec | None) -> set[type]:
    """The types of named tuples in the structure of inputs or outputs, at any depth."""
    found: set[type] = set()

    def look(node: Any) -> bool:
        if is_namedtuple_instance(node):
            found.add(type(node))
        return False

    if structure is not None:
        tree_flatten(tree_unflatten([None] * structure.num_leaves, structure), is_leaf=look)
    return found


def _register(named_tuple: type) -> str:
    """Register a named tuple for packages under the returned name, `module:class`, since PyTorch registers none."""
    named = f"{named_tuple.__module__}:{named_tuple.__qualname__}"
    if named_tuple not in SUPPORTED_NODES:
        _register_namedtuple(named_tuple, serialized_type_name=named)
    return named


def _require_shared_libstdcxx() -> None:
    """Raise `NotRunnable` if the C++ compiler finds only libstdc++.a, and links it into the package.

    The process then has libstdc++ twice: `std::regex` crashes or hangs while the package is loaded (g++ 13 without the
    shared library, torch 2.11, CUDA).
    """
    if sys.platform != "linux":
        return
    try:
        compiler = torch._inductor.cpp_builder.get_cpp_compiler()
    except torch._inductor.exc.InvalidCxxCompiler:
        return  # PyTorch reports the missing compiler when it compiles
    asked = [compiler, "-print-file-name=libstdc++.so"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    if not Path(found).is_absolute():
        raise NotRunnable(
            f"{compiler} finds no libstdc++.so and would link it statically, and what it makes then crashes when it is "
            "loaded: let CXX name another compiler, or install libstdc++.so (Debian: libstdc++-13-dev for g++ 13)"
        )


@contextlib.contextmanager
def _temporary_files_in(folder: str) -> Iterator[None]:
    """Make PyTorch's C++ code put temporary files into the folder, so that a killed worker's are removed with it."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
