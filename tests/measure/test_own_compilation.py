"""Networks that call a compiler themselves: no step of theirs is eager."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

from torchzoo.backends import NotRunnable
from torchzoo.case import Mode
from torchzoo.measure.compilation import require_eager, watch_compilation
from torchzoo.model.tasks import Batch, SupervisedModel

compiled = functools.partial(torch.compile, backend="aot_eager")
uncompiled: Callable[..., Callable[[Tensor], Tensor]] = torch.compiler.disable


def cosine(x: Tensor) -> Tensor:
    return x.cos() + 1


@compiled
def decorated(x: Tensor) -> Tensor:
    return x.sin() + 2


def compiles_in_its_step(x: Tensor) -> Tensor:
    return compiled(cosine)(x)


class Cosine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return cosine(x)


def own_compile(module: nn.Module) -> nn.Module:
    module.compile(backend="aot_eager")
    return module


class Network(nn.Module):
    """Linear, then what the test gives it."""

    def __init__(self, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.then = nn.Linear(8, 8), then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.linear(x))


class Model(SupervisedModel):
    then: Callable[[], Callable[[Tensor], Tensor]]

    def build_network(self) -> nn.Module:
        return Network(type(self).then())

    def build_batch(self) -> Batch:
        return Batch((self.data.uniform(self.batch_size, 4, 8),), self.data.uniform(self.batch_size, 4, 8))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs, targets)


def step_of(then: Callable[[], Callable[[Tensor], Tensor]]) -> None:
    """Take steps, as a warm-up in eager does, and require that nothing was compiled."""
    model = type("Made", (Model,), {"then": staticmethod(then)})(Mode.EVAL, "cpu", 2, seed=0)
    watch = watch_compilation()
    for _ in range(3):
        model.measured_step()
    require_eager(model, watch)


@pytest.mark.parametrize(
    "then",
    [
        lambda: compiled(cosine),
        lambda: torch.compile(cosine, backend="eager"),
        lambda: decorated,
        lambda: compiles_in_its_step,
        lambda: compiled(Cosine()),
        lambda: own_compile(Cosine()),
        lambda: nn.Sequential(nn.ReLU(), compiled(Cosine())),
    ],
)
def test_a_network_that_compiles_itself_is_a_skip(then: Callable[[], Callable[[Tensor], Tensor]]) -> None:
    with pytest.raises(NotRunnable, match=r"calls torch.compile itself \(\d+ graphs? compiled\)"):
        step_of(then)


def test_a_part_in_torchscript_is_a_skip_that_names_it() -> None:
    with pytest.raises(NotRunnable, match=r"network\.then\.0 is compiled by TorchScript"):
        step_of(lambda: nn.Sequential(torch.jit.script(Cosine())))


def attends_alone(x: Tensor) -> Tensor:
    x = x[:, None]  # (B, 1, T, C)
    found: Tensor = flex_attention(x, x, x)
    return found[:, 0]


def chooses(x: Tensor) -> Tensor:
    found: Tensor = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    return found


@pytest.mark.parametrize(
    "then",
    [
        lambda: cosine,
        lambda: uncompiled(cosine),
        lambda: uncompiled(compiled(cosine)),
        lambda: attends_alone,
        lambda: chooses,
    ],
)
def test_a_network_that_leaves_compiling_to_the_backend_is_eager(
    then: Callable[[], Callable[[Tensor], Tensor]],
) -> None:
    step_of(then)
