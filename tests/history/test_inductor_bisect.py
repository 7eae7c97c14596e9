"""Going on into inductor: a planted wrong lowering is found by its number, on the CPU."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from examples import CASE, INDUCTOR
from torchzoo.errors import UsageError
from torchzoo.history.inductor_bisect import BisectionFailed, bisect_inductor, in_words, reproduce_in_words
from torchzoo.history.inductor_script import Answer
from user_models import make_folder

WRONG = '''"""One linear layer and a relu, with PyTorch's own planted bug of relu (torchzoo's tests, 2026)."""

import torch
import torch._inductor.config
from torch import nn
from torchzoo.tasks import Batch, SupervisedModel

torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return torch.relu(self.layer(x))


class Model(SupervisedModel):
    def build_network(self):
        return Network()

    def build_batch(self):
        return Batch((self.data.normal(self.batch_size, 4),), self.data.labels(self.batch_size, 2))

    def compute_loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)
'''
COMPILED = msgspec.structs.replace(CASE, backend=INDUCTOR)


def test_a_wrong_lowering_is_found(tmp_path: Path) -> None:
    make_folder(tmp_path, "wrong", WRONG)
    case = msgspec.structs.replace(COMPILED, model="wrong")
    answer = bisect_inductor(case, models_dirs=(str(tmp_path),))
    assert (answer.backend, answer.subsystem) == ("inductor", "lowerings")
    assert answer.number is not None
    assert "relu" in in_words(answer)
