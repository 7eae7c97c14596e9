"""Faults that are easily hidden: by eager's own NaN, by noise, by one outlier, in caches, by a later judgement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from classifier import (
    Classifier,
    check,
    drops_a_relu,
    is_right,
    timed_and_checked,
    with_network,
    with_scaled_gradient,
)
from test_check_timed_code import WithoutDropout
from torch import Tensor, nn

from torchzoo.case import Mode, Precision, ResultKind
from torchzoo.measure.check import verdicts
from torchzoo.measure.check.check_ranks import largest_difference, numbers_of
from torchzoo.record import Check, CheckStatus


def comparison(found: Check, kind: ResultKind) -> Any:
    return next(one for one in found.comparisons if one.what is kind)


class Overflowing(nn.Linear):
    """In half precision its outputs are NaN, whatever is computed; at fp64 they are not."""

    def forward(self, x: Tensor) -> Tensor:
        found = super().forward(x)
        large = (found + 10) * 1e6
        return (large - large) + (-5 * found if torch.compiler.is_compiling() else found)


OverflowingModel = with_network(lambda: Overflowing(6, 3))


@pytest.mark.parametrize(("mode", "precision"), [(Mode.EVAL, Precision.FP16), (Mode.TRAIN, Precision.AMP_FP16)])
def test_where_eager_is_nan_a_backend_that_is_nan_is_not_correct(mode: Mode, precision: Precision) -> None:
    found = check(OverflowingModel, mode, "aot_eager", precision=precision)
    assert found.status is CheckStatus.REFERENCE_FAILED, found
    assert "rounding alone would allow anything" in found.reason


class _Roughly(torch.autograd.Function):
    """The same values; what comes back is rounded, so that eager's gradients are off by a fifth."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        base = 2.0**23 * gradient.abs().mean() * 0.9
        return (gradient + base) - base


class RoughBranch(nn.Module):
    factor: float

    def __init__(self) -> None:
        super().__init__()
        self.rough = nn.Linear(6, 3)
        self.smooth = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        rough: Tensor = _Roughly.apply(self.rough(x))
        if torch.compiler.is_compiling():
            rough = with_scaled_gradient(rough, self.factor)
        return rough + self.smooth(x)


class Rough(Classifier):
    factor = 1.7

    def build_network(self) -> nn.Module:
        network = RoughBranch()
        network.factor = self.factor
        return network


class FarOff(Rough):
    factor = -1000.0


def test_what_is_off_by_far_more_than_rounding_explains_is_wrong_though_nothing_less_can_be_judged() -> None:
    found = check(Rough, Mode.TRAIN, "aot_eager")
    assert found.status is CheckStatus.PARTLY_CORRECT
    assert comparison(found, ResultKind.GRADIENTS).tensors_not_judged == 2
    assert found.reason.startswith("nothing to judge by: gradients: for 2 of 6 tensors, network.rough.")
    found = check(FarOff, Mode.TRAIN, "aot_eager")
    assert found.status is CheckStatus.INCORRECT
    assert comparison(found, ResultKind.GRADIENTS).tensors_wrong == 2


class RoughAtTf32(RoughBranch):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.rough(x)
        has_tf32 = torch.backends.cudnn.allow_tf32
        if has_tf32:
            found = _Roughly.apply(found)
        if torch.compiler.is_compiling():
            found = with_scaled_gradient(found, 1.7 if has_tf32 else self.factor)
        return found + self.smooth(x)


@pytest.mark.usefixtures("_a_device_with_tf32")
@pytest.mark.parametrize(("factor", "status"), [(1.0, CheckStatus.CORRECT), (1.05, CheckStatus.INCORRECT)])
def test_what_tf32_leaves_open_in_part_is_judged_at_fp32(factor: float, status: CheckStatus) -> None:
    found = check(with_network(lambda: RoughAtTf32(factor)), Mode.TRAIN, "aot_eager")
    assert (found.status, found.judged_at) == (status, Precision.FP32), found
    assert found.reason.startswith("judged at fp32, since at TF32 nothing to judge by: gradients: for 2 of 6 tensors")


class AtAnEdge(nn.Module):
    """Rounding decides whether the parameter `edge` has a gradient. All others' are 1.25 times as large if compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.edge = nn.Parameter(torch.tensor([1.0]))
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        found = self.layers(x)
        if torch.compiler.is_compiling():
            found = with_scaled_gradient(found, 1.25)
        return found + torch.relu(self.edge - (1 - 1e-6)) * torch.tensor([1.0, -1.0, 0.5], dtype=found.dtype)


AtAnEdgeModel = with_network(AtAnEdge)


def test_one_gradient_that_rounding_decides_does_not_excuse_all_others() -> None:
    found = check(AtAnEdgeModel, Mode.TRAIN, "aot_eager")
    assert found.status is CheckStatus.INCORRECT, found
    assert comparison(found, ResultKind.GRADIENTS).tensors_wrong == 6


class WithBuffer(nn.Module):
    """It writes what it computes into a buffer, and another thing where it is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.make_cache()

    def make_cache(self) -> None:
        self.register_buffer("cache", torch.zeros(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        keys = self.layer(x)
        self.cache.copy_(keys * (0.5 if torch.compiler.is_compiling() else 1.0))
        return keys.sum(0)


class WithCache(WithBuffer):
    """The same in a tensor that is no buffer, as in the caches of transformers."""

    def make_cache(self) -> None:
        self.cache = torch.zeros(8, 3)
        torch._dynamo.mark_static_address(self.cache)

    def cache_tensors(self) -> dict[str, Tensor]:
        return {"cache": self.cache}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> WithCache:  # noqa: FBT001, FBT002
        super()._apply(fn, recurse)
        self.cache = fn(self.cache)
        return self


@pytest.mark.parametrize("mode", [Mode.EVAL, Mode.PREFILL])
@pytest.mark.parametrize("network", [WithBuffer, WithCache])
def test_a_cache_that_is_filled_wrongly_is_found(network: type[nn.Module], mode: Mode) -> None:
    class Filling(Classifier):
        def build_network(self) -> nn.Module:
            return network()

        @torch.no_grad()
        def prefill_step(self) -> Any:
            return self.forward()

    found = check(Filling, mode, "aot_eager")
    assert found.status is CheckStatus.INCORRECT, found
    assert "state: network.cache is off by 0.5 " in found.reason
    assert comparison(found, ResultKind.OUTPUTS).is_close is True
    assert check(Filling, mode).status is CheckStatus.CORRECT


class MakesBuffer(nn.Module):
    """Its first call makes a buffer, a plain attribute behind AOTAutograd (`benchmarks/faults/lost_buffer.py`)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "scale"):
            self.scale = nn.Buffer(torch.full((3,), 2.0))
        return self.layer(x) * self.scale


def test_a_floating_buffer_that_the_first_step_makes_is_compared() -> None:
    making = with_network(MakesBuffer)
    found = check(making, Mode.EVAL, "aot_eager")
    assert found.status is CheckStatus.INCORRECT, found
    assert "state: network.scale is not finite where it should be, missing or of another shape" in found.reason
    assert check(making, Mode.EVAL).status is CheckStatus.CORRECT


class Masked(nn.Module):
    """Beside its mask, which is nearly infinite, a running mean is nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mask", torch.full((3,), torch.finfo(torch.float32).min))
        self.register_buffer("running", torch.zeros(3))
        self.register_buffer("count", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x)
        with torch.no_grad():
            self.running.copy_(found.mean(0) * (0.5 if torch.compiler.is_compiling() else 1.0))
        return found


MaskedModel = with_network(Masked)


def test_a_huge_buffer_does_not_hide_others() -> None:
    found = check(MaskedModel, Mode.TRAIN, "aot_eager")
    assert found.status is CheckStatus.INCORRECT, found
    assert "buffers: network.running is off by 0.5 " in found.reason


class Shifted(nn.Linear):
    """Where it is compiled, the gradient of its bias is off by 0.3%."""

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias
        if torch.compiler.is_compiling():
            bias = bias + (bias - bias.detach()) * 0.003
        return nn.functional.linear(x, self.weight, bias)


OffByLittle = with_network(
    lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), Shifted(16, 3))
)


def test_a_single_gradient_that_is_off_by_little_is_incorrect() -> None:
    found = check(OffByLittle, Mode.TRAIN, "aot_eager")
    assert found.status is CheckStatus.INCORRECT, found
    assert "gradients: network.4.bias is off by " in found.reason


@pytest.mark.usefixtures("_a_device_with_tf32")
def test_what_was_found_stays_where_there_is_no_memory_to_judge_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def available_bytes() -> float:
        nonlocal asked
        asked += 1
        return 1e12 if asked == 1 else 0.0

    monkeypatch.setattr(verdicts, "available_bytes", available_bytes)
    found = check(with_network(lambda: RoughAtTf32(1.0)), Mode.TRAIN, "aot_eager")
    assert asked > 1
    assert (found.judged_at, comparison(found, ResultKind.GRADIENTS).tensors_not_judged) == (None, 2), found


def test_timed_code_that_fails_is_the_cases_failure(backend: Callable[..., str]) -> None:
    calls = 0

    def fails_later(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        run = is_right(graph, inputs)

        def counted(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 2:
                raise ArithmeticError("the timed code's own error")
            return run(*args)

        return counted

    with pytest.raises(ArithmeticError, match="the timed code's own error"):
        timed_and_checked(WithoutDropout, Mode.EVAL, backend(fails_later))


def test_a_step_that_returns_nothing_is_not_correct(backend: Callable[..., str]) -> None:
    class Silent(Classifier):
        def eval_step(self) -> None:
            super().eval_step()

    found = check(Silent, Mode.EVAL, backend(drops_a_relu))
    assert (found.status, found.reason) == (
        CheckStatus.REFERENCE_FAILED,
        "the results can't be compared: the step returns nothing",
    )


def test_the_numbers_of_an_output_on_several_ranks_see_signs_order_and_whole_numbers() -> None:
    output = torch.randn(7, 5, generator=torch.Generator().manual_seed(1))
    numbers = numbers_of((output, torch.arange(4)))
    assert largest_difference(numbers, numbers_of((output * (1 + 1e-6), torch.arange(4)))) < 1e-5
    for other in (-output, output.flip(0), output.roll(1), output * 1.1):
        assert largest_difference(numbers_of((other, torch.arange(4))), numbers) > 0.09
    assert largest_difference(numbers_of((output, torch.arange(4).flip(0))), numbers) > 0.01
    assert numbers_of(torch.tensor(3.0)) == [3.0]
