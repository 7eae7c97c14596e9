"""A candidate in a process of its own: no eager step comes before, and it compiles into an empty folder."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import pytest
import torch
from measuring import SETTINGS

from torchzoo.backends import NotRunnable, dynamo
from torchzoo.case import Backend, Case, CompileScope, Mode
from torchzoo.machine.limits import usable_cores
from torchzoo.measure import measure_case
from torchzoo.measure.measure_case import why_never_alone
from torchzoo.measure.warmup import WarmUp
from torchzoo.record import Alone, Failed, FailureKind, Skipped
from torchzoo.run import alone as process
from torchzoo.run.alone import _Answer
from torchzoo.run.failures import STACKS_SIGNAL
from torchzoo.run.lanes import Lane
from torchzoo.run.worker import Request, _alone
from torchzoo.settings import CacheMode, Stage, StageLimits
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
    names = ("inductor", "aot_eager", "eager", "torchscript", "paper_optimizations/zero_grad")
    cases = [msgspec.structs.replace(CASE, backend=Backend(name)) for name in names]
    assert [why_never_alone(case) is None for case in cases] == [True, True, False, False, False]
    assert "eager step comes before" in str(why_never_alone(cases[3]))
    assert why_never_alone(msgspec.structs.replace(CASE, world=2)) == "a case of several ranks has none"


def test_time_and_peak_of_the_first_step_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_case, "watch_device_peak", lambda _: lambda: 7)
    slow_at_first = """
    def forward(self):
        if not hasattr(self, "has_slept"):
            self.has_slept = __import__("time").sleep(0.3)
        return super().forward()
"""
    of = request(tmp_path, TINY + slow_at_first)
    found = measure_case.measure_alone(of.case, of.spec, "cpu", of.settings)
    assert found.first_step_peak_bytes == 7
    assert found.first_step_s > 0.3


def request(folder: Path, code: str, cache: CacheMode = CacheMode.COLD, limits: StageLimits | None = None) -> Request:
    make_folder(folder / "zoo", "tiny", code)
    return Request(
        case=CASE,
        spec=find_models([folder / "zoo"]).spec("tiny"),
        settings=msgspec.structs.replace(SETTINGS, cache=cache, limits=limits or StageLimits()),
        lane=Lane(device="cpu"),
        cores=usable_cores(),
        undisturbed_loop_s=None,
        log=str(folder / "log"),
        scratch=str(folder),
    )


def read_memory(folder: Path, code: str, cache: CacheMode, answer: Connection) -> None:
    """What a worker does, in a process that has not stepped: a process that has can't fork one that steps."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "the worker's")
    found = _alone(request(folder, code, cache))
    assert isinstance(found, Alone)
    answer.send((os.getpid(), os.environ["TORCHINDUCTOR_CACHE_DIR"], found.memory.host_peak_rss_bytes))


@pytest.mark.slow
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


FAILS = {
    "raises": ("raise ValueError('too large')", FailureKind.ERROR, "ValueError: too large"),
    "out of memory": ("raise torch.OutOfMemoryError('no GiB free')", FailureKind.OOM_DEVICE, "no GiB free"),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", FailureKind.CRASHED, "the process was ended by SIGKILL"),
    "ends": ("raise SystemExit(3)", FailureKind.CRASHED, "without a result"),
    "hangs": ("time.sleep(60)", FailureKind.TIMEOUT, "it took longer than 1 s and was killed"),
}


@pytest.mark.parametrize("how", FAILS)
def test_where_it_fails_the_reason_is_told_and_the_worker_goes_on(how: str, tmp_path: Path) -> None:
    action, kind, says = FAILS[how]
    code = TINY.replace("def build_network(self):", f"def build_network(self):\n        {action}")
    of = request(tmp_path, code, limits=StageLimits(alone_s=1 if how == "hangs" else 60))
    with Path(of.log).open("w") as log:
        faulthandler.register(STACKS_SIGNAL, file=log)
        found = _alone(of)
        faulthandler.unregister(STACKS_SIGNAL)
    assert isinstance(found, Failed)
    assert (found.kind, found.stage) == (kind, Stage.ALONE)
    assert says in found.message
    if how == "hangs":
        assert "in build_network" in Path(of.log).read_text()  # where it hung


def test_the_time_in_which_both_processes_are_stopped_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another case is measured for an hour in each of the first waits; then the process answers."""
    answer = _Answer(why_not=Skipped(reason="done"))
    waits = Stopped(waits=5, answer=msgspec.json.encode(answer))
    monkeypatch.setattr(process, "time", waits)
    assert process._read(waits, limit_s=60.0) == answer
    never = Stopped(waits=500, answer=b"")
    monkeypatch.setattr(process, "time", never)
    assert process._read(never, limit_s=60.0) is None


class Stopped:
    """A connection and a clock: each wait takes an hour, and the last one has the answer."""

    def __init__(self, waits: int, answer: bytes) -> None:
        self.waits, self.answer, self.now_s = waits, answer, 0.0

    def monotonic(self) -> float:
        return self.now_s

    def poll(self, _: float) -> bool:
        self.waits, self.now_s = self.waits - 1, self.now_s + 3600
        return self.waits == 0

    def recv_bytes(self) -> bytes:
        return self.answer


#: A network with three blocks of one class.
OF_BLOCKS = (
    TINY.replace("nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))", "Network()")
    + """

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(48, 48)

    def forward(self, x):
        return self.linear(x).relu()


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(48, 2)

    def forward(self, x):
        x = x.flatten(1)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
"""
)


def test_what_it_compiles_is_what_the_case_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(dynamo, "_compiled", lambda function, _: compiled.append(function.__self__) or function)
    monkeypatch.setattr(measure_case, "count_compiled", lambda *_: None)
    of = request(tmp_path, OF_BLOCKS)
    measure_case.measure_alone(of.case, of.spec, "cpu", of.settings)
    case = msgspec.structs.replace(of.case, compile_scope=CompileScope.BLOCK)
    measure_case.measure_alone(case, of.spec, "cpu", of.settings)
    assert [type(one).__name__ for one in compiled] == ["Network", "Block", "Block", "Block"]


def test_a_network_without_blocks_is_refused_where_blocks_are_to_be_compiled(tmp_path: Path) -> None:
    of = request(tmp_path, TINY)
    case = msgspec.structs.replace(of.case, compile_scope=CompileScope.BLOCK)
    with pytest.raises(NotRunnable, match="no repeated blocks"):
        measure_case.measure_alone(case, of.spec, "cpu", of.settings)


def test_what_the_models_libraries_change_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    warm = WarmUp(first_step_s=1.0, first_step_cpu_s=1.0, steps_s=(1.0,), result_is_finite=True)
    monkeypatch.setattr(measure_case, "warm_up", lambda *_: threads.append(torch.get_num_threads()) or warm)
    monkeypatch.setattr(measure_case, "count_compiled", lambda *_: None)
    before = torch.get_num_threads()
    of = request(tmp_path, TINY + f"\n\ntorch.set_num_threads({before + 1})\n")
    measure_case.measure_alone(of.case, of.spec, "cpu", of.settings)
    assert threads == [before]
