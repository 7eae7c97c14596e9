"""speech_transformer decodes with caches: the logits are those of the whole prefix, the work is a small part of it."""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_map

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
