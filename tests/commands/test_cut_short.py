"""`torchzoo run` of a case that fails after its timing: the times are kept, and the case is made again when asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from in_this_process import torchzoo
from torchzoo.record import Measured
from torchzoo.store import read_run
from user_models import TINY, make_folder

pytestmark = pytest.mark.xdist_group("run")  # beside other runs it would wait for them


#: A model that can't be counted: its step refuses to run where each of its operators is looked at.
UNCOUNTABLE = f"""{TINY}
    def eval_step(self):
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        if {{flag}} and type(_get_current_dispatch_mode()).__module__ == "torchzoo.measure.passes.flops":
            raise RuntimeError("it does not let its operations be counted")
        return super().eval_step()
"""


@pytest.mark.slow
def test_a_pass_that_fails_costs_no_timing_and_is_made_again(tmp_path: Path) -> None:
    zoo, path, mended = tmp_path / "zoo", tmp_path / "run", tmp_path / "mended"
    make_folder(zoo, "tiny", UNCOUNTABLE.replace("{flag}", f"not os.path.exists({str(mended)!r})"))
    words = ["tiny", "--models-dir", str(zoo), "-d", "cpu", "-t", "eval", "--time-limit", "0.5", "--flops"]
    done = torchzoo("run", *words, "-o", str(path))
    assert done.returncode == 1
    said = "after its timing, it FAILED (error in examine): RuntimeError: it does not let its operations be counted"
    assert said in " ".join(done.stdout.split())
    assert f"torchzoo run --resume {path} --retry-failed" in done.stderr + done.stdout
    outcome = read_run(path).records[0].outcome
    assert isinstance(outcome, Measured)
    assert outcome.blocks
    assert outcome.flops is None
    assert outcome.stage_seconds["warm_up"] > 0
    mended.touch()
    again = torchzoo("run", "--resume", str(path), "--retry-failed")
    assert again.returncode == 0, again.stderr
    outcome = read_run(path).records[0].outcome
    assert isinstance(outcome, Measured)
    assert outcome.cut_short is None
    assert outcome.flops is not None
