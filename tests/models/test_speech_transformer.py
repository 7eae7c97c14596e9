"""speech_transformer decodes with caches: the logits are those of the whole prefix, the work is a small part of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map

from torchzoo.measure.passes.flops import count_work
from torchzoo.zoo.catalog import find_models, load_model_class
from torchzoo_models._shared.transformer_model import TransformerModel, new_cache


def build(device: str) -> TransformerModel:
    model = load_model_class(find_models().spec("speech_transformer"))("eval", device, 1)
    assert isinstance(model, TransformerModel)
    return model


@torch.no_grad()
def test_logits_with_caches_are_those_of_the_whole_prefix() -> None:
    model = build("cpu")
    encoded, hidden = model.network.encoder(*model.batch.inputs)
    memory = model.network.memory(encoded)
    tokens = torch.randint(4, model.config.vocabulary_size, (1, 6), generator=torch.Generator().manual_seed(0))
    caches = tree_map(lambda looked_up: new_cache(looked_up, 6), memory)
    for position in range(6):
        logits, caches = model.decoder_step(tokens[:, position], torch.tensor(position), memory, hidden, caches)
        whole = model.network.decoder(tokens[:, : position + 1], memory, hidden)[:, -1]
        torch.testing.assert_close(logits, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_decoding_again_from_the_first_character_each_time_would_be_fifty_times_the_work() -> None:
    """The original's decoding: for each hypothesis and character, the memory's keys and values and the whole prefix."""
    model = build("meta")
    width, vocabulary_size = model.config.width, model.config.vocabulary_size
    encoded = torch.empty(1, model.longest_source, width, device="meta")
    hidden = torch.empty(1, 1, 1, model.longest_source, dtype=torch.bool, device="meta")

    @torch.no_grad()
    def operations(length: int) -> int:
        """For one hypothesis and one character, the logits of the last position only."""
        prefix = torch.zeros(1, length, dtype=torch.int64, device="meta")
        call = count_work(lambda: model.network.decoder(prefix, model.network.memory(encoded), hidden))
        return call.total - (length - 1) * 2 * width * vocabulary_size

    lengths = np.arange(1, model.decoding_length + 1)
    samples = [1, 50, 100]
    by_length = np.polyval(np.polyfit(samples, [operations(length) for length in samples], deg=2), lengths)
    hypotheses = np.where(lengths == 1, 1, model.beam_size)
    encoder = count_work(lambda: model.network.encoder(*model.batch.inputs)).total
    assert (encoder + by_length @ hypotheses) / count_work(model.eval_step).total == pytest.approx(52, abs=1)
