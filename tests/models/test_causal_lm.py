"""Training of decoders: the optimizer's groups, and layers whose inputs alone are kept."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from transformers import LlamaConfig, LlamaForCausalLM, Mamba2Config, Mamba2ForCausalLM

from torchzoo.case import Mode
from torchzoo_models._shared.causal_lm import CausalLM


class Llama(CausalLM):
    train_length = 16
    sizes: ClassVar[dict[str, Any]] = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "tie_word_embeddings": True,
    }

    def build_network(self) -> nn.Module:
        return LlamaForCausalLM(LlamaConfig(**self.sizes))


class Mamba(CausalLM):
    train_length = 16

    def build_network(self) -> nn.Module:
        sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 4, "num_heads": 8, "head_dim": 8}
        return Mamba2ForCausalLM(Mamba2Config(vocab_size=97, n_groups=1, state_size=16, chunk_size=8, **sizes))


def step(model: CausalLM) -> tuple[float, int]:
    """The loss of a train step, and the bytes that it keeps for the backward pass."""
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model.train_step().item()
    return loss, sum(kept.values())


@pytest.mark.parametrize("kind", [Llama, Mamba])
def test_checkpointed_layers_learn_the_same_from_less_memory(
    kind: type[CausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = kind(Mode.TRAIN, "cpu", 2)
    loss, kept = step(plain)
    monkeypatch.setattr(kind, "checkpoints_layers", True)
    checkpointed = kind(Mode.TRAIN, "cpu", 2)
    loss_again, kept_again = step(checkpointed)
    assert loss_again == pytest.approx(loss, rel=1e-6)
    weights = sum(parameter.nbytes for parameter in plain.network.parameters())
    assert kept_again - weights < (kept - weights) / 2
    for one, other in zip(plain.network.parameters(), checkpointed.network.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


class Frozen(Llama):
    def build_network(self) -> nn.Module:
        network = super().build_network()
        network.model.embed_tokens.requires_grad_(requires_grad=False)  # type: ignore[union-attr, operator]
        return network


def test_checkpoints_want_no_gradient_of_a_frozen_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Frozen, "checkpoints_layers", True)
    model = Frozen(Mode.TRAIN, "cpu", 1)
    embedded: list[torch.Tensor] = []
    model.network.get_input_embeddings().register_forward_hook(lambda *args: embedded.append(args[-1]))  # type: ignore[operator]
    model.train_step()
    assert embedded
    assert not any(one.requires_grad for one in embedded)


def test_only_matrices_are_decayed_and_frozen_weights_have_no_optimizer() -> None:
    groups = Frozen(Mode.TRAIN, "cpu", 1).optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert {parameter.ndim for parameter in groups[0]["params"]} == {2}
    assert {parameter.ndim for parameter in groups[1]["params"]} == {1}
    assert [len(group["params"]) for group in groups] == [4 * 7, 4 * 2 + 1]
