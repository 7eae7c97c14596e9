"""The backend `aoti`: what is packed, where the package lies, and what the record keeps of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from measuring import measure
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from torchzoo.backends import SCRATCH_VARIABLE, NotRunnable
from torchzoo.backends.aoti import compile_network, make_package
from torchzoo.backends.call import Call
from torchzoo.case import Backend, Mode
from torchzoo.record import Compilation
from torchzoo.settings import CacheMode
from user_models import TINY

PACKAGE = b"x" * 5000


@pytest.fixture(name="loaded_from")
def _fake_aotinductor(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """AOTInductor without g++: a package is a file, and what is loaded runs the exported graph."""
    programs: dict[str, Callable[..., Any]] = {}
    loaded_from: list[Path] = []

    def compile_and_package(program: torch.export.ExportedProgram, *, package_path: str) -> str:
        Path(package_path).write_bytes(PACKAGE)
        programs[package_path] = program.module()
        return package_path

    def load_package(path: str) -> Callable[..., Any]:
        assert os.environ["TMPDIR"] == str(Path(path).parent)
        loaded_from.append(Path(path))
        return programs[path]

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compile_and_package)
    monkeypatch.setattr(torch._inductor, "aoti_load_package", load_package)
    return loaded_from


def test_the_record_has_the_packages_size_and_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded_from: list[Path]
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv(SCRATCH_VARIABLE, str(scratch))
    monkeypatch.delenv("TMPDIR", raising=False)
    measured = measure(tmp_path / "zoo", backend="aoti", mode=Mode.EVAL)
    counts = measured.variants["candidate"].compilation
    assert counts is not None
    assert counts.compile_s is not None
    assert counts.load_s is not None
    assert 0 < counts.load_s < counts.compile_s
    assert counts == Compilation(
        cache=CacheMode.COLD, compile_s=counts.compile_s, load_s=counts.load_s, package_bytes=len(PACKAGE)
    )
    assert measured.variants["eager"].compilation is None
    assert [path.is_relative_to(scratch) for path in loaded_from] == [True]
    assert "TMPDIR" not in os.environ
    assert list(scratch.iterdir()) == []  # nobody holds the model any more


TWO_CALLS = """
    def eval_step(self):
        x = self.batch.inputs[0]
        return self.network(x), self.network({})
"""


@pytest.mark.parametrize("backend", ["aoti", "export"])
def test_a_graph_of_one_call_is_not_measured_for_others(tmp_path: Path, loaded_from: list[Path], backend: str) -> None:
    """AOTInductor does not look at sizes: it would read what lies behind a tensor, or leave a part of it out."""
    with pytest.raises(NotRunnable, match=r"a tensor of 1 x 3 x 4 x 4 .* instead of a tensor of 4 x 3 x 4 x 4"):
        measure(tmp_path / "zoo", TINY + TWO_CALLS.format("x[:1]"), backend=backend, mode=Mode.EVAL)
    assert loaded_from == []
    measure(tmp_path / "alike", TINY + TWO_CALLS.format("x + 1"), backend=backend, mode=Mode.EVAL)


@pytest.mark.parametrize(
    ("first", "second", "unlike"),
    [
        ((torch.ones(2), 3), (torch.zeros(2), 3), ""),
        ((torch.ones(2), 3), (torch.ones(2), 4), "4 instead of 3"),
        ((torch.ones(2),), (torch.ones(2).double(),), "2 (float64) instead of a tensor of 2 (float32)"),
        ((torch.ones(2), None), (torch.ones(2), torch.ones(2)), "a tensor of 2 (float32) instead of"),
        (([torch.ones(2)],), ([torch.ones(2), torch.ones(2)],), "other arguments are given"),
        ((torch.ones(()), object()), (torch.ones(()), object()), ""),
    ],
)
def test_calls_are_alike_in_what_a_graph_has_fixed(
    first: tuple[Any, ...], second: tuple[Any, ...], unlike: str
) -> None:
    found = Call(first, {}, Tensor).difference(Call(second, {}, Tensor))
    assert unlike in found
    assert bool(found) == bool(unlike)


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_where_libstdcxx_would_be_in_the_package_nothing_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded_from: list[Path]
) -> None:
    compiler = tmp_path / "g++"
    monkeypatch.setattr(torch._inductor.cpp_builder, "get_cpp_compiler", lambda: str(compiler))
    compiler.write_text("#!/bin/sh\necho libstdc++.so\n")  # what g++ answers where there is no such file
    compiler.chmod(0o755)
    with pytest.raises(NotRunnable, match=r"g\+\+ finds no libstdc\+\+\.so .*: let CXX name another"):
        compile_network(nn.ReLU(), Call((torch.ones(2),), {}, Tensor), Backend("aoti"))
    assert loaded_from == []
    compiler.write_text("#!/bin/sh\necho /usr/lib/gcc/libstdc++.so\n")
    compile_network(nn.ReLU(), Call((torch.ones(2),), {}, Tensor), Backend("aoti"))
    assert len(loaded_from) == 1


class Bounds(NamedTuple):
    low: Tensor
    high: Tensor


class Halves(NamedTuple):
    lower: Bounds
    upper: Bounds


class Halved(nn.Module):
    def forward(self, bounds: Bounds) -> list[Halves]:
        middle = (bounds.low + bounds.high) / 2
        return [Halves(Bounds(bounds.low, middle), Bounds(middle, bounds.high))]


@pytest.mark.slow
def test_a_package_has_named_tuples_also_inside_others_and_in_a_process_that_did_not_make_it(tmp_path: Path) -> None:
    path, bounds = tmp_path / "network.pt2", Bounds(torch.zeros(1), torch.ones(1))
    make_package(Halved(), Call((bounds,), {}, list), path)
    code = f"""
from pathlib import Path
import torch
from test_aoti import Bounds
from torchzoo.backends.aoti import load_package
(halves,) = load_package(Path({str(path)!r}))(Bounds(torch.zeros(1), torch.full((1,), 4.0)))
print(type(halves).__name__, type(halves.upper).__name__, halves.upper.low.item(), halves.upper.high.item())
"""
    folders = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": folders, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)},
    )
    assert done.stdout == "Halves Bounds 2.0 4.0\n", done.stderr


@pytest.mark.slow
def test_a_real_package_computes_what_the_network_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path))
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        packaged = compile_network(network, Call((x,), {}, Tensor), Backend("aoti"))
        torch.testing.assert_close(packaged(x), network(x))
    assert packaged.package_bytes > sum(leaf.nbytes for leaf in tree_leaves(network.state_dict()))
    folder = Path(packaged.folder.name)
    del packaged
    assert not folder.exists()
