"""llava and moondream: what is written depends on the image, and the step uses the weights that it has in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from torchzoo.zoo.catalog import find_models, load_model_class

if TYPE_CHECKING:
    from torch import nn

    from torchzoo.model import Model

#: Weights that no logit depends on, as in the authors' code: features are taken from the layer before the last one.
UNREAD = {"llava": ("model.vision_tower.encoder.layers.2.", "model.vision_tower.post_layernorm."), "moondream": ()}


@pytest.fixture(params=sorted(UNREAD))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str) -> Model:
    small = load_model_class(find_models().spec(name)).small()
    assert small is not None
    return small("eval", "cpu", 2)


def test_logits_depend_on_the_image_of_their_own_sample_from_its_first_token_on(model: Model) -> None:
    before = model.eval_step()
    model.batch.inputs["pixel_values"][0] += 1
    changed = (model.eval_step() - before).abs().amax(2) > 1e-6  # (B, T)
    patches = (model.batch.inputs["pixel_values"].shape[-1] // 14) ** 2
    assert before.shape[1] == patches + 32
    assert not changed[1].any()
    assert not changed[0, 0]
    assert changed[0, 1:].all()


def test_logits_depend_on_all_weights(model: Model, name: str) -> None:
    network: nn.Module = model.networks()["network"]
    network(**model.batch.inputs).logits.square().sum().backward()
    unused = [path for path, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()]
    biases_of_keys = [path for path in unused if path.endswith("k_proj.bias")]  # softmax takes them out again
    assert [path for path in unused if not path.startswith(UNREAD[name]) and path not in biases_of_keys] == []
    assert all(any(path.startswith(unread) for path in unused) for unread in UNREAD[name])


def test_the_published_number_of_parameters_is_built(name: str) -> None:
    network = load_model_class(find_models().spec(name))("eval", "meta", 1).networks()["network"]
    published = {"llava": 7_063_427_072, "moondream": 1_857_482_608}
    assert torch.tensor([weight.numel() for weight in network.parameters()]).sum() == published[name]
