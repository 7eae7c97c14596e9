"""What an interrupt leaves: a case that was timed keeps its times, and is measured once more when the run goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fake_workers import GOOD, FakeWorkers, Script, entries, scheduler

from examples import ROOT, measured
from torchzoo.record import Failed, FailureKind, Measured, Record
from torchzoo.run.experiment import rest_of
from torchzoo.run.workers import Exited, Message, Timed
from torchzoo.settings import Stage
from torchzoo.store import read_run
from user_models import TINY, make_folder
from waiting import until

IN_CHECK: Script = [*GOOD[:4], (5, Timed(measured())), (1, Stage.EXAMINE), (1, Stage.HOLD), (0, Stage.CHECK)]
OOM = Failed(kind=FailureKind.OOM_DEVICE, stage=Stage.CHECK, message="out of memory")

#: Its reference, at fp64, waits while a file is there, and another file says that it has begun.
WAITS_AT_FP64 = (
    TINY.replace(
        "        return nn.Sequential(",
        "        return Waits(",
    )
    + """

class Waits(nn.Sequential):
    def forward(self, x):
        if x.dtype == torch.float64:
            open({begun!r}, "w").close()
            while os.path.exists({flag!r}):
                time.sleep(0.1)
        return super().forward(x)
"""
)


class _InterruptedAt(FakeWorkers):
    at_s = 0.0

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        if self.now_s >= self.at_s:
            raise KeyboardInterrupt
        return super().wait(min(timeout_s, self.at_s - self.now_s))


def _until(at_s: float, scripts: dict[str, list[Script]]) -> dict[str, Record]:
    workers = _InterruptedAt(scripts)
    workers.at_s = at_s
    found = []
    with pytest.raises(KeyboardInterrupt):
        for one in scheduler(workers).run(entries(*scripts)):
            found.append(one)  # noqa: PERF402  those before the interrupt are wanted
    assert not workers.left, "workers are alive"
    return {one.case.model: one for one in found}


def test_an_interrupted_check_leaves_the_times_and_a_timing_that_is_not_over_nothing() -> None:
    found = _until(50, {"checks": [[*IN_CHECK, (900, measured())]], "prepares": [[(1, Stage.BUILD), (900, OOM)]]})
    assert list(found) == ["checks"]
    outcome = found["checks"].outcome
    assert isinstance(outcome, Measured)
    assert outcome.cut_short is not None
    assert (outcome.cut_short.kind, outcome.cut_short.stage) == (FailureKind.INTERRUPTED, Stage.CHECK)


@pytest.mark.parametrize(
    ("said", "kind"),
    [(OOM, FailureKind.INTERRUPTED), (Failed(kind=FailureKind.ERROR, stage=Stage.CHECK, message="no"), "error")],
)
def test_what_a_worker_said_before_the_interrupt_holds_unless_it_is_tried_again(said: Failed, kind: str) -> None:
    """Out of memory beside others is tried once more, alone."""
    script: Script = [*IN_CHECK, (5, said), (900, Exited(1))]
    found = _until(50, {"a": [script], "b": [[(1, Stage.BUILD), (900, OOM)]]})
    failure = found["a"].failure
    assert failure is not None
    assert failure.kind == kind


@pytest.mark.slow
def test_the_times_are_in_the_run_and_resume_measures_the_case_once_more(tmp_path: Path) -> None:
    flag, begun, path = tmp_path / "flag", tmp_path / "begun", tmp_path / "run"
    flag.touch()
    make_folder(tmp_path / "zoo", "waits", WAITS_AT_FP64.format(flag=str(flag), begun=str(begun)))
    command = [sys.executable, str(ROOT / "run.py"), "waits", "--models-dir", str(tmp_path / "zoo"), "-d", "cpu"]
    command += ["-t", "eval", "--check", "--time-limit", "0.2", "--threads", "1", "-o", str(path)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(begun.exists, "the check never began")
    parent.send_signal(signal.SIGINT)
    _, stderr = parent.communicate(timeout=100)
    assert parent.returncode == 130
    assert "Traceback" not in stderr
    run = read_run(path)
    (kept,) = run.records
    assert isinstance(kept.outcome, Measured)
    assert kept.failure is not None
    assert kept.failure.message == "the run was interrupted; when it goes on, this case is measured once more"
    assert rest_of(run, retry_failed=False).cases == (kept.case,)

    flag.unlink()
    resume = [sys.executable, str(ROOT / "run.py"), "--resume", str(path)]
    subprocess.run(resume, check=True, capture_output=True, timeout=100)
    run = read_run(path)
    (again,) = run.records
    assert again.failure is None
    assert isinstance(again.outcome, Measured)
    assert again.outcome.check is not None
    assert rest_of(run, retry_failed=False).cases == ()
