"""tacotron2 works on a batch like 64 random clips of LJ Speech, and does not attend to padding."""

from __future__ import annotations

import pytest
import torch

from torchzoo.zoo.catalog import find_models, load_model_class


def test_a_batch_is_padded_as_64_random_clips_of_lj_speech_are() -> None:
    """The longest of 64 texts has 152 to 182 symbols in 90% of draws, the longest clip 841 to 870 frames."""
    batch = load_model_class(find_models().spec("tacotron2"))("train", "cpu", 64).batch
    assert 152 <= batch["text"].shape[1] <= 182
    assert batch["text"].shape == batch["padding"].shape
    assert 841 <= batch["mels"].shape[2] <= 870
    assert batch["mels"].shape[2] == batch["mask"].shape[1]
    text_lengths, frame_counts = (~batch["padding"]).sum(dim=1).double(), batch["mask"].sum(dim=1)
    assert text_lengths.mean() == pytest.approx(100, rel=0.1)  # of all texts
    assert frame_counts.mean() == pytest.approx(567, rel=0.1)  # of all clips


def test_attention_ignores_what_follows_the_end_of_a_text() -> None:
    model = load_model_class(find_models().spec("tacotron2"))("eval", "cpu", 2)
    attention = model.networks()["decoder"].attention
    keys = torch.randn(2, 6, 128)
    hidden, weights = torch.randn(2, 1024), torch.zeros(2, 6)
    padding = torch.arange(6) >= torch.tensor([[6], [4]])
    attended = attention(hidden, keys, padding, weights, weights)
    assert not attended[padding].any()
    torch.testing.assert_close(attended.sum(dim=1), torch.ones(2))
    keys[padding] += 1.0
    torch.testing.assert_close(attention(hidden, keys, padding, weights, weights), attended)
