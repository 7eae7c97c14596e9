"""Networks that keep keys and values in caches of fixed size compute what they would without caches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torchzoo.model import Model
from torchzoo.zoo.catalog import find_models, load_model_class


def small_class(name: str) -> type[Model]:
    small = load_model_class(find_models().spec(name)).small()
    assert small is not None
    return small


@torch.no_grad()
def one_by_one(network: Any, tokens: Tensor) -> list[Tensor]:
    """The logits after each of the tokens, which are read one at a time."""
    return [network(tokens[:, index : index + 1], torch.tensor(index)).squeeze(1) for index in range(tokens.shape[1])]


@torch.no_grad()
def test_simple_gpt_reads_a_prompt_at_once_or_token_by_token() -> None:
    model: Any = small_class("simple_gpt")("eval", "cpu", 2)
    tokens, start = model.batch.inputs
    whole = model.network(tokens, start)
    torch.testing.assert_close(torch.stack(one_by_one(model.network, tokens), dim=1), whole, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_llama_with_complex_rotations_and_slices_is_simple_gpt() -> None:
    simple: Any = small_class("simple_gpt")("eval", "cpu", 2)
    tokens, start = simple.batch.inputs
    llama_class: Any = load_model_class(find_models().spec("llama"))
    llama: Any = type("Small", (llama_class,), {"config": simple.config})("eval", "cpu", 2)
    weights = simple.network.state_dict()
    for name in [name for name in weights if "query_key_value" in name]:
        parts = zip(("query", "key", "value"), weights.pop(name).chunk(3), strict=True)
        weights |= {name.replace("query_key_value", part): weight for part, weight in parts}
    llama.network.load_state_dict(weights)
    torch.testing.assert_close(llama.network(tokens, start), simple.network(tokens, start), rtol=1e-4, atol=1e-5)
    llama.network(tokens[:, :4], 0)
    rest = llama.network(tokens[:, 4:], 4)  # the first ones are in the cache
    torch.testing.assert_close(rest, simple.network(tokens, start)[:, 4:], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_cm3leon_generates_what_it_would_generate_without_a_cache() -> None:
    model: Any = small_class("cm3leon_generate")("eval", "cpu", 2)
    prompt, start = model.batch.inputs
    generated = model.eval_step()
    assert generated.tokens.shape == generated.scores.shape == (2, model.generated_length)
    text = torch.cat([prompt, generated.tokens], dim=1)
    for index in range(model.generated_length):
        before = text[:, : model.prompt_length + index]
        scores = F.log_softmax(model.network(before, start), dim=1)
        torch.testing.assert_close(scores.max(dim=1).values, generated.scores[:, index], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(scores.argmax(dim=1), generated.tokens[:, index])


@torch.no_grad()
def test_t5_generates_what_it_would_generate_without_caches_in_every_step() -> None:
    model_class = load_model_class(find_models().spec("hf_T5_generate"))
    sizes = {"source_length": 16, "generated_length": 6}
    model: Any = type("Short", (model_class,), sizes)("eval", "cpu", 2)
    start, source = model.batch.inputs
    generated, again = model.eval_step(), model.eval_step()
    torch.testing.assert_close(again, generated)
    read = torch.cat([start, generated.tokens[:, :-1]], dim=1)
    logits = model.network.network(input_ids=source, decoder_input_ids=read, use_cache=False).logits
    torch.testing.assert_close(logits.argmax(dim=2), generated.tokens)
    scores = F.log_softmax(logits, dim=2).max(dim=2).values
    torch.testing.assert_close(scores, generated.scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_nanogpt_samples_from_the_most_probable_tokens(batch_size: int) -> None:
    model: Any = object.__new__(load_model_class(find_models().spec("nanogpt")))
    logits = torch.randn(batch_size, 1000)
    tokens, scores = model.sample(logits)
    assert tokens.shape == scores.shape == (batch_size, 1)
    kept = logits.topk(model.candidates).values / model.temperature
    expected = logits.gather(1, tokens) / model.temperature - kept.logsumexp(dim=1, keepdim=True)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-4)
    assert (logits.gather(1, tokens) / model.temperature >= kept[:, -1:]).all()
