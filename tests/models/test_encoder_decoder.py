"""Decoding with the caches of an encoder-decoder: a step gives what the network gives without caches, each time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiled_once import assert_compiled_once
from torch import Tensor, nn
from transformers import WhisperConfig, WhisperForConditionalGeneration

from torchzoo.case import Mode, Precision
from torchzoo.measure.precision import apply_precision
from torchzoo_models._shared.encoder_decoder import CachedDecoder, SpeechRecogniser, decoder_bytes_read

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "num_mel_bins": 8,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_source_positions": 10,
    "max_target_positions": 24,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
}
BATCH, PROMPT, CACHE = 3, 12, 24


def whisper() -> WhisperForConditionalGeneration:
    return WhisperForConditionalGeneration(WhisperConfig(**SIZES, use_cache=False))


class Tiny(SpeechRecogniser):
    mel_bands, frame_count, state_count = 8, 20, 10
    target_length, cache_length = 6, CACHE

    def build_network(self) -> nn.Module:
        return whisper()


def tokens(length: int) -> Tensor:
    return torch.randint(0, SIZES["vocab_size"], (BATCH, length), generator=torch.Generator().manual_seed(length))


@torch.no_grad()
def test_decoding_goes_on_after_the_cached_tokens_each_time() -> None:
    torch.manual_seed(0)
    network = whisper().eval()
    prompt, following = tokens(PROMPT), tokens(1)
    states = torch.randn(BATCH, SIZES["max_source_positions"], SIZES["d_model"])
    expected = network(decoder_input_ids=torch.cat([prompt, following], dim=1), encoder_outputs=(states,)).logits
    cached = CachedDecoder(network, prompt, states, length=CACHE, cached=0)
    cached.rewind()
    torch.testing.assert_close(cached(prompt, states), expected[:, -2:-1], rtol=1e-4, atol=1e-5)
    cached.cached = PROMPT
    cached._find_lengths()
    for given in (states, states, torch.zeros_like(states)):  # a call reads the cache of the states, not the states
        cached.rewind()
        torch.testing.assert_close(cached(following, given), expected[:, -1:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP64], ids=str)
def test_both_caches_are_cast_with_the_network(precision: Precision) -> None:
    model = Tiny(Mode.DECODE, "cpu", BATCH)
    apply_precision(model, precision)
    assert isinstance(model.network, CachedDecoder)
    held = [tensor for *_, tensor in model.network._held() if tensor.is_floating_point()]
    assert len(held) == 2 * 2 * SIZES["decoder_layers"]  # keys and values of both caches, in the decoder's layers only
    assert {tensor.dtype for tensor in held} == {torch.bfloat16 if precision is Precision.BF16 else torch.float64}
    first = model.decode_step()
    assert first.shape == (BATCH, 1, SIZES["vocab_size"])
    assert bool(torch.isfinite(first).all())
    torch.testing.assert_close(model.decode_step(), first, rtol=0, atol=0)  # nothing is left behind by a step


def test_a_step_of_decoding_depends_on_both_caches() -> None:
    model = Tiny(Mode.DECODE, "cpu", BATCH)
    assert isinstance(model.network, CachedDecoder)
    before = model.decode_step()
    for cache in (model.network.cache.self_attention_cache, model.network.cache.cross_attention_cache):
        values: Tensor = cache.layers[0].values  # type: ignore[assignment]
        kept = values.clone()
        values.zero_()
        assert not torch.allclose(model.decode_step(), before)
        values.copy_(kept)


def test_what_each_mode_works_on() -> None:
    train, evaluated, decode = (Tiny(mode, "cpu", BATCH) for mode in (Mode.TRAIN, Mode.EVAL, Mode.DECODE))
    assert torch.isfinite(train.train_step())
    assert evaluated.eval_step().shape == (BATCH, SIZES["max_source_positions"], SIZES["d_model"])
    assert [model.sample_unit for model in (train, evaluated, decode)] == ["recordings", "recordings", "tokens"]
    assert evaluated.bytes_read_per_step is None
    width, layers, feed = SIZES["d_model"], SIZES["decoder_layers"], SIZES["decoder_ffn_dim"]
    attentions = (4 + 2) * width**2 + (3 + 2) * width  # self-attention, and cross-attention without keys and values
    layer = attentions + 2 * width * feed + feed + width + 3 * 2 * width
    weights = layers * layer + SIZES["vocab_size"] * width + 2 * width
    caches = 2 * layers * BATCH * (CACHE + SIZES["max_source_positions"]) * width
    assert decode.bytes_read_per_step == pytest.approx(4 * (weights + caches), abs=100)  # and the lengths
    assert decoder_bytes_read(whisper()) == 4 * weights


def test_a_compiled_step_gives_the_same_without_compiling_again() -> None:
    assert_compiled_once(Tiny(Mode.DECODE, "cpu", BATCH))
