"""`--check-only`: a case whose results are checked, and whose steps are not timed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from classifier import has_a_wrong_gradient, is_right

from torchzoo.backends import NotRunnable
from torchzoo.case import Backend, Case, Mode, Precision
from torchzoo.measure.measure_case import Assignment, measure_case
from torchzoo.measure.precision import LabelNotReached
from torchzoo.record import Checked, CheckStatus
from torchzoo.settings import Pass, Settings, Stage
from torchzoo.zoo.catalog import find_models
from user_models import TINY, make_folder


def check(
    zoo: Path,
    backend: str = "eager",
    code: str = TINY,
    *,
    mode: Mode = Mode.TRAIN,
    precision: Precision = Precision.DEFAULT,
    tell: Callable[[Stage], None] = lambda _: None,
) -> Checked:
    make_folder(zoo, "tiny", code)
    case = Case(model="tiny", mode=mode, device="cpu", backend=Backend(backend), precision=precision, batch_size=4)
    spec, settings = find_models([zoo]).spec("tiny"), Settings(passes=(Pass.CHECK_ONLY,))
    found = measure_case(Assignment(case=case, spec=spec, device="cpu", settings=settings, tell=tell))
    assert isinstance(found, Checked)
    return found


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_a_right_backend_is_correct_and_asks_for_no_window(
    tmp_path: Path, backend: Callable[..., str], mode: Mode
) -> None:
    stages: list[Stage] = []
    found = check(tmp_path, backend(is_right), mode=mode, tell=stages.append)
    assert found.check.status is CheckStatus.CORRECT
    assert found.graphs == 1
    assert found.parameters == 74
    assert set(found.operator_dtypes) == {"float32"}
    assert stages == [Stage.IMPORT, Stage.BUILD, Stage.PREPARE, Stage.WARM_UP, Stage.HOLD, Stage.CHECK]
    assert set(found.stage_seconds) == set(stages)


def test_a_wrong_backend_is_incorrect(tmp_path: Path, backend: Callable[..., str]) -> None:
    found = check(tmp_path, backend(has_a_wrong_gradient))
    assert found.is_incorrect
    assert "gradients" in found.check.reason


def test_a_step_that_is_not_what_its_label_says_is_not_checked(tmp_path: Path) -> None:
    without_autocast = "\n    def eval_step(self):\n        return self.network(*self.batch.inputs)\n"
    with pytest.raises(NotRunnable, match="changes none of this model's operators"):
        check(tmp_path, code=TINY + without_autocast, mode=Mode.EVAL, precision=Precision.AMP)


def test_a_backend_that_compiles_nothing_has_no_verdict(tmp_path: Path, backend: Callable[..., str]) -> None:
    hidden = "torch.compiler.disable(lambda x: x.flatten(1)[:, :2] * self.network[0].bias)"
    code = TINY + f"\n    def forward(self):\n        return {hidden}(*self.batch.inputs)\n"
    with pytest.raises(LabelNotReached, match="nothing to compile"):
        check(tmp_path, backend(is_right), code, mode=Mode.EVAL)
