"""Networks that keep keys and values in caches of fixed size compute what they would without caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from in_this_process import torchzoo
from torchzoo.case import Mode
from torchzoo.model import Model
from torchzoo.record import CheckStatus, Measured
from torchzoo.store import read_run
from torchzoo.zoo.catalog import find_models, load_model_class
from user_models import METADATA, make_folder

SMALL_SIMPLE_GPT = '''"""simple_gpt in its small form (torchzoo's tests, 2026)."""

from torchzoo.zoo.catalog import find_models, load_model_class

Model = load_model_class(find_models().spec("simple_gpt")).small()
'''


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


@pytest.mark.slow
@pytest.mark.xdist_group("run")
def test_two_ranks_of_simple_gpt_with_half_of_the_heads_each_compute_what_one_device_computes(tmp_path: Path) -> None:
    model: Any = small_class("simple_gpt")("eval", "cpu", 1)
    parameters = sum(parameter.numel() for parameter in model.network.parameters())
    modes = "batch_size: {eval: 1, decode: 1}\ntokens: {prompt: 10, cache: 32}\nskips: [{mode: train, reason: none}]"
    metadata = METADATA.replace("batch_size: {train: 4, eval: 4}", modes).replace("72", str(parameters))
    make_folder(tmp_path / "zoo", "small_gpt", SMALL_SIMPLE_GPT, metadata.replace("size: 2", "size: 1"))
    words = ["small_gpt", "--models-dir", tmp_path / "zoo", "-d", "cpu", "--time-limit", 0.2, "-o", tmp_path / "run"]
    words += ["-t", "eval,decode", "--world", "1,2", "--parallel", "tp", "--check", "--threads", "1", "-q"]
    done = torchzoo("run", *words)
    assert done.returncode == 0, done.stderr
    found = {(str(one.case.mode), one.case.world): one.outcome for one in read_run(tmp_path / "run").records}
    assert set(found) == {("eval", 1), ("eval", 2), ("decode", 1), ("decode", 2)}
    for (mode, world), outcome in found.items():
        assert isinstance(outcome, Measured)
        assert outcome.check is not None
        assert outcome.check.status is CheckStatus.CORRECT, outcome.check.reason
        assert (outcome.bytes_read_per_step is not None) == (mode == Mode.DECODE and world == 1)
        if world == 2:
            moved = {one.name: (one.calls, one.bytes) for one in outcome.variants["eager"].collectives}
            tokens = 10 if mode == Mode.EVAL else 1
            sums = 2 * model.config.layers  # after attention, and after the feed-forward layers
            assert moved["all_reduce"] == (sums, sums * 4 * tokens * model.config.width)


@torch.no_grad()
def test_llama_with_complex_rotations_and_slices_is_simple_gpt() -> None:
    simple: Any = small_class("simple_gpt")("eval", "cpu", 2)
    tokens, start = simple.batch.inputs
    llama_class: Any = load_model_class(find_models().spec("llama"))
    llama: Any = type("Small", (llama_class,), {"config": simple.config})("eval", "cpu", 2)
    weights = simple.network.state_dict()
    for name in [name for name in weights if "query_key_value" in name]:
        by_head = weights.pop(name).unflatten(0, (simple.config.heads, 3, -1))  # (H, 3, D, C)
        for part, weight in zip(("query", "key", "value"), by_head.unbind(1), strict=True):
            weights[name.replace("query_key_value", part)] = weight.flatten(0, 1)
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
