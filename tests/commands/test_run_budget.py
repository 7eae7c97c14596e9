"""`torchzoo run --budget` for real: what the run keeps of it, what the workers do with it, and what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from in_this_process import torchzoo
from torchzoo.commands.from_python import parsed
from torchzoo.commands.options import run_request
from torchzoo.commands.run import _request
from torchzoo.record import Measured, StopReason
from torchzoo.store import read_run
from user_models import TINY, make_folder

pytestmark = pytest.mark.xdist_group("run")  # beside other runs it would wait for them

#: A step of about 1 ms that no time makes steady: every other one takes ten times as long.
NOISY = f"""{TINY}
    def eval_step(self):
        import random

        time.sleep(0.001 * 10 ** random.random())
        return super().eval_step()
"""


@pytest.mark.parametrize(
    ("words", "budget"),
    [
        ([], "auto"),
        (["--time-limit", "3"], None),
        (["--budget", "15m"], 900.0),
        (["--budget", "90", "--time-limit", "3"], 90.0),
    ],
)
def test_only_run_has_a_budget_by_itself(words: list[str], budget: object) -> None:
    arguments = parsed(["tiny", *words])
    assert _request(arguments).budget == budget
    assert run_request(arguments).budget == (None if budget == "auto" else budget)


def test_a_wrong_budget_is_refused_in_a_line() -> None:
    done = torchzoo("run", "tiny", "--budget", "15 minutes")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].count("'15 minutes'") == 1


@pytest.mark.slow
def test_a_run_shares_its_budget_and_goes_on_with_the_same_shares(tmp_path: Path) -> None:
    path, zoo = tmp_path / "run", tmp_path / "zoo"
    for name in ("one", "two"):
        make_folder(zoo, name, NOISY)
    words = ["--models-dir", str(zoo), "-d", "cpu", "--threads", "1", "--time-limit", "3", "--budget", "0.8"]
    done = torchzoo("run", "one", "two", *words, "-o", str(path))
    assert done.returncode == 0, done.stderr
    run = read_run(path)
    assert run.manifest.settings.share_s == 0.4
    reasons = [record.outcome.stop_reason for record in run.records if isinstance(record.outcome, Measured)]
    assert reasons == [StopReason.BUDGET] * 2
    assert "(budget 1 s)" in done.stderr
    assert any(line.startswith("2 of 2 cases ") for line in done.stderr.splitlines())
    kept = path / "records.jsonl"
    kept.write_bytes(kept.read_bytes().splitlines(keepends=True)[0])
    resumed = torchzoo("run", "--resume", str(path), "-q")
    assert resumed.returncode == 0, resumed.stderr
    assert "(budget" not in resumed.stderr
    again = read_run(path)
    assert (again.manifest, len(again.records)) == (run.manifest, 2)
    refused = torchzoo("run", "--resume", str(path), "--budget", "9s")
    assert "leave out --budget" in refused.stderr
