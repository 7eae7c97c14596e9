"""Going on into inductor: a planted wrong lowering is found by its number, and a fault of fusion, on the CPU."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from examples import CASE, INDUCTOR
from torchzoo.errors import UsageError
from torchzoo.history import inductor_script
from torchzoo.history.inductor_bisect import BisectionFailed, bisect_inductor, in_words
from torchzoo.history.inductor_script import Answer, Task
from torchzoo.record import Check, CheckStatus
from user_models import make_folder

WRONG = '''"""One linear layer and a relu, with PyTorch's own planted bug of relu (torchzoo's tests, 2026)."""

import torch
import torch._inductor.config
from torch import nn
from torchzoo.model.tasks import Batch, SupervisedModel

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
#: The same bug, where kernels are fused.
WRONG_IF_FUSED = WRONG.replace(
    'torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"',
    """from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

for overrides in (CppOverrides, CppVecOverrides):  # processors without vectors, and with them

    def relu(x, correct=overrides.relu):
        return x if torch._inductor.config.max_fusion_size > 1 else correct(x)

    overrides.relu = staticmethod(relu)""",
)
COMPILED = msgspec.structs.replace(CASE, backend=INDUCTOR)
ONLY_INDUCTOR = {"TORCH_BISECT_BACKEND": "inductor"}  # four other backends would be tried before


@pytest.mark.slow
def test_a_wrong_lowering_is_found(tmp_path: Path) -> None:
    make_folder(tmp_path, "wrong", WRONG)
    case = msgspec.structs.replace(COMPILED, model="wrong")
    answer = bisect_inductor(case, models_dirs=(str(tmp_path),), variables=ONLY_INDUCTOR)
    assert (answer.backend, answer.subsystem, answer.about) == ("inductor", "lowerings", "relu")
    assert (
        in_words(answer) == f"backend inductor, the lowering of an operator (lowerings), number {answer.number}: relu"
    )


@pytest.mark.slow
def test_a_fault_that_only_a_setting_takes_away_is_found(tmp_path: Path) -> None:
    make_folder(tmp_path, "wrong", WRONG_IF_FUSED)
    case = msgspec.structs.replace(COMPILED, model="wrong")
    answer = bisect_inductor(case, models_dirs=(str(tmp_path),), variables=ONLY_INDUCTOR)
    assert answer.setting == "max_fusion_size=1"
    assert in_words(answer) == "backend inductor, the problem is gone with the setting max_fusion_size=1"


def test_where_no_part_is_at_fault_each_is_left_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's bisector alone would begin again behind each part: 158 tries with 17 of them."""
    from torch._inductor.compiler_bisector import BACKENDS, CompilerBisector

    monkeypatch.setitem(BACKENDS, "inductor", list(BACKENDS["inductor"]))
    monkeypatch.setattr(inductor_script, "load_model_class", lambda _: None)
    monkeypatch.setattr(
        inductor_script, "_symptom", lambda *_: lambda: CompilerBisector.get_backend() in (None, "inductor")
    )
    before = len(BACKENDS["inductor"])
    answer = inductor_script.bisected(Task(case=msgspec.structs.replace(COMPILED, model="resnet18")))
    parts = len(BACKENDS["inductor"])
    assert parts > before
    assert answer == Answer(backend="inductor", tries=1 + len(BACKENDS) + parts)


def test_a_try_without_a_verdict_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    no_verdict = Check(status=CheckStatus.REFERENCE_FAILED, reason="nothing to judge by")
    monkeypatch.setattr("torchzoo.measure.check.check_case.check_case", lambda *_: no_verdict)
    with pytest.raises(ValueError, match="a try has no verdict: reference_failed, nothing to judge by"):
        inductor_script.bisected(Task(case=msgspec.structs.replace(COMPILED, model="resnet18")))


def test_what_cannot_be_bisected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only cases with the backend inductor"):
        bisect_inductor(CASE)
    with pytest.raises(BisectionFailed, match="ended with status 3: no torch here"):
        bisect_inductor(COMPILED, python=str(script(tmp_path, "echo no torch here; exit 3")))
    with pytest.raises(BisectionFailed, match="was killed by signal 9"):
        bisect_inductor(COMPILED, python=str(script(tmp_path, "kill -9 $$")))
    answer = """echo '{"problem": "its results are not wrong"}' > "$4" """
    with pytest.raises(BisectionFailed, match="tiny eval cpu inductor bs4: its results are not wrong"):
        bisect_inductor(COMPILED, python=str(script(tmp_path, answer)))
    with pytest.raises(BisectionFailed, match="can't start /no/python"):
        bisect_inductor(COMPILED, python="/no/python")


def script(folder: Path, text: str) -> Path:
    """A program in place of Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
