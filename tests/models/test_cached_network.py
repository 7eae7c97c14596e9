"""Generating with a static cache: what a step gives is what the network gives without a cache, step after step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest
import torch
from compiled_once import assert_compiled_once
from torch import Tensor, nn
from torch._dynamo.backends.registry import _COMPILER_FNS, register_backend
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
)

from examples import CASE, SPEC
from torchzoo.case import Backend, Mode, Precision, ResultKind
from torchzoo.measure.check.check_case import check_case
from torchzoo.measure.precision import apply_precision
from torchzoo.record import Check, CheckStatus
from torchzoo_models._shared.causal_lm import CausalLM
from torchzoo_models._shared.generation import CachedNetwork, weight_bytes_read

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
BATCH, PROMPT, CACHE = 3, 12, 24


def llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True))


def gemma() -> PreTrainedModel:
    """One layer sees a window of 8 tokens."""
    kinds = ["sliding_attention", "full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, sliding_window=8, layer_types=kinds))


def gpt_oss() -> PreTrainedModel:
    """A mixture of experts, and a layer with a window."""
    kinds = ["sliding_attention", "full_attention"]
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    return GptOssForCausalLM(GptOssConfig(**SIZES, **experts, sliding_window=8, layer_types=kinds))


def qwen() -> PreTrainedModel:
    """Layer one keeps a recurrent state, layer two keys and values."""
    kinds = ["linear_attention", "full_attention"]
    heads = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8}
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**SIZES, **heads, linear_value_head_dim=8, layer_types=kinds))


def mamba() -> PreTrainedModel:
    sizes = {name: SIZES[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers")}
    heads = {"num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": 1, "chunk_size": 8}
    return Mamba2ForCausalLM(Mamba2Config(**sizes, **heads, pad_token_id=None, bos_token_id=None, eos_token_id=None))


NETWORKS = pytest.mark.parametrize("make", [llama, gemma, gpt_oss, qwen, mamba])


def tokens(length: int) -> Tensor:
    return torch.randint(0, SIZES["vocab_size"], (BATCH, length), generator=torch.Generator().manual_seed(length))


def without_cache(network: nn.Module, some: Tensor) -> Tensor:
    logits: Tensor = network(input_ids=some, use_cache=False).logits[:, -1:]  # (B, 1, V)
    return logits


@NETWORKS
@torch.no_grad()
def test_prefill_gives_the_logits_of_the_last_token_each_time(make: Any) -> None:
    torch.manual_seed(0)
    network = make().eval()
    prompt = tokens(PROMPT)
    cached = CachedNetwork(network, prompt, length=CACHE, cached=0)
    for _ in range(2):
        cached.rewind()
        torch.testing.assert_close(cached(prompt), without_cache(network, prompt), rtol=1e-4, atol=1e-5)


class Encoder(nn.Module):
    """It takes any argument, as networks of transformers do, and none for a cache."""

    def forward(self, input_ids: Tensor, **others: Any) -> Tensor:
        raise AssertionError("it must not be called")


def test_a_network_that_would_ignore_the_cache_is_refused() -> None:
    network: Any = Encoder()
    network.config = llama().config
    with pytest.raises(TypeError, match=r"^Encoder takes no cache: it has no argument cache or past_key_values or"):
        CachedNetwork(network, tokens(PROMPT), length=CACHE, cached=0)


@NETWORKS
@torch.no_grad()
def test_decode_goes_on_after_the_cached_tokens_each_time(make: Any) -> None:
    torch.manual_seed(0)
    network = make().eval()
    prompt, following = tokens(PROMPT), tokens(1)
    expected = without_cache(network, torch.cat([prompt, following], dim=1))
    cached = CachedNetwork(network, prompt, length=CACHE, cached=0)
    cached.rewind()
    cached(prompt)
    cached.cached = PROMPT
    cached._find_lengths()
    keeps_states = any(hasattr(layer, "recurrent_states") or layer.is_sliding for layer in cached.cache.layers)
    for _ in range(1 if keeps_states else 3):  # windows and recurrent states move on with each token
        cached.rewind()
        torch.testing.assert_close(cached(following), expected, rtol=1e-4, atol=1e-5)


class Tiny(CausalLM):
    prompt_length = PROMPT
    cache_length = CACHE
    train_length = 8
    make: ClassVar[Any] = staticmethod(llama)

    def build_network(self) -> nn.Module:
        network: nn.Module = self.make()
        return network


@pytest.mark.parametrize("mode", [Mode.PREFILL, Mode.DECODE])
@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP64], ids=str)
@pytest.mark.parametrize("make", [llama, gemma, qwen, mamba])
def test_the_cache_is_cast_with_the_network(
    make: Any, mode: Mode, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tiny, "make", staticmethod(make))
    model = Tiny(mode, "cpu", BATCH)
    apply_precision(model, precision)
    assert isinstance(model.network, CachedNetwork)
    held = model.network.cache_tensors()
    made_after = CachedNetwork(model.network.network, tokens(4), length=CACHE, cached=0).cache_tensors()
    for name, tensor in made_after.items():
        dtype = torch.float64 if precision is Precision.FP64 and tensor.is_floating_point() else tensor.dtype
        assert held[name].dtype == dtype
    if make in (qwen, mamba) and precision is Precision.BF16:
        states = [
            tensor for holder, _, tensor in model.network._held() if isinstance(holder, dict) and tensor.ndim == 4
        ]
        assert {state.dtype for state in states} == {torch.float32}
        assert model.network.cache_bytes() == sum(tensor.nbytes for tensor in made_after.values())
    first = model.measured_step()
    assert first.shape == (BATCH, 1, SIZES["vocab_size"])
    assert bool(torch.isfinite(first).all())
    if make is llama:  # nothing is left behind by a step
        torch.testing.assert_close(model.measured_step(), first, rtol=0, atol=0)


def test_samples_are_tokens_and_the_bytes_are_those_of_weights_and_cache() -> None:
    decode, prefill = Tiny(Mode.DECODE, "cpu", BATCH), Tiny(Mode.PREFILL, "cpu", BATCH)
    assert (decode.samples_per_step, prefill.samples_per_step) == (BATCH, BATCH * PROMPT)
    assert decode.sample_unit == prefill.sample_unit == "tokens"
    assert Tiny(Mode.TRAIN, "cpu", BATCH).sample_unit == "sequences"
    keys_and_values = 2 * SIZES["num_hidden_layers"] * BATCH * SIZES["num_key_value_heads"] * CACHE * SIZES["head_dim"]
    weights = sum(parameter.numel() for parameter in decode.networks()["network"].parameters())
    assert decode.bytes_read_per_step == pytest.approx(4 * (weights + keys_and_values), abs=100)  # and the lengths
    assert prefill.bytes_read_per_step is None


def test_a_table_of_embeddings_is_read_whole_only_where_it_is_the_output_layer() -> None:
    shared, separate = llama(), LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False))
    assert weight_bytes_read(separate) == weight_bytes_read(shared)


def test_a_compiled_step_gives_the_same_without_compiling_again() -> None:
    assert_compiled_once(Tiny(Mode.DECODE, "cpu", BATCH))


def loses_what_is_written(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """Computes the right outputs from copies of its inputs, so that nothing is written into a cache."""
    return lambda *args: graph(*(one.clone() if isinstance(one, Tensor) else one for one in args))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "mode"),
    [
        (llama, Mode.DECODE),
        (llama, Mode.PREFILL),
        (gemma, Mode.DECODE),
        (qwen, Mode.DECODE),
        (mamba, Mode.PREFILL),
    ],
)
def test_the_check_compares_what_a_step_writes_into_the_cache(
    make: Any, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tiny, "make", staticmethod(make))
    register_backend(loses_what_is_written, name="loses_writes")

    def checked(backend: str) -> Check:
        case = msgspec.structs.replace(CASE, mode=mode, backend=Backend(backend), batch_size=BATCH)
        return check_case(case, SPEC, Tiny, torch.device("cpu"))

    found = checked("aot_eager")
    assert found.status is CheckStatus.CORRECT, found
    (state,) = [one for one in found.comparisons if one.what is ResultKind.STATE]
    assert state.tensors >= 2 * SIZES["num_hidden_layers"]
    found = checked("loses_writes")
    _COMPILER_FNS.pop("loses_writes")
    assert found.status is CheckStatus.INCORRECT, found
    assert "state: network.cache." in found.reason
