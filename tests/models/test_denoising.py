"""Denoising: what is added to latents is what the network should find, and a step takes its prediction for that."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from diffusers import DDPMScheduler
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.model import Inputs
from torchzoo_models._shared.denoising import Denoiser, FlowMatching, NoisePrediction

BATCH, LATENTS = 3, (2, 4, 4)


class Prediction:
    def __init__(self, sample: Tensor) -> None:
        self.sample = sample


class Scaled(nn.Module):
    """Gives its latents, times a weight. It needs the times."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, latents: Tensor, times: Tensor) -> Prediction:
        assert times.shape == (len(latents),)
        return Prediction(self.weight * latents)


class Tiny(Denoiser):
    train_latents = LATENTS
    eval_latents = (2, 8, 8)
    sizes: ClassVar[dict[str, int]] = {"layers": 20, "width": 3}
    small_sizes: ClassVar[dict[str, int]] = {"layers": 2}
    small_data: ClassVar[dict[str, tuple[int, ...]]] = {"eval_latents": (2, 2, 2)}

    def build_network(self) -> nn.Module:
        return Scaled()

    def build_inputs(self, latents: Tensor, times: Tensor) -> Inputs:
        return {"latents": latents, "times": times}


class TinyNoise(NoisePrediction, Tiny):
    pass


class TinyFlow(FlowMatching, Tiny):
    pass


def made(model: Denoiser) -> tuple[Tensor, ...]:
    """Clean latents and noise, and what the model makes of them."""
    clean, noise = torch.randn(BATCH, *LATENTS), torch.randn(BATCH, *LATENTS)
    return clean, noise, *model.add_noise(clean, noise)


def test_noise_is_added_as_the_scheduler_of_the_library_does_it() -> None:
    clean, noise, noisy, times, target = made(TinyNoise(Mode.TRAIN, "cpu", BATCH))
    scheduler = DDPMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear")
    torch.testing.assert_close(noisy, scheduler.add_noise(clean, noise, times))
    assert target is noise


def test_a_flow_goes_from_the_data_to_the_noise_at_the_target_velocity() -> None:
    clean, noise, noisy, times, velocity = made(TinyFlow(Mode.TRAIN, "cpu", BATCH))
    time = times.view(-1, 1, 1, 1)
    assert bool(((times > 0) & (times < 1)).all())
    torch.testing.assert_close(noisy - time * velocity, clean)
    torch.testing.assert_close(noisy + (1 - time) * velocity, noise)


@pytest.mark.parametrize("kind", [TinyNoise, TinyFlow])
def test_a_step_compares_the_prediction_with_the_target(kind: type[Denoiser]) -> None:
    model = kind(Mode.TRAIN, "cpu", BATCH)
    error = model.batch.inputs["latents"] - model.batch.targets  # type: ignore[call-overload]
    assert model.train_step().item() == pytest.approx(error.square().mean().item())
    evaluated = kind(Mode.EVAL, "cpu", BATCH)
    assert evaluated.eval_step().shape == (BATCH, 2, 8, 8)
    assert evaluated.batch.targets is None


def test_the_small_form_has_other_sizes_and_the_same_rest() -> None:
    small = TinyFlow.small()
    assert small is not None
    assert issubclass(small, TinyFlow)
    assert small.sizes == {"layers": 2, "width": 3}
    assert small(Mode.EVAL, "cpu", BATCH).eval_step().shape == (BATCH, 2, 2, 2)
    assert type("Whole", (TinyFlow,), {"small_sizes": {}}).small() is None
