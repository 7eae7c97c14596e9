"""The first result of a process, in this process: its parts, what the caches had, and what is kept for later ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters

from examples import CASE, INDUCTOR
from torchzoo.backends import NotRunnable, aoti
from torchzoo.measure import first_result
from torchzoo.measure.fresh_turns import Ask, CacheCounts, FirstResult, Fresh
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.spec import read_spec
from user_models import TINY, make_folder

NO_NETWORK = "\n    def eval_step(self):\n        return torch.ones(3)\n"


@pytest.fixture
def in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Calls a function as a fresh process does, with caches in a folder of that name."""
    make_folder(tmp_path, "tiny")
    make_folder(tmp_path, "calls_none", TINY + NO_NETWORK)
    threads = torch.get_num_threads()

    def call(function: Callable[[Fresh], Any], caches: str = "none", model: str = "tiny") -> Any:
        torch._dynamo.reset()
        counters.clear()
        (tmp_path / caches).mkdir(exist_ok=True)
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / caches / "inductor"))
        ask = Ask(
            function="",
            case=msgspec.structs.replace(CASE, model=model, backend=INDUCTOR),
            spec=read_spec(tmp_path / model),
            settings=Settings(threads=1),
            options={},
            folder=str(tmp_path),
            caches=str(tmp_path / caches),
            scratch="",
            log="",
            device="cpu",
        )
        stages: list[Stage] = []
        result = function(Fresh(ask=ask, began_ns=time.monotonic_ns(), tell=stages.append))
        assert stages[:2] == [Stage.IMPORT, Stage.BUILD]
        return result

    yield call
    torch.set_num_threads(threads)
    torch._dynamo.reset()
    counters.clear()


def test_eager_has_its_parts_and_nothing_of_a_compiler(in_a_process: Callable[..., Any]) -> None:
    found: FirstResult = in_a_process(first_result.eager)
    assert min(found.import_s, found.build_s, found.step_s, found.later_step_s) > 0
    assert found.total_s == pytest.approx(found.import_s + found.build_s + found.load_s + found.step_s)
    assert (found.graphs, found.libraries_built, found.artifact_bytes, found.cache_bytes) == (0, 0, None, 0)


def test_caches_that_an_earlier_process_left_are_found_on_the_disk_and_in_the_file(
    in_a_process: Callable[..., Any],
) -> None:
    filled: FirstResult = in_a_process(first_result.fill_caches, "disk")
    assert (filled.graphs, filled.libraries_built > 0) == (1, True)
    assert filled.autograd_cache == filled.inductor_cache == CacheCounts(misses=1)
    assert filled.artifact_bytes
    assert filled.cache_bytes
    again: FirstResult = in_a_process(first_result.compiled, "disk")
    assert (again.graphs, again.libraries_built) == (1, 0)
    assert again.autograd_cache == again.inductor_cache == CacheCounts(hits=1)
    assert again.step_s < filled.step_s
    other: FirstResult = in_a_process(first_result.compiled_with_artifacts, "empty")
    assert other.autograd_cache == other.inductor_cache == CacheCounts(hits=1)
    assert other.artifact_bytes == filled.artifact_bytes
    assert other.load_s > 0


def test_packages_of_the_networks_are_made_once_and_loaded_later(
    in_a_process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def make(network: torch.nn.Module, call: Any, path: Path) -> None:
        assert not torch.is_grad_enabled()
        path.write_bytes(bytes(1000 + sum(p.numel() for p in network.parameters()) + call.args[0].shape[0]))

    def load(path: Path) -> Callable[..., Any]:
        return lambda images: ran.append(path.name) or images.flatten(1)[:, :2]

    monkeypatch.setattr(aoti, "make_package", make)
    monkeypatch.setattr(aoti, "load_package", load)
    made = in_a_process(first_result.package)
    assert made.package_bytes == 1000 + 74 + 4
    found: FirstResult = in_a_process(first_result.packaged)
    assert (found.artifact_bytes, found.graphs) == (made.package_bytes, 0)
    assert ran == ["network.pt2"] * 3  # the first step, and two after it


def test_a_step_that_calls_no_network_has_nothing_to_pack(in_a_process: Callable[..., Any]) -> None:
    with pytest.raises(NotRunnable, match="calls none of its networks"):
        in_a_process(first_result.package, model="calls_none")
