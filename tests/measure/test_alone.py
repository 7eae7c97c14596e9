"""A candidate in a process of its own: no eager step comes before, and it compiles into an empty folder."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import pytest
from measuring import SETTINGS

from torchzoo.case import Backend, Case, Mode
from torchzoo.measure import alone
from torchzoo.measure.alone import can_be_alone
from torchzoo.run.lanes import Lane
from torchzoo.run.worker import Request, _alone
from torchzoo.settings import CacheMode
from torchzoo.zoo.catalog import find_models
from user_models import TINY, make_folder

CASE = Case(model="tiny", mode=Mode.TRAIN, device="cpu", backend=Backend("aot_eager"), batch_size=4)
#: Fails in an eager step.
ONLY_COMPILED = """
    def forward(self):
        assert self.network._compiled_call_impl is not None
        return super().forward()
"""


def test_only_what_compiles_in_its_first_step_can_be_alone() -> None:
    names = ("inductor", "aot_eager", "eager", "torchscript", "zero_grad")
    cases = [msgspec.structs.replace(CASE, backend=Backend(name)) for name in names]
    assert [can_be_alone(case) for case in cases] == [True, True, False, False, False]


def test_time_and_peak_of_the_first_step_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "watch_device_peak", lambda _: lambda: 7)
    slow_at_first = """
    def forward(self):
        if not hasattr(self, "has_slept"):
            self.has_slept = __import__("time").sleep(0.3)
        return super().forward()
"""
    of = request(tmp_path, TINY + slow_at_first)
    found = alone.measure_alone(of.case, of.spec, "cpu", of.settings)
    assert found.first_step_peak_bytes == 7
    assert found.first_step_s > 0.3


def request(folder: Path, code: str, cache: CacheMode = CacheMode.COLD) -> Request:
    make_folder(folder / "zoo", "tiny", code)
    return Request(
        case=CASE,
        spec=find_models([folder / "zoo"]).spec("tiny"),
        settings=msgspec.structs.replace(SETTINGS, cache=cache),
        lane=Lane(device="cpu"),
        undisturbed_loop_s=None,
        log=os.devnull,
        scratch=str(folder),
    )


def read_memory(folder: Path, code: str, cache: CacheMode, answer: Connection) -> None:
    """What a worker does, in a process that has not stepped: a process that has can't fork one that steps."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "the worker's")
    found = _alone(request(folder, code, cache))
    answer.send((os.getpid(), os.environ["TORCHINDUCTOR_CACHE_DIR"], found and found.memory.host_peak_rss_bytes))


@pytest.mark.parametrize("cache", [CacheMode.COLD, CacheMode.WARM])
def test_it_runs_in_another_process_whose_caches_are_its_own_or_warm_those_of_the_worker(
    cache: CacheMode, tmp_path: Path
) -> None:
    code = TINY.replace(
        "def build_network(self):",
        f"def build_network(self):\n        text = str(os.getpid()) + ' ' + os.environ['TORCHINDUCTOR_CACHE_DIR']"
        f"\n        open({str(tmp_path / 'seen')!r}, 'w').write(text)",
    )
    new = multiprocessing.get_context("spawn")
    here, there = new.Pipe(duplex=False)
    worker = new.Process(target=read_memory, args=(tmp_path, code + ONLY_COMPILED, cache, there))
    worker.start()
    there.close()
    worker_pid, cache_of_worker, peak_bytes = here.recv()
    worker.join()
    assert peak_bytes > 2**20
    process, folder = (tmp_path / "seen").read_text().split(" ", 1)
    assert int(process) != worker_pid
    if cache is CacheMode.WARM:
        assert folder == cache_of_worker
    else:
        assert folder.startswith(str(tmp_path / "alone"))
    assert cache_of_worker == str(tmp_path / "the worker's")


def test_where_it_fails_there_is_no_figure_and_the_worker_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = TINY.replace("def build_network(self):", "def build_network(self):\n        raise ValueError('too large')")
    assert _alone(request(tmp_path, code)) is None
    assert "too large" in capfd.readouterr().err
