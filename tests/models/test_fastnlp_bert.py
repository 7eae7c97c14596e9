"""fastNLP_Bert trains as fastNLP's example does: clipped gradients, dropouts, a loss inside the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from torchzoo.zoo.catalog import find_models, load_model_class

if TYPE_CHECKING:
    from torchzoo.model import Model


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model_class(find_models().spec("fastNLP_Bert"))("train", "cpu", 1)


@pytest.mark.slow
def test_an_update_clips_gradients_to_a_norm_of_one(model: Model) -> None:
    model.network.output.weight.data.mul_(1000.0)  # for gradients that need it
    norms = []
    hook = model.optimizer.register_step_pre_hook(
        lambda optimizer, *_: norms.append(torch.nn.utils.get_total_norm(gradients(optimizer)))
    )
    model.train_step()
    hook.remove()
    assert norms[0].item() == pytest.approx(1.0, rel=1e-3)


def gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter.grad for group in optimizer.param_groups for parameter in group["params"]]


def test_one_in_a_hundred_words_becomes_unknown_in_training(model: Model) -> None:
    torch.manual_seed(0)
    c = model.config
    tokens = torch.randint(c.first_character, c.vocabulary_size, (300, 476))
    tokens[:, 0], tokens[:, -1], tokens[:100, -9:-1] = c.classification, c.separator, c.padding
    dropped = model.network.drop_words(tokens)
    changed = dropped != tokens
    assert changed.double().mean() == pytest.approx(0.01, rel=0.1)
    assert (dropped[changed] == c.unknown).all()
    assert not changed[tokens < c.first_character].any()


def test_half_of_what_bert_makes_is_dropped_in_training(model: Model) -> None:
    states = []
    hook = model.network.output.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    with torch.no_grad():
        model.forward()
    hook.remove()
    assert states[0].shape == (1, 457 + 1 + 16, 768)
    assert (states[0] == 0).double().mean() == pytest.approx(0.5, abs=0.01)


def test_logits_outside_the_text_do_not_count(model: Model) -> None:
    logits = torch.randn(1, 474, 2)
    loss = model.compute_loss(logits, model.batch.targets)
    logits[:, 457:] += 10.0
    torch.testing.assert_close(model.compute_loss(logits, model.batch.targets), loss)
    logits[:, 0] += 10.0
    assert model.compute_loss(logits, model.batch.targets) != loss
