"""Networks of transformers attend alike in eager and in compiled code, and compute what transformers' own way does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from attention_calls import Call, compiled_calls, eager_calls
from packaging.version import Version
from test_cached_network import BATCH, CACHE, PROMPT, SIZES, Tiny, gemma, llama, qwen, tokens
from test_encoder_decoder import Tiny as TinyWhisper
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
    PhiConfig,
    PhiForCausalLM,
)

from torchzoo.case import Mode
from torchzoo.model.attention import attend_alike
from torchzoo.model.tasks import Batch
from torchzoo.zoo.catalog import find_models, load_model_class
from torchzoo_models._shared.generation import CachedNetwork

LENGTH = Tiny.train_length
SINGLE = {name: SIZES[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")}


def knows_its_loss(network: Any) -> nn.Module:
    """transformers warns of a class whose name does not tell the loss, and a warning breaks the graph."""
    network.loss_type = "ForCausalLM"
    return network  # type: ignore[no-any-return]


def gpt2() -> nn.Module:
    sizes: dict[str, Any] = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return knows_its_loss(GPT2LMHeadModel(GPT2Config(**sizes, embd_pdrop=0.0, resid_pdrop=0.0, attn_pdrop=0.0)))


def phi() -> nn.Module:
    return PhiForCausalLM(PhiConfig(**SINGLE, intermediate_size=48, pad_token_id=None, eos_token_id=None))


def mistral() -> nn.Module:
    """Its window is as long as a sequence, so that it hides nothing."""
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=LENGTH))


def windowed() -> nn.Module:
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4))


def bert() -> nn.Module:
    sizes: dict[str, Any] = SINGLE | {"intermediate_size": 48, "is_decoder": True}
    config = BertConfig(**sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return knows_its_loss(BertLMHeadModel(config))


def made(make: Callable[[], nn.Module], mode: Mode, *, own: bool = False) -> Any:
    kind: Any = TinyWhisper if make is whisper else Tiny
    attributes = {"own_attention": own} | ({} if make is whisper else {"make": staticmethod(make)})
    return type("Made", (kind,), attributes)(mode, "cpu", BATCH)


def whisper() -> nn.Module:
    raise AssertionError("its class makes it")


CASES = [(llama, Mode.PREFILL), (gemma, Mode.DECODE), (windowed, Mode.TRAIN)]
MORE = [
    (llama, Mode.DECODE),
    (gpt2, Mode.TRAIN),
    (llama, Mode.TRAIN),
    (gemma, Mode.TRAIN),
    (gemma, Mode.PREFILL),
    (qwen, Mode.PREFILL),
    (qwen, Mode.DECODE),
    (phi, Mode.TRAIN),
    (mistral, Mode.TRAIN),
    (bert, Mode.TRAIN),
    (whisper, Mode.DECODE),
]


@pytest.mark.parametrize(("make", "mode"), [*CASES, *MORE, (whisper, Mode.TRAIN)])
def test_a_step_gives_what_it_gives_with_transformers_own_attention(make: Any, mode: Mode) -> None:
    results, gradients = [], []
    for own in (True, False):
        model = made(make, mode, own=own)
        results.append(model.measured_step())
        gradients.append([one.grad for one in model.network.parameters() if one.grad is not None])
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-6)
    assert mode is not Mode.TRAIN or gradients[0]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("make", "mode"), [*CASES, *(pytest.param(*one, marks=pytest.mark.slow) for one in MORE)])
def test_compiled_attention_is_called_as_in_eager(make: Any, mode: Mode) -> None:
    model = made(make, mode)
    calls = eager_calls(model)
    assert calls
    assert compiled_calls(model) == calls


def test_a_prompt_is_read_alone_and_a_token_reads_the_cache_once() -> None:
    queries, keys, width = SIZES["num_attention_heads"], SIZES["num_key_value_heads"], SIZES["head_dim"]
    prompt = [torch.Size((BATCH, heads, PROMPT, width)) for heads in (queries, keys, keys)]
    assert eager_calls(made(llama, Mode.PREFILL)) == 2 * [Call(*prompt, mask=None, is_causal=True)]
    token = torch.Size((BATCH, keys, queries // keys, width))
    cache = torch.Size((BATCH, keys, CACHE, width))
    assert eager_calls(made(llama, Mode.DECODE)) == 2 * [Call(token, cache, cache, mask=None, is_causal=False)]


def test_only_layers_with_a_window_that_hides_something_have_a_mask() -> None:
    def masks(make: Any, mode: Mode) -> list[bool]:
        return [call.mask is not None for call in eager_calls(made(make, mode))]

    assert masks(gemma, Mode.PREFILL) == masks(gemma, Mode.DECODE) == [True, False]
    assert masks(windowed, Mode.TRAIN) == [True, True]
    assert masks(mistral, Mode.TRAIN) == [False, False]


class Padded(Tiny):
    def build_batch(self) -> Batch:
        inputs: Any = super().build_batch().inputs
        mask = torch.ones_like(inputs["input_ids"])
        mask[:, -3:] = 0
        return Batch(inputs | {"attention_mask": mask})


def test_padding_keeps_its_mask() -> None:
    assert all(call.mask is not None for call in eager_calls(Padded(Mode.TRAIN, "cpu", BATCH)))


def test_a_token_that_would_see_empty_places_is_refused() -> None:
    network = llama()
    attend_alike(network)
    with pytest.raises(ValueError, match="no mask hides"):
        CachedNetwork(network, tokens(PROMPT), length=CACHE, cached=PROMPT)


@pytest.mark.parametrize(
    "name", ["llama3_2_1b", "qwen3_0_6b", "qwen3_5_0_8b", "gemma3_1b", "gpt_oss_mini", "qwen3_vl_2b"]
)
def test_training_fills_no_cache(name: str) -> None:
    small: Any = load_model_class(find_models().spec(name)).small()
    model = small(Mode.TRAIN, "cpu", 1)
    assert model.forward().past_key_values is None


def test_a_copy_of_llama_has_transformers_own_attention() -> None:
    folder = Path(__file__).parents[2] / "benchmarks" / "own_attention"
    catalog = find_models([folder])
    kinds = [load_model_class(catalog.spec(name)) for name in ("llama3_2_1b", "llama3_2_1b_own_attention")]
    own, alike = catalog.spec("llama3_2_1b_own_attention"), catalog.spec("llama3_2_1b")
    assert (own.parameters, own.batch_size, own.tokens) == (alike.parameters, alike.batch_size, alike.tokens)
    small: list[Any] = [kind.small() for kind in kinds]  # type: ignore[attr-defined]
    implementations = [one(Mode.PREFILL, "cpu", 1).network.network.config._attn_implementation for one in small]
    assert implementations[1] == "sdpa" != implementations[0]


#: One of each kind of layer among the causal language models of the collection.
ENCODERS = ("BertLMHeadModel", "RobertaForCausalLM", "ElectraForCausalLM", "BigBirdForCausalLM", "RoFormerForCausalLM")
IGNORED_BEFORE = ("BigBirdForCausalLM", "MegatronBertForCausalLM", "RoFormerForCausalLM")
DECODERS = ("LlamaForCausalLM", "GPT2LMHeadModel:distil", "OPTForCausalLM", "MistralForCausalLM", "BartForCausalLM")


@pytest.mark.parametrize("name", [*ENCODERS, "MegatronBertForCausalLM", "XLMRobertaXLForCausalLM", *DECODERS])
@torch.no_grad()
def test_a_causal_language_model_does_not_look_ahead(name: str) -> None:
    if name in IGNORED_BEFORE and Version(transformers.__version__) < Version("5.23"):
        pytest.skip("transformers 5.17 ignores is_decoder in this class")
    kind: Any = load_model_class(find_models().spec(f"hf:{name}"))
    collection = sys.modules[kind.__module__]
    sizes = collection.small_sizes(kind.config_class(), kind.sizes)
    model = type("Small", (kind,), {"sizes": sizes, "eval_length": 32})(Mode.EVAL, "cpu", 1)
    model.network.eval()
    before: Tensor = model.eval_step()
    last = model.batch.inputs["input_ids"][:, -1]
    last.copy_((last + 1) % 1000)
    after: Tensor = model.eval_step()
    torch.testing.assert_close(after[:, :-1], before[:, :-1], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(after[:, -1], before[:, -1])
