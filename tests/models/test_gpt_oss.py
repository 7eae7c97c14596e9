"""What a mixture of experts reads, and which of its operators wait for the device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssTopKRouter

from torchzoo.case import Mode
from torchzoo.zoo.waiting import synchronising_operators
from torchzoo_models._shared.causal_lm import CausalLM
from torchzoo_models._shared.gpt_oss import GptOss, expected_distinct_share

SMALL = GptOss.small()
assert SMALL is not None


@pytest.mark.parametrize("tokens", [1, 5, 40])
def test_the_expected_share_of_experts_is_that_of_random_choices(tokens: int) -> None:
    random = torch.Generator().manual_seed(0)
    choices = torch.rand(2000, tokens, 32, generator=random).topk(4, dim=-1).indices  # (trials, tokens, chosen)
    is_chosen = torch.zeros(2000, 32).scatter_(1, choices.flatten(1), 1.0)
    assert expected_distinct_share(4, 32, tokens) == pytest.approx(is_chosen.mean().item(), rel=0.01)


def test_a_step_reads_all_but_the_experts_that_nobody_chooses() -> None:
    for batch_size in (1, 3):
        model = SMALL(Mode.DECODE, "cpu", batch_size)
        everything = CausalLM.bytes_read_per_step.fget(model)  # type: ignore[attr-defined]
        experts = [layer.mlp.experts for layer in model.network.network.model.layers]  # type: ignore[attr-defined]
        size = sum(weight.nbytes for expert in experts for weight in expert.parameters())
        left_out = size * 0.5**batch_size  # four of eight
        assert model.bytes_read_per_step == round(everything - left_out)
    assert SMALL(Mode.PREFILL, "cpu", 1).bytes_read_per_step is None


def routed(network: nn.Module) -> list[tuple[Tensor, Tensor, Tensor]]:
    """What routers give from now on: scores of all experts, weights of the chosen ones, and which these are."""
    given: list[tuple[Tensor, Tensor, Tensor]] = []

    def keep(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
        given.append(outputs)

    for module in network.modules():
        if isinstance(module, GptOssTopKRouter):
            module.register_forward_hook(keep)
    return given


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.PREFILL])
def test_tokens_of_a_text_choose_experts_evenly(mode: Mode) -> None:
    model = SMALL(mode, "cpu", 4)
    given = routed(model.network)
    model.measured_step()
    assert len(given) == 2
    for scores, _, chosen in given:
        torch.testing.assert_close(scores.mean(dim=0), torch.zeros(8), rtol=0, atol=1e-4)
        assert chosen.flatten().bincount(minlength=8).max() < 1.5 * chosen.numel() / 8


def test_a_token_with_random_caches_chooses_experts_evenly() -> None:
    model = SMALL(Mode.DECODE, "cpu", 4)
    given = routed(model.network)
    for seed in range(50):
        tokens = torch.randint(0, 1024, (4, 1), generator=torch.Generator().manual_seed(seed))
        model.batch.inputs["input_ids"].copy_(tokens)
        model.decode_step()
    assert len(given) == 2 * 50
    distinct = sum(len(chosen.unique()) for *_, chosen in given) / len(given)
    assert distinct / 8 == pytest.approx(expected_distinct_share(4, 8, 4), rel=0.1)


@pytest.mark.parametrize(("dtype", "waits"), [(torch.bfloat16, False), (torch.float32, True)], ids=str)
def test_a_grouped_product_waits_only_in_other_dtypes_than_bfloat16(dtype: torch.dtype, *, waits: bool) -> None:
    x, weights = torch.zeros(4, 16, dtype=dtype), torch.zeros(2, 16, 8, dtype=dtype)
    ends = torch.tensor([1, 4], dtype=torch.int32)
    with synchronising_operators() as seen:
        F.grouped_mm(x, weights, offs=ends)
    assert seen == ({"aten::_grouped_mm"} if waits else set())
