"""dac_44khz: what its discriminators see, and who learns in which part of a train step."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from torchzoo.zoo.catalog import find_models, load_model_class

MODEL_CLASS: Any = load_model_class(find_models().spec("dac_44khz"))
PARTS: Any = sys.modules[f"{MODEL_CLASS.__module__}.discriminators"]


@pytest.fixture
def model() -> Any:
    return MODEL_CLASS.small()("train", "cpu", 1)


def test_a_period_discriminator_sees_samples_of_each_phase_apart() -> None:
    discriminator = PARTS.PeriodDiscriminator(5, (2, 3))
    audio = torch.randn(1, 200)
    changed = audio.clone()
    changed[0, 5 * 10 + 3] += 1
    for before, after in zip(discriminator(audio), discriminator(changed), strict=True):
        differs = (before != after).any(dim=(0, 1, 2))  # (P,)
        assert not differs[[0, 1, 2, 4]].any()


@pytest.mark.parametrize("window", PARTS.WINDOWS)
def test_a_spectrum_has_a_frame_for_each_hop_and_the_tone_in_its_bin(window: int) -> None:
    discriminator = PARTS.SpectrumDiscriminator(window, 2)
    samples = 8 * window
    tone = (2 * torch.pi * 0.3 * torch.arange(samples)).sin().unsqueeze(0)
    spectrum = discriminator.spectrum(tone)
    assert spectrum.shape == (1, 2, samples // (window // 4), window // 2 + 1)
    loudest = spectrum.square().sum(1)[0].argmax(1)  # of each frame
    assert (loudest[3:-3] - 0.3 * window).abs().max() <= 1
    assert sum(discriminator.band_widths) == window // 2 + 1


def test_losses_are_zero_where_their_aim_is_reached() -> None:
    fake, real = ([[torch.ones(3), torch.full((2,), score)]] for score in (0.0, 1.0))
    assert PARTS.discriminator_loss(fake, real) == 0
    assert PARTS.discriminator_loss(real, fake) == 2
    assert (PARTS.adversarial_loss(fake), PARTS.adversarial_loss(real)) == (1, 0)
    assert PARTS.feature_loss(fake, real) == 0  # scores do not count
    assert PARTS.feature_loss([[torch.zeros(3), real[0][1]]], real) == 1


def test_discriminators_and_codec_learn_each_in_its_turn(model: Any) -> None:
    def state(network: Any) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in network.named_parameters()}

    codec, judges = state(model.network), state(model.discriminators)
    model.update_discriminators(model.forward().audio_values.detach())
    torch.testing.assert_close(state(model.network), codec, rtol=0, atol=0)
    assert all((tensor != judges[name]).any() for name, tensor in state(model.discriminators).items())
    judges = state(model.discriminators)
    before = model.discriminator_optimizer.step
    model.discriminator_optimizer.step = lambda: None
    model.train_step()
    model.discriminator_optimizer.step = before
    torch.testing.assert_close(state(model.discriminators), judges, rtol=0, atol=0)
    assert all((tensor != codec[name]).any() for name, tensor in state(model.network).items())


def test_the_codec_learns_from_what_the_discriminators_find(model: Any) -> None:
    audio = torch.randn_like(model.batch.targets, requires_grad=True)
    fake, real = model.discriminators(audio), model.discriminators(model.batch.targets)
    for loss in (PARTS.adversarial_loss(fake), PARTS.feature_loss(fake, real)):
        (gradient,) = torch.autograd.grad(loss, audio, retain_graph=True)
        assert (gradient != 0).any(dim=1).all()
