"""Cases with several ranks on the CPU (gloo): they compute what one rank computes, and one bad rank is one outcome."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import psutil
import pytest

from examples import ROOT
from in_this_process import torchzoo
from torchzoo.analysis import leaks
from torchzoo.analysis.cases import case_results
from torchzoo.case import Parallel
from torchzoo.machine.limits import usable_cores
from torchzoo.record import CheckStatus, Failed, FailureKind, Measured, Skipped
from torchzoo.report.scaling import scalings
from torchzoo.store import read_run
from user_models import METADATA, TINY, make_folder

pytestmark = pytest.mark.xdist_group("run")

#: A network of repeated blocks, with a plan for tensor parallelism.
BLOCKS = '''"""Three blocks (torchzoo's tests, 2026)."""

import os
import signal
import time

from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torchzoo.model.tasks import Batch, SupervisedModel


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.outer(self.inner(x).relu())


class Model(SupervisedModel):
    max_grad_norm = 1.0

    def build_network(self):
        return nn.Sequential(nn.Sequential(*[Block() for _ in range(3)]), nn.Linear(16, 2))

    def build_batch(self):
        return Batch((self.data.normal(self.batch_size, 16),), self.data.labels(self.batch_size, 2))

    def compute_loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def tensor_parallel_plan(self):
        return {"0.*.inner": ColwiseParallel(), "0.*.outer": RowwiseParallel()}
'''
BLOCK_PARAMETERS = 16 * 32 + 32 + 32 * 16 + 16
PARAMETERS = 3 * BLOCK_PARAMETERS + 16 * 2 + 2

#: What rank 1 does in its third step.
BAD_RANKS = {
    "raises": "raise ValueError('no such thing')",
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "hangs": "time.sleep(600)",
}


MARK = "TORCHZOO_TEST_OF_RANKS"


def run(zoo: Path, *arguments: str, world: str = "2", mark: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "run.py"), "-d", "cpu", "--threads", "1", "--time-limit", "0.2", "-q"]
    command += ["--models-dir", str(zoo), "--world", world, *arguments]
    if not mark:
        return torchzoo("run", *command[2:])
    environment = {**os.environ, MARK: mark}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)


def with_mark(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


@pytest.mark.slow
def test_while_steps_are_timed_no_rank_collects_garbage_and_each_has_cores_of_its_own(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    noting = f"""
    def train_step(self):
        import gc
        with open({str(seen)!r}, "a") as file:
            cores = ",".join(map(str, os.sched_getaffinity(0)))
            file.write(f"{{torch.distributed.get_rank()}} {{cores}} {{gc.isenabled()}}\\n")
        super().train_step()
"""
    make_folder(tmp_path / "zoo", "noting", TINY + noting)
    done = run(tmp_path / "zoo", "noting", "-t", "train")
    assert done.returncode == 0, done.stderr
    lines = seen.read_text().splitlines()
    for rank in "01":
        states = [line.endswith("True") for line in lines if line.startswith(rank)]
        assert states[0]  # in the warm-up
        assert states.count(False) > 10  # in the window
    if len(usable_cores()) > 1:
        timed = Counter(tuple(line.split()[:2]) for line in lines if line.endswith("False"))
        # Two steps are counted after the window, on all cores.
        usual = {rank: max((n, cores) for (one, cores), n in timed.items() if one == rank)[1] for rank in "01"}
        assert set(usual["0"].split(",")).isdisjoint(usual["1"].split(","))


@pytest.mark.slow
def test_ranks_compute_what_one_device_computes_and_reports_say_how_they_scale(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "blocks", BLOCKS, METADATA.replace("72", str(PARAMETERS)))
    arguments = ["blocks", "-t", "train", "--parallel", "ddp,fsdp2,tp", "--bs", "4", "--check", "--leak-check"]
    done = run(tmp_path / "zoo", *arguments, "-o", str(tmp_path / "run"), world="1,2")
    assert done.returncode == 0, done.stderr
    made = read_run(tmp_path / "run")
    assert len(made.records) == 1 + 3
    for record in made.records:
        measured = record.outcome
        assert isinstance(measured, Measured)
        assert measured.parameters == PARAMETERS
        assert measured.check is not None
        assert measured.check.status is CheckStatus.CORRECT, measured.check.reason
        growth = measured.variants["eager"].growth
        assert growth is not None
        assert leaks.check(growth).slopes[leaks.Measure.HEAP].value < leaks.THRESHOLDS[leaks.Measure.HEAP]
        if record.case.world == 2:
            assert len(measured.ranks) == 2
            shares_batch = record.case.parallel is Parallel.TP
            assert measured.samples_per_step == record.case.batch_size * (1 if shares_batch else 2)
            for rank in measured.ranks:
                for step in rank.communication["eager"]:
                    assert 0 < step.exposed_s <= step.total_s <= step.wall_s
            moved = {one.name: (one.calls, one.bytes) for one in measured.variants["eager"].collectives}
            if record.case.parallel is Parallel.DDP:
                assert moved["all_reduce"] == (1, 4 * PARAMETERS)  # one bucket of gradients
            if record.case.parallel is Parallel.FSDP2:
                # each of three blocks is gathered before its forward and its backward pass, the rest once
                assert moved["all_gather"] == (7, 4 * (PARAMETERS + 3 * BLOCK_PARAMETERS))
    alone = next(one for one in case_results(made) if one.case.world == 1)
    with_larger_batch = msgspec.structs.replace(alone, case=msgspec.structs.replace(alone.case, batch_size=8))
    found = {one.case.parallel: one for one in scalings([*case_results(made), with_larger_batch])}
    assert found[Parallel.DDP].weak is not None
    assert found[Parallel.DDP].strong is not None  # 4 on each of two ranks, beside 8 on one
    assert found[Parallel.TP].weak is None
    assert found[Parallel.TP].strong is not None  # 4 on two ranks together, beside 4 on one
    assert "Scaling over ranks" in done.stdout
    assert "all_reduce" in done.stdout


@pytest.mark.slow
def test_a_wrong_average_of_gradients_is_found(tmp_path: Path) -> None:
    """Rank 1 adds something to its loss that the reference does not have."""
    wrong = BLOCKS + (
        "\n    def backward(self, loss):"
        "\n        from torch.nn.parallel import DistributedDataParallel"
        "\n        factor = 2 if isinstance(self.network, DistributedDataParallel) else 1"
        "\n        super().backward(loss * factor)\n"
    )
    make_folder(tmp_path / "zoo", "wrong", wrong.replace("max_grad_norm = 1.0", "max_grad_norm = None"))
    done = run(tmp_path / "zoo", "wrong", "-t", "train", "--check", "-o", str(tmp_path / "run"))
    (record,) = read_run(tmp_path / "run").records
    assert isinstance(record.outcome, Measured), done.stderr
    assert record.outcome.check is not None
    assert record.outcome.check.status is CheckStatus.INCORRECT


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=() if how == "raises" else pytest.mark.slow) for how in BAD_RANKS]
)
def test_one_bad_rank_is_one_outcome_and_leaves_no_process(tmp_path: Path, how: str) -> None:
    step = (
        "\n    def train_step(self):\n        self.steps = getattr(self, 'steps', 0) + 1\n"
        f"        if self.shard == 1 and self.steps == 3:\n            {BAD_RANKS[how]}\n"
        "        return super().train_step()\n"
    )
    make_folder(tmp_path / "zoo", "bad", TINY + step)
    arguments = ["bad", "-t", "train", "--timeout", "12", "-o", str(tmp_path / "run")]
    done = run(tmp_path / "zoo", *arguments, mark=str(tmp_path))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (record,) = read_run(tmp_path / "run").records
    failed = record.outcome
    assert isinstance(failed, Failed)
    match how:
        case "raises":
            assert failed.message == "rank 1: ValueError: no such thing"
            assert "train_step" in failed.traceback
        case "killed":
            assert failed.kind is FailureKind.CRASHED
            assert failed.message.startswith("rank 1 was ended by SIGKILL")
        case "hangs":
            assert failed.kind is FailureKind.TIMEOUT
            first, second = failed.traceback.rpartition("torchzoo-rank0:")[2].split("torchzoo-rank1:")
            assert "train_step" in second
            assert "receive" in first or "train_step" in first  # it waits for rank 1
    assert psutil.wait_procs(with_mark(str(tmp_path)), timeout=20)[1] == []


@pytest.mark.slow
def test_what_can_not_be_parallel_is_skipped_with_the_reason(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "tiny")
    run(tmp_path / "zoo", "tiny", "-t", "train,eval", "--parallel", "ddp,tp", "-o", str(tmp_path / "run"))
    reasons = {
        (one.case.parallel, str(one.case.mode)): one.outcome.reason
        for one in read_run(tmp_path / "run").records
        if isinstance(one.outcome, Skipped)
    }
    assert set(reasons) == {(Parallel.DDP, "eval"), (Parallel.TP, "train"), (Parallel.TP, "eval")}
    assert "no plan" in reasons[Parallel.TP, "train"]
