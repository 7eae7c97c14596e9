"""Training that is not finite is not measured. It is a skip if eager is not finite either, else the backend fails."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from measuring import measure, spy

from torchzoo.backends import NotFiniteByBackend, NotRunnable
from torchzoo.case import Mode, Precision
from torchzoo.model import Model
from torchzoo.model.tensors import is_finite
from torchzoo.record import FailureKind
from torchzoo.run.failures import failure
from torchzoo.settings import Stage
from user_models import TINY

NEVER = 10**9

TRAIN = """
    bad_from = {number}

    def train_step(self):
        self.steps = getattr(self, "steps", 0) + 1
        loss = super().train_step()
        {then}
        return loss
"""


def from_step(number: int, then: str) -> str:
    """A tiny model that does something more in its training steps, from this one on."""
    return TINY + TRAIN.format(number=number, then=f"if self.steps >= self.bad_from: {then}")


WEIGHT_IS_NAN = "self.network[0].weight.data[0, 0, 0, 0] = torch.nan"
LOSS_IS_INFINITE = "loss = loss / 0"


class Window:
    """Makes a model bad from the second step on that it takes after the window has opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.models: list[Any] = []
        self.bad_from = NEVER
        spy(monkeypatch, "eager_variant", lambda model, *_: self.models.append(model))

    def open(self) -> None:
        model = self.models.pop()
        self.bad_from = type(model).bad_from = model.steps + 2


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Window:
    return Window(monkeypatch)


@pytest.fixture
def is_bad() -> Iterator[list[bool]]:
    """What Dynamo's backend `nan_maker` looks at: it runs graphs as they are, and gives NaN once something is in it."""
    bad: list[bool] = []

    def compiler(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        return lambda *args: tuple(output * torch.nan if bad else output for output in graph(*args))

    torch._dynamo.register_backend(compiler, name="nan_maker")
    yield bad
    torch._dynamo.backends.registry._BACKENDS.pop("nan_maker", None)
    torch._dynamo.backends.registry._COMPILER_FNS.pop("nan_maker", None)


def no_window() -> None:
    pytest.fail("the window must not open: there is nothing to be measured")


def test_adam_in_fp16_is_a_skip_that_names_the_first_parameter(tmp_path: Path) -> None:
    with pytest.raises(NotRunnable, match=r"^not finite after 1 training step: parameter network\.\d\.\w+$"):
        measure(tmp_path, precision=Precision.FP16, window=no_window)


@pytest.mark.parametrize(
    ("step", "then", "reason"),
    [
        (1, WEIGHT_IS_NAN, "not finite after 1 training step: parameter network.0.weight"),
        (3, WEIGHT_IS_NAN, "not finite after 3 training steps: parameter network.0.weight"),
        (4, LOSS_IS_INFINITE, "not finite after 4 training steps: the loss"),
    ],
)
def test_the_reason_names_what_is_not_finite_first_and_the_step(
    tmp_path: Path, step: int, then: str, reason: str
) -> None:
    with pytest.raises(NotRunnable) as skip:
        measure(tmp_path, from_step(step, then), backend="aot_eager", window=no_window)
    assert str(skip.value) == reason


@pytest.mark.parametrize(
    ("backend", "then", "what"),
    [
        ("eager", LOSS_IS_INFINITE, "the loss"),  # the weights stay finite
        ("aot_eager", WEIGHT_IS_NAN, "parameter network.0.weight"),
    ],
)
def test_what_is_not_finite_while_it_is_measured_is_found_after_the_window(
    tmp_path: Path, window: Window, backend: str, then: str, what: str
) -> None:
    with pytest.raises(NotRunnable) as skip:
        measure(tmp_path, from_step(NEVER, then), backend=backend, window=window.open)
    assert str(skip.value) == f"not finite after {window.bad_from} training steps: {what}"


def test_an_evaluation_may_have_infinities(tmp_path: Path) -> None:
    code = TINY + "\n    def eval_step(self):\n        return super().eval_step() / 0\n"
    measured = measure(tmp_path, code, mode=Mode.EVAL, backend="aot_eager")
    assert not any(variant.result_is_finite for variant in measured.variants.values())


BUFFER = """
    def build(self):
        super().build()
        self.network.register_buffer("extra", torch.full((2,), {value}))
"""


def test_a_buffer_may_be_infinite_from_the_start_and_not_later(tmp_path: Path) -> None:
    assert measure(tmp_path / "mask", TINY + BUFFER.format(value="-torch.inf")).blocks
    code = from_step(2, "self.network.extra /= 0") + BUFFER.format(value="1.0")
    with pytest.raises(NotRunnable, match=r"^not finite after 2 training steps: buffer network\.extra$"):
        measure(tmp_path / "statistic", code)


@pytest.mark.parametrize("stage", [Stage.COMPILE, Stage.MEASURE])
def test_a_backend_that_alone_gives_nan_fails(tmp_path: Path, is_bad: list[bool], stage: Stage) -> None:
    with pytest.raises(NotFiniteByBackend) as failed:
        measure(tmp_path, backend="nan_maker", tell=lambda now: is_bad.append(True) if now is stage else None)
    assert str(failed.value).startswith("nan_maker: not finite within ")
    assert str(failed.value).endswith("; eager alone stays finite for as many from the same start")
    outcome = failure(failed.value, Stage.COMPILE, "x.log")
    assert outcome.kind is FailureKind.NOT_FINITE


def test_the_backend_is_not_blamed_if_eager_alone_is_not_finite_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weight becomes NaN in the candidate's first step."""
    steps: list[int] = []

    def next_is_bad(model: Any, *_: Any) -> None:
        steps.append(model.steps + 1)
        type(model).bad_from = steps[0]

    spy(monkeypatch, "candidate_variant", next_is_bad)
    with pytest.raises(NotRunnable, match=r"^not finite after") as skip:
        measure(tmp_path, from_step(NEVER, WEIGHT_IS_NAN), backend="aot_eager", window=no_window)
    assert str(skip.value).startswith(f"not finite after {steps[0]} training steps: ")


COUNTED = """
    built = 0

    def build(self):
        super().build()
        self.steps = -(10**12) * Model.built
        Model.built += 1
"""


def test_chance_is_no_failure_of_eager(tmp_path: Path) -> None:
    """The first model that is built becomes NaN, and no other one."""
    with pytest.raises(NotRunnable, match=r"^not finite within [\d,]+ training steps: the loss$"):
        measure(tmp_path, from_step(3, WEIGHT_IS_NAN) + COUNTED, window=no_window)


def test_the_measured_model_is_gone_when_eager_steps_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def hold(model: Model, *_: Any) -> None:
        held.extend(weakref.ref(one) for one in (model, *model.network.parameters(), model.batch.inputs[0]))

    spy(monkeypatch, "eager_variant", hold)
    spy(monkeypatch, "why_not_measured", lambda *_: alive.append(sum(one() is not None for one in held)))
    with pytest.raises(NotRunnable):
        measure(tmp_path, from_step(9, WEIGHT_IS_NAN), backend="aot_eager")
    assert len(held) == 6
    assert alive == [0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("size", [1, 3, 100_003])
def test_one_element_that_is_not_finite_is_found(dtype: torch.dtype, value: float, size: int) -> None:
    for place in {0, size // 2, size - 1}:
        tensor = torch.full((size,), torch.finfo(dtype).max, dtype=dtype)
        assert is_finite([tensor, {"counts": torch.arange(3)}, torch.empty(0)])
        tensor[place] = value
        assert not is_finite([torch.ones(2), (tensor,)])
        assert not is_finite(tensor.expand(2, size).t())


HAS_NO_GRADIENT = TINY.replace(
    "cross_entropy(outputs, targets)",
    "cross_entropy(outputs, targets) + (self.network[0].weight * 0).abs().sqrt().sum()",
)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_training_whose_every_update_is_skipped_is_not_measured(tmp_path: Path, backend: str) -> None:
    """Its loss and weights stay finite, since nothing is learned."""
    with pytest.raises(NotRunnable, match=r"not finite after .* training steps: the gradients, so that the GradScaler"):
        measure(
            tmp_path, HAS_NO_GRADIENT, mode=Mode.TRAIN, backend=backend, precision=Precision.AMP_FP16, window=no_window
        )


def test_the_warm_up_ends_when_the_grad_scaler_has_found_its_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With so large a loss the first sixteen updates are skipped; the memory of eager must have Adam's state in it."""
    models: list[Any] = []
    spy(monkeypatch, "eager_variant", lambda model, *_: models.append(model))
    updates: list[int] = []

    def counted() -> None:
        updates.append(len(models[0].optimizer.state))

    code = TINY.replace("cross_entropy(outputs, targets)", "cross_entropy(outputs, targets) * 2.0**16")
    measured = measure(tmp_path, code, mode=Mode.TRAIN, precision=Precision.AMP_FP16, window=counted)
    assert updates[0] > 0
    assert measured.variants["eager"].result_is_finite
