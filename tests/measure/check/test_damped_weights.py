"""Where a network amplifies rounding so much that little is left to judge by, it is judged with damped weights.

Which side of zero rounding decides on depends on how kernels add. The networks here add at fp64 and round to bf16
themselves, so that each processor finds the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from classifier import CPU, Classifier, Compilers, check, timed_and_checked, with_network, with_scaled_gradient
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.case import Mode, Precision, ResultKind
from torchzoo.measure.check.judging import JudgedResult
from torchzoo.measure.check.rounding import RAISED_BY, damp_weights
from torchzoo.measure.check.verdicts import _amplifies_rounding
from torchzoo.model.tasks import Batch
from torchzoo.record import CheckStatus, ResultComparison

WIDTH, EXPANDED = 8, 32
IN_OTHER_WORDS = (
    f"judged with the biases of its normalizations raised by {RAISED_BY:g}, since with its own nothing to judge by"
)


def at_fp64(compute: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """Compute at fp64. Under autocast, round the operands and the result to bf16, as its kernels do."""
    is_rounded = torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", enabled=False):
        result = compute(*(one.bfloat16().double() if is_rounded else one.double() for one in operands))
        return result.bfloat16() if is_rounded else result.to(operands[0].dtype)


class Convolution(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        padding, groups = self.padding, self.groups
        return at_fp64(lambda x, weight: F.conv2d(x, weight, padding=padding, groups=groups), x, self.weight)


class BatchNorm(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return at_fp64(
            lambda x, *affine: F.batch_norm(x, None, None, *affine, training=True), x, self.weight, self.bias
        )


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return at_fp64(lambda x: x.mean((2, 3)), x)


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return at_fp64(F.linear, x, self.weight, self.bias)


class Block(nn.Module):
    """An inverted residual of MobileNetV2."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            Convolution(WIDTH, EXPANDED, 1, bias=False),
            BatchNorm(EXPANDED),
            nn.ReLU(),
            Convolution(EXPANDED, EXPANDED, 3, padding=1, groups=EXPANDED, bias=False),
            BatchNorm(EXPANDED),
            nn.ReLU(),
            Convolution(EXPANDED, WIDTH, 1, bias=False),
            BatchNorm(WIDTH),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.body(x)
        return out


class Amplifying(Classifier):
    """Its many layers amplify rounding: of many gradients in bf16, nobody can say whether they are right."""

    blocks = 8

    def build_network(self) -> nn.Module:
        stem = [Convolution(3, WIDTH, 3, padding=1, bias=False), BatchNorm(WIDTH), nn.ReLU()]
        return nn.Sequential(*stem, *(Block() for _ in range(self.blocks)), Mean(), Linear(WIDTH, 3))

    def build_batch(self) -> Batch:
        return Batch((self.data.uniform(16, 3, 8, 8),), self.data.labels(16, 3))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.double(), targets)


class AmplifyingMore(Amplifying):
    """Of more of them."""

    blocks = 12


def rounds_otherwise(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """As right as eager, but its weights differ by a rounding to bf16."""

    def rounded(x: Any) -> Any:
        if not (isinstance(x, Tensor) and x.requires_grad):
            return x
        signs = torch.randint(-1, 2, x.shape, generator=torch.Generator().manual_seed(7))
        return x * (1 + 2**-9 * signs)

    return lambda *args: graph(*map(rounded, args))


def stretches_gradients(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """Those of all convolutions."""
    run = rounds_otherwise(graph, _)

    def stretched(x: Any) -> Any:
        is_weight = isinstance(x, Tensor) and x.requires_grad and x.ndim == 4
        return with_scaled_gradient(x, 1.5) if is_weight else x

    return lambda *args: run(*map(stretched, args))


@pytest.mark.parametrize("model_class", [Amplifying, pytest.param(AmplifyingMore, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("compiler", "status"), [(rounds_otherwise, CheckStatus.CORRECT), (stretches_gradients, CheckStatus.INCORRECT)]
)
def test_where_rounding_is_amplified_the_timed_code_is_judged_with_damped_weights(
    backend: Callable[..., str],
    compiler: Callable[..., Any],
    status: CheckStatus,
    model_class: type[Amplifying],
) -> None:
    compilers = Compilers(backend, compiler)
    found = timed_and_checked(model_class, Mode.TRAIN, compilers.name, precision=Precision.AMP)
    assert found.status is status, found
    assert found.reason.startswith(f"{IN_OTHER_WORDS}: gradients: for ")
    assert compilers.graphs == 1  # weights are inputs: nothing is compiled anew
    (gradients,) = [one for one in found.comparisons if one.what is ResultKind.GRADIENTS]
    assert gradients.tensors_not_judged < gradients.tensors / 4


def judged(what: ResultKind, allowed: list[float]) -> JudgedResult:
    comparison = ResultComparison(
        what=what, worst="0", error=0.1, eager_error=0.1, tolerance=0.05, is_close=True, tensors=len(allowed)
    )
    errors = dict.fromkeys(map(str, range(len(allowed))), 0.1)
    return JudgedResult(comparison, errors, dict(zip(errors, allowed, strict=True)))


def test_rounding_is_amplified_where_it_makes_more_than_a_tenth_of_the_gradients_useless() -> None:
    assert not _amplifies_rounding(judged(ResultKind.GRADIENTS, [0.8] * 9 + [1.0]))
    assert _amplifies_rounding(judged(ResultKind.GRADIENTS, [0.1] * 8 + [1.0] * 2))
    assert not _amplifies_rounding(judged(ResultKind.PARAMETERS, [1.0] * 10))  # may be twice as far off


def test_what_looks_wrong_with_damped_weights_stays_open_while_rounding_is_still_amplified(
    backend: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchzoo.measure.check.verdicts._amplifies_rounding", lambda _: True)
    found = timed_and_checked(Amplifying, Mode.TRAIN, backend(stretches_gradients), precision=Precision.AMP)
    assert found.status is not CheckStatus.INCORRECT
    assert found.reason.startswith("nothing to judge by: gradients: for ")


class Deep(Classifier):
    """Rounding to TF32 is enough for it."""

    def build_network(self) -> nn.Module:
        layers = [[nn.Linear(EXPANDED, EXPANDED, bias=False), nn.BatchNorm1d(EXPANDED), nn.ReLU()] for _ in range(24)]
        return nn.Sequential(nn.Linear(6, EXPANDED), *itertools.chain(*layers), nn.Linear(EXPANDED, 3))


def scales_inside_where_tf32_is_allowed(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    def stretched(x: Any) -> Any:
        is_inside = isinstance(x, Tensor) and x.shape == (EXPANDED, EXPANDED)
        return with_scaled_gradient(x, 1.5) if is_inside else x

    return lambda *args: graph(*(map(stretched, args) if torch.backends.cudnn.allow_tf32 else args))


@pytest.mark.usefixtures("_a_device_with_tf32")
def test_at_tf32_fp32_decides_what_looks_wrong_with_damped_weights(backend: Callable[..., str]) -> None:
    found = check(Deep, Mode.TRAIN, backend(scales_inside_where_tf32_is_allowed))
    assert (found.status, found.judged_at) == (CheckStatus.CORRECT, Precision.FP32), found


class Normalized(Classifier):
    """A normalization of each kind, and one layer that stands in two places."""

    def build_network(self) -> nn.Module:
        shared = nn.BatchNorm1d(6)
        return nn.Sequential(
            shared, shared, nn.BatchNorm1d(6, affine=False), nn.GroupNorm(2, 6), nn.LayerNorm(6), nn.Linear(6, 3)
        )


def test_each_bias_of_a_batch_instance_or_group_normalization_is_raised_once() -> None:
    model = Normalized(Mode.TRAIN, CPU, 4)
    (network,) = model.networks().values()
    before = {name: parameter.clone() for name, parameter in network.named_parameters()}
    damp_weights(model)
    raised = {name for name, parameter in network.named_parameters() if not torch.equal(parameter, before[name])}
    assert raised == {"0.bias", "3.bias"}
    assert torch.equal(network.state_dict()["0.bias"], torch.full((6,), RAISED_BY))


class _Branches(nn.Module):
    """One that is easy to judge, and a small part of one in which rounding decides everything."""

    def __init__(self) -> None:
        super().__init__()
        self.calm = nn.Sequential(Linear(6, 6), nn.Tanh(), Linear(6, 6), nn.Tanh(), Linear(6, 3))
        self.wild = Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.calm(x) + 1e-3 * torch.sin(1000 * self.wild(x))
        return out


Partly = with_network(_Branches)


def test_a_partly_correct_result_says_what_could_not_be_judged(backend: Callable[..., str]) -> None:
    found = check(Partly, Mode.TRAIN, backend(rounds_otherwise), precision=Precision.AMP)
    assert found.status is CheckStatus.PARTLY_CORRECT, found
    assert found.reason.startswith("nothing to judge by: gradients: for 2 of 8 tensors, network.wild.")
