"""Faults that the first step does not show: what is kept from call to call, frozen, drawn, or wrong only later."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from classifier import CPU, Classifier, check, is_right, timed_and_checked, with_network, with_scaled_gradient
from torch import Tensor, nn

from examples import CASE, SPEC
from torchzoo.case import Backend, CompileScope, Mode, ResultKind
from torchzoo.measure.check import runs as runs_module
from torchzoo.measure.check.runs import STEPS, Runs
from torchzoo.record import Check, CheckStatus

Checking = Callable[..., Check]
BOTH = pytest.mark.parametrize("checking", [check, timed_and_checked])


class Plain(Classifier):
    """Without dropout, so that the timed code can be checked in training, too."""

    def build_network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))


def from_call(number: int, change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """A compiler whose code is right in calls before this one, and wrong from it on."""

    def wrong_later(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        calls = itertools.count(1)

        def run(*args: Any) -> Any:
            results = graph(*args)
            return tuple(map(change, results)) if next(calls) >= number else results

        return run

    return wrong_later


def stretched(output: Tensor) -> Tensor:
    return output * 1.01


def with_a_wrong_gradient(output: Tensor) -> Tensor:
    return with_scaled_gradient(output, 1.05)


@BOTH
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_a_right_backend_is_correct_over_several_steps(checking: Checking, mode: Mode, backend: Any) -> None:
    found = checking(Plain, mode, backend(is_right))
    assert (found.status, found.steps, found.reason) == (CheckStatus.CORRECT, STEPS, ""), found
    assert (found.compiled_anew == "") is (checking is timed_and_checked)
    assert {one.step for one in found.comparisons} == {1}


@BOTH
@pytest.mark.parametrize(("number", "mode"), [(2, Mode.TRAIN), (2, Mode.EVAL), (3, Mode.EVAL)])
def test_what_is_wrong_from_a_later_call_on_is_incorrect_whether_it_was_timed_or_not(
    checking: Checking, mode: Mode, number: int, backend: Any
) -> None:
    found = checking(Plain, mode, backend(from_call(number, stretched)))
    assert found.status is CheckStatus.INCORRECT, found
    if checking is check:
        assert {one.step for one in found.comparisons if one.is_close is False} == {number}
        assert f"step {number}, " in found.reason


def test_what_is_wrong_long_after_the_first_calls_is_found_in_the_code_that_was_timed(backend: Any) -> None:
    """The timed code has taken two steps before the check."""
    wrong = from_call(4, stretched)
    assert timed_and_checked(Plain, Mode.EVAL, backend(wrong)).status is CheckStatus.INCORRECT


@BOTH
def test_gradients_that_are_wrong_from_the_second_call_on_are_incorrect(checking: Checking, backend: Any) -> None:
    found = checking(Plain, Mode.TRAIN, backend(from_call(2, with_a_wrong_gradient)))
    assert found.status is CheckStatus.INCORRECT, found
    assert "gradients" in found.reason


class Alternating(nn.Module):
    """As `shared/cases/p5_alternate`: every second call does more."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.more = nn.Linear(6, 3), nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        found: Tensor = self.first(x)
        return self.more(found).tanh() if self.calls % 2 == 0 else found


class WithLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)


class Counting(WithLayer):
    """Its output is another in each call: by a number, or by a tensor that is no buffer."""

    calls: Any

    def __init__(self, start: Any) -> None:
        super().__init__()
        self.calls = start

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        found: Tensor = self.layer(x)
        return found * self.calls


class KeepsTheLast(WithLayer):
    """Adds what it found in the call before."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x) + self.last.to(x.dtype)
        self.last = found.detach()
        return found


class Queue(WithLayer):
    """Keeps what it found in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        self.kept.append(found.detach())
        return torch.stack(self.kept).sum(0)


class RunningSum(WithLayer):
    """Keeps a sum in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        with torch.no_grad():
            self.total += found.mean(0)
        return found + self.total


class ChangesItsInput(WithLayer):
    def forward(self, x: Tensor) -> Tensor:
        x.mul_(0.5)
        found: Tensor = self.layer(x)
        return found


class DrawsTheSameForEver(WithLayer):
    """Compiled code draws once; eager draws in each call."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        return found + torch.rand(3)


STATES = [
    Alternating,
    lambda: Counting(0),
    lambda: Counting(torch.zeros(())),
    KeepsTheLast,
    Queue,
    RunningSum,
    ChangesItsInput,
]


@pytest.mark.parametrize("make", STATES)
def test_a_step_with_a_state_is_correct_where_the_backend_keeps_the_state(make: Callable[[], nn.Module]) -> None:
    """Step by step from the same start, whatever eager's steps depend on."""
    found = check(with_network(make), Mode.EVAL)
    assert (found.status, found.steps) == (CheckStatus.CORRECT, STEPS), found


class Frozen(nn.Module):
    """A compiled network that keeps the state which the first call has found."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            return self.network(x)  # type: ignore[no-any-return]
        return self.network.layer(x) if hasattr(self.network, "layer") else self.network.first(x)  # type: ignore[no-any-return, operator, union-attr]


@pytest.mark.parametrize("make", [make for make in STATES if make not in (ChangesItsInput, RunningSum)])
def test_a_state_that_the_candidate_freezes_is_incorrect_and_said(make: Callable[[], nn.Module]) -> None:
    found = check(with_network(lambda: Frozen(make())), Mode.EVAL, "aot_eager")
    assert found.status is CheckStatus.INCORRECT, found
    assert "the candidate has frozen them" in found.reason
    assert "step 2, outputs: output is off" in found.reason
    assert "the first step is right" in found.reason


@BOTH
def test_a_counter_that_an_exported_graph_has_fixed_is_incorrect(checking: Checking) -> None:
    found = checking(with_network(Alternating), Mode.EVAL, "export")
    assert found.status is CheckStatus.INCORRECT, found
    assert "the candidate has frozen them" in found.reason
    assert found.compiled_anew == ("nothing was timed" if checking is check else "")


class UpdatesOnce(RunningSum):
    """Where it is compiled, it changes its buffer in the first call only."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        with torch.no_grad():
            self.total += found.mean(0) * ((self.total == 0) if torch.compiler.is_compiling() else 1)
        return found + self.total


@BOTH
def test_a_buffer_that_is_updated_only_once_is_incorrect(checking: Checking) -> None:
    found = checking(with_network(UpdatesOnce), Mode.EVAL, "aot_eager")
    assert found.status is CheckStatus.INCORRECT, found
    assert "the first step is right" in found.reason


def test_an_input_that_is_changed_only_in_eager_is_incorrect(backend: Any) -> None:
    def leaves_it(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        return lambda *args: graph(*(a.clone() if isinstance(a, Tensor) else a for a in args))

    found = check(with_network(ChangesItsInput), Mode.EVAL, backend(leaves_it))
    assert found.status is CheckStatus.INCORRECT, found
    assert "step 2, outputs" in found.reason


def test_random_numbers_that_are_drawn_once_are_incorrect(backend: Any) -> None:
    def draws_once(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        kept: list[Any] = []

        def run(*args: Any) -> Any:
            kept.extend(() if kept else graph(*args))
            return tuple(kept)

        return run

    found = check(with_network(DrawsTheSameForEver), Mode.EVAL, backend(draws_once))
    assert found.status is CheckStatus.INCORRECT, found
    assert "the first step is right" in found.reason


def test_an_optimizer_whose_count_of_steps_is_frozen_is_incorrect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam corrects its moments by the number of steps. It is right in the first one."""

    def first_step_for_ever(module: Any) -> Any:
        own = module.compile_step

        def compile_step(step: Callable[[], Any], chosen: Backend) -> Callable[[], Any]:
            compiled = own(step, chosen)
            model = step.__self__  # type: ignore[attr-defined]

            def frozen() -> Any:
                for state in model.optimizer.state.values():
                    state["step"].zero_()
                return compiled()

            return frozen

        return compile_step

    from torchzoo.backends import dynamo

    monkeypatch.setattr(dynamo, "compile_step", first_step_for_ever(dynamo))
    found = check(Plain, Mode.TRAIN, "aot_eager", compile_scope=CompileScope.STEP)
    assert found.status is CheckStatus.INCORRECT, found


class NoiseGrows(Classifier):
    """From its second step on, eager itself is another each time."""

    def forward(self) -> Tensor:
        self.calls = getattr(self, "calls", 0) + 1
        found: Tensor = super().forward()
        return found * (1 + next(UNLIKE) * (self.calls > 1))


UNLIKE = itertools.count(1)


def test_only_steps_that_eager_repeats_are_judged(backend: Any) -> None:
    found = check(NoiseGrows, Mode.EVAL, backend(is_right))
    assert (found.status, found.steps) == (CheckStatus.CORRECT, 1), found


def test_later_steps_of_training_leave_loss_and_gradients_and_what_makes_no_update_no_parameters() -> None:
    case = msgspec.structs.replace(CASE, mode=Mode.TRAIN, backend=Backend("eager"), batch_size=8)
    runs = Runs(case=case, spec=SPEC, model_class=Plain, device=CPU)
    first, second, last = runs.eager_inspected()[0]
    assert {ResultKind.GRADIENTS, ResultKind.PARAMETERS} < first.values.keys()
    assert second.values.keys() == {ResultKind.LOSS}
    assert ResultKind.GRADIENTS in last.values
    assert ResultKind.PARAMETERS not in last.values


def test_a_measured_model_that_can_not_be_put_back_is_not_used(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = runs_module.StartState.restore

    def forgets_a_weight(start: Any) -> None:
        own(start)
        with torch.no_grad():
            next(tensor for tensor, _ in start._tensors if tensor.requires_grad).mul_(2)

    monkeypatch.setattr(runs_module.StartState, "restore", forgets_a_weight)
    found = timed_and_checked(Plain, Mode.TRAIN, backend(is_right))
    assert (found.status, found.compiled_anew) == (CheckStatus.CORRECT, ""), found  # a new model runs the timed code
    found = timed_and_checked(with_network(lambda: nn.Linear(6, 3)), Mode.TRAIN, "torchscript:trace")
    assert found.status is CheckStatus.CORRECT, found
    assert "put back to its start" in found.compiled_anew
