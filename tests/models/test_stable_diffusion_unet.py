"""The noise that Stable Diffusion's U-Net is trained to take away."""

from __future__ import annotations

from typing import Any

import torch

from torchzoo.zoo.catalog import find_models, load_model_class


def test_noisy_latents_and_velocity_give_latents_and_noise_back() -> None:
    small = load_model_class(find_models().spec("stable_diffusion_unet")).small()
    assert small is not None
    model: Any = small("train", "cpu", 8)
    clean, noise = torch.randn(2, 8, 4, 16, 16)
    times, of_clean, of_noise = model.draw_times(clean)
    assert times.unique().numel() > 1
    assert (of_clean.flatten()[times.argsort()].diff() <= 0).all()  # the later, the noisier
    model.data.generator.manual_seed(0)  # for the same times
    times, of_clean, of_noise = model.draw_times(clean)
    model.data.generator.manual_seed(0)
    noisy, same_times, velocity = model.add_noise(clean, noise)
    torch.testing.assert_close(same_times, times)
    torch.testing.assert_close(of_clean * noisy - of_noise * velocity, clean, rtol=0, atol=1e-5)
    torch.testing.assert_close(of_noise * noisy + of_clean * velocity, noise, rtol=0, atol=1e-5)
