"""Which tests run: `gpu` ones where there is a CUDA device, all of them in one worker; and what all tests share.

The other markers are those that pyproject.toml leaves out, unless `-m` is given.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: threads that wait for busy cores only spin

# Inductor tries out each vector instruction set by compiling a program into every cold cache: 9 of the 15 seconds that
# a small model takes. The tests trust /proc/cpuinfo instead, as inductor does when it is told so.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# Inductor's cache does not know for which instructions its kernels were compiled. With ATEN_CPU_CAPABILITY, those of
# another session compute garbage.
if "TORCHINDUCTOR_CACHE_DIR" not in os.environ:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="torchzoo-inductor-")
    atexit.register(shutil.rmtree, os.environ["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)

# The C library asks for pages of 2 MB, where the kernel gives them on demand. A GB that is touched for the first time
# takes a third of the time then. This reaches the workers of `-n`, which start after this line, and not this process.
os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from torchzoo.zoo.folders import make_shared_importable

make_shared_importable()  # tests import `torchzoo_models._shared`

# A shell starts what runs in the background with Ctrl-C ignored, and whatever that starts ignores it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of this test's own for temporary files, with a path short enough for a socket's."""
    with tempfile.TemporaryDirectory(prefix="tz-", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


class TextFile(SingleFileSnapshotExtension):
    """A file of text for each snapshot, so that a diff shows which document changed."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def snapshot(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(TextFile)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """A group of tests is one worker's. pytest-xdist keeps groups by ending their tests' names with `@group`."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    for item in session.items:
        for mark in item.iter_markers("xdist_group"):
            if not item.nodeid.endswith(f"@{mark.args[0]}"):
                raise pytest.UsageError(
                    f"pytest {pytest.__version__} and this pytest-xdist do not keep groups of tests together: "
                    "install the versions of constraints.txt"
                )


@pytest.fixture(autouse=True)
def _gpu_memory_is_given_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test on a GPU has freed is there for other processes, too."""
    yield
    if request.node.get_closest_marker("gpu"):
        import torch

        gc.collect()
        torch.cuda.empty_cache()


@pytest.fixture(autouse=True)
def _distributions_check_their_arguments() -> None:
    """Also after a test that compiled something: `torch.compile` ends these checks for the whole process."""
    from torch.distributions import Distribution

    Distribution.set_default_validate_args(__debug__)


@pytest.fixture(autouse=True)
def _torch_has_its_own_functions() -> None:
    """torch_geometric replaces two of them, and effdet can't script what it puts there."""
    import torch

    if replacing := sys.modules.get("torch_geometric.hash_tensor"):
        torch.index_select, torch.select = replacing._old_index_select, replacing._old_select


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import torch

    for item in items:
        if item.get_closest_marker("gpu"):
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
            elif not item.get_closest_marker("xdist_group"):
                # One after another: the largest models fill the device, and other work on it changes times.
                item.add_marker(pytest.mark.xdist_group("gpu"))
