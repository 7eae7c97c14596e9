"""Copies of optimizers that a candidate uses: they have their own options and counters, and share the moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchzoo.backends import dynamo
from torchzoo.backends.optimizer_copies import StepWithCopies, copy_of, optimizers_of
from torchzoo.case import Backend, Case, CompileScope, Mode
from torchzoo.measure.variant import candidate_variant, eager_variant
from torchzoo.model import Model
from user_models import tiny_model


def step_candidate(model: Model) -> Any:
    case = Case(
        model="tiny",
        mode=Mode.TRAIN,
        device="cpu",
        backend=Backend("aot_eager"),
        compile_scope=CompileScope.STEP,
        batch_size=4,
    )
    return candidate_variant(model, model.train_step, case, {})


def test_what_compiling_a_step_does_to_optimizers_is_not_eagers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(tmp_path)
    model.train_step()
    [optimizer] = optimizers_of(model)
    counters = [state["step"] for state in optimizer.state.values()]

    def moving(*_: Any) -> Any:
        """As Dynamo does on a GPU, which tests have none of: it moves counters, and lets updates be captured."""

        def compiled() -> Any:
            for group in optimizer.param_groups:
                group["capturable"] = True
            for state in optimizer.state.values():
                state["step"] = state["step"].to(torch.float64)
            return loss

        loss = torch.zeros(())
        return compiled

    monkeypatch.setattr(dynamo, "compile_step", moving)
    candidate = step_candidate(model)
    candidate.select()
    candidate.step()
    assert all(state["step"] is own for state, own in zip(optimizer.state.values(), counters, strict=True))
    assert not any(group["capturable"] for group in optimizer.param_groups)


def test_a_step_that_is_compiled_whole_and_eager_train_one_model(tmp_path: Path) -> None:
    models = [tiny_model(tmp_path / name) for name in ("eager", "both")]
    for _ in range(4):
        models[0].train_step()
    model = models[1]
    eager = eager_variant(model, model.train_step)
    eager.select()
    eager.step()
    candidate = step_candidate(model)
    candidate.select()
    candidate.step()
    candidate.step()
    eager.select()
    [optimizer] = optimizers_of(model)
    counts = {int(state["step"]) for state in optimizer.state.values()}
    assert counts == {1}  # eager's own
    for state in optimizer.state.values():
        state["step"] += 2
    eager.step()
    parameters = [list(one.networks()["network"].parameters()) for one in models]
    torch.testing.assert_close(parameters[1], parameters[0])


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_moments_are_shared_and_counters_are_not(kind: type[torch.optim.Optimizer]) -> None:
    network = nn.Linear(3, 2)
    optimizer = kind(network.parameters())  # type: ignore[call-arg]
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    copy = copy_of(optimizer, foreach=True, fused=False)
    assert copy["param_groups"][0]["foreach"] is copy["defaults"]["foreach"] is True
    assert not optimizer.param_groups[0]["foreach"]
    StepWithCopies(optimizer.step, [(optimizer, copy)])()
    for parameter, own in optimizer.state.items():
        other = copy["state"][parameter]
        assert (int(own["step"]), int(other["step"])) == (1, 2)
        assert all(other[name] is value for name, value in own.items() if name != "step")


def test_a_copy_of_an_optimizer_that_has_not_stepped_has_a_state_of_its_own() -> None:
    network = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 3)).sum().backward()
    StepWithCopies(optimizer.step, [(optimizer, copy_of(optimizer))])()
    assert not optimizer.state
