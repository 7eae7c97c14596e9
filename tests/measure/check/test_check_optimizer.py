"""Where a backend makes the updates, what optimizers keep is compared: a wrong moment shows in later steps only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from classifier import Classifier, check

from torchzoo.backends import dynamo
from torchzoo.backends.optimizer_copies import optimizers_of
from torchzoo.case import CompileScope, Mode
from torchzoo.record import Check, CheckStatus

State = dict[str, Any]


def compiled_whole(**changes: Any) -> Check:
    return check(Classifier, Mode.TRAIN, "aot_eager", compile_scope=CompileScope.STEP, **changes)


@pytest.fixture
def after_each_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[State], None]], None]:
    """Lets a step that is compiled whole do something to what its optimizer keeps of each parameter."""

    def plant(fault: Callable[[State], None]) -> None:
        def compile_step(step: Any, backend: Any) -> Callable[..., Any]:
            own = right(step, backend)

            def faulty() -> Any:
                loss = own()
                for optimizer in optimizers_of(step.__self__):
                    for state in optimizer.state.values():
                        fault(state)
                return loss

            return faulty

        monkeypatch.setattr(dynamo, "compile_step", compile_step)

    right = dynamo.compile_step
    return plant


def test_moments_are_compared_where_the_step_is_compiled_whole_and_nowhere_else() -> None:
    found = compiled_whole()
    assert found.status is CheckStatus.CORRECT, found
    [moments] = [one for one in found.comparisons if one.what == "optimizer"]
    assert moments.is_close
    assert moments.tensors % 2 == 0  # two of each parameter
    assert "optimizer" not in {one.what for one in check(Classifier, Mode.TRAIN, "aot_eager").comparisons}


@pytest.mark.parametrize(
    "name", [*(f"paper_optimizations/optimizer:{how}" for how in ("for-loop", "foreach", "fused"))]
)
def test_other_implementations_of_the_optimizer_keep_the_same(name: str) -> None:
    found = check(Classifier, Mode.TRAIN, name)
    assert found.status is CheckStatus.CORRECT, found
    assert "optimizer" in {one.what for one in found.comparisons}


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (lambda state: state["exp_avg"].mul_(1.1), "exp_avg"),
        (lambda state: state["exp_avg_sq"].mul_(1.1), "exp_avg_sq"),
        (lambda state: state["step"].zero_(), "step"),
    ],
)
def test_what_an_optimizer_keeps_wrongly_is_incorrect(
    after_each_step: Callable[..., None], fault: Callable[[State], None], what: str
) -> None:
    after_each_step(fault)
    found = compiled_whole()
    assert found.status is CheckStatus.INCORRECT, found
    assert f".{what} is " in found.reason
    assert all(one.is_close for one in found.comparisons if one.what in ("loss", "gradients", "parameters"))
