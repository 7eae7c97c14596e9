"""From the culprit into inductor: when its bisector is asked, with what, and what is kept of the answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from examples import CASE, INDUCTOR, record, run_of
from kept_runs import against_eager
from torchzoo.case import Case
from torchzoo.environments.make import PythonEnvironment, prepare
from torchzoo.history import inductor_script, into_inductor
from torchzoo.history.changes import Kind
from torchzoo.history.inductor_script import Inside, Task
from torchzoo.history.into_inductor import applies_to, bisect_inductor, look_inside
from torchzoo.record import Check, CheckStatus
from torchzoo.settings import Settings
from torchzoo.store import Run
from user_models import make_folder

COMPILED = msgspec.structs.replace(CASE, backend=INDUCTOR)
BAD = PythonEnvironment(name="torch==2", python="/venv/bin/python", variables={"PYTHONPATH": "/code"}, key="k")
FOUND = Inside(words="backend inductor, the lowering of an operator (lowerings), number 2: relu")


class Bisector:
    """Stands for `bisect_inductor`, which compiles for minutes."""

    def __init__(self, answer: Inside = FOUND) -> None:
        self.answer = answer
        self.asked: list[tuple[Task, PythonEnvironment, Mapping[str, str]]] = []

    def __call__(self, task: Task, environment: PythonEnvironment, variables: Mapping[str, str]) -> Inside:
        self.asked.append((task, environment, variables))
        return self.answer


@pytest.fixture
def bisector(monkeypatch: pytest.MonkeyPatch) -> Bisector:
    made = Bisector()
    monkeypatch.setattr(into_inductor, "bisect_inductor", made)
    monkeypatch.setattr(into_inductor, "prepare", lambda _: BAD)
    return made


def run(speedup: float, *, eager_s: float = 0.2) -> Run:
    settings = Settings(threads=1)
    measured = record(against_eager(speedup, eager_s=eager_s), backend=INDUCTOR)
    return run_of([measured], settings=settings, models_dirs=("/zoo",))


@pytest.mark.parametrize(
    ("kind", "case", "expected"),
    [
        (Kind.LATENCY, COMPILED, True),
        (Kind.INCORRECT, COMPILED, True),
        (Kind.HOST_MEMORY, COMPILED, False),
        (Kind.FAILING, COMPILED, False),
        (Kind.LATENCY, CASE, False),
    ],
)
def test_only_slow_and_wrong_code_of_inductor_is_looked_into(kind: Kind, case: Case, *, expected: bool) -> None:
    assert applies_to(kind, case) is expected


def test_slow_code_is_told_from_the_step_over_eagers(bisector: Bisector, tmp_path: Path) -> None:
    kept = tmp_path / "inside.json"
    found = look_inside(Kind.LATENCY, COMPILED, run(2.0), run(1.0), "torch==2", kept)
    assert found == FOUND
    ((task, environment, variables),) = bisector.asked
    assert (task.case, task.models_dirs) == (COMPILED, ("/zoo",))
    assert task.slow_from == pytest.approx(2**-0.5, rel=0.01)  # between 0.5 and 1
    assert (environment, variables) == (BAD, {"OMP_NUM_THREADS": "1"})


@pytest.mark.parametrize("candidate", [run(2.0, eager_s=0.3), run(2.5)], ids=["eager is slower too", "it is faster"])
def test_what_is_not_slower_beside_eager_is_not_looked_into(candidate: Run, bisector: Bisector, tmp_path: Path) -> None:
    found = look_inside(Kind.LATENCY, COMPILED, run(2.0), candidate, "torch==2", tmp_path / "inside.json")
    assert found.words.startswith("not looked into: the step did not become slower beside eager's")
    assert bisector.asked == []


def test_an_answer_is_kept(bisector: Bisector, tmp_path: Path) -> None:
    kept = tmp_path / "inside.json"
    first = look_inside(Kind.LATENCY, COMPILED, run(2.0), run(1.0), "torch==2", kept)
    assert look_inside(Kind.LATENCY, COMPILED, run(2.0), run(1.0), "torch==2", kept) == first
    assert len(bisector.asked) == 1
    kept.write_text("{")  # cut short by a crash
    look_inside(Kind.LATENCY, COMPILED, run(2.0), run(1.0), "torch==2", kept)
    assert len(bisector.asked) == 2


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
ONLY_INDUCTOR = "TORCH_BISECT_BACKEND=inductor"  # four other backends would be tried before


@pytest.mark.slow
def test_a_wrong_lowering_is_found(tmp_path: Path) -> None:
    make_folder(tmp_path, "wrong", WRONG)
    case = msgspec.structs.replace(COMPILED, model="wrong")
    answer = bisect_inductor(Task(case=case, models_dirs=(str(tmp_path),)), prepare(ONLY_INDUCTOR), {})
    words = r"backend inductor, the lowering of an operator \(lowerings\), number (\d+): relu"
    found = re.fullmatch(words, answer.words)
    assert found is not None
    variables = "TORCH_BISECT_BACKEND=inductor TORCH_BISECT_SUBSYSTEM=lowerings TORCH_BISECT_MAX="
    assert answer.without_it == f"{variables}{int(found[1]) - 1}"


@pytest.mark.slow
def test_a_fault_that_only_a_setting_takes_away_is_found(tmp_path: Path) -> None:
    make_folder(tmp_path, "wrong", WRONG_IF_FUSED)
    case = msgspec.structs.replace(COMPILED, model="wrong")
    answer = bisect_inductor(Task(case=case, models_dirs=(str(tmp_path),)), prepare(ONLY_INDUCTOR), {})
    assert answer.words == "backend inductor, the problem is gone with the setting max_fusion_size=1"


def test_where_no_part_is_at_fault_each_is_left_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's bisector alone would begin again behind each part: 158 tries with 17 of them."""
    from torch._inductor.compiler_bisector import BACKENDS, CompilerBisector

    monkeypatch.setitem(BACKENDS, "inductor", list(BACKENDS["inductor"]))
    tries = []

    def is_wrong() -> bool:
        tries.append(CompilerBisector.get_subsystem())
        return CompilerBisector.get_backend() in (None, "inductor")

    monkeypatch.setattr(inductor_script, "_symptom", lambda _: is_wrong)
    before = len(BACKENDS["inductor"])
    assert inductor_script.bisected(Task(case=COMPILED)) == Inside(
        words="backend inductor; which part of it is not known"
    )
    parts = len(BACKENDS["inductor"])
    assert parts > before
    assert len(tries) == 1 + len(BACKENDS) + parts


def test_a_try_without_a_verdict_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    no_verdict = Check(status=CheckStatus.REFERENCE_FAILED, reason="nothing to judge by")
    monkeypatch.setattr("torchzoo.measure.check.check_case.check_case", lambda *_: no_verdict)
    with pytest.raises(ValueError, match="a try has no verdict: reference_failed, nothing to judge by"):
        inductor_script.bisected(Task(case=msgspec.structs.replace(COMPILED, model="resnet18")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo no torch here; exit 3", "ended with status 3: no torch here"),
        ("kill -9 $$", "was killed by signal 9"),
        ("""echo '{"words": "' > "$4" """, "ended with status 0: it printed nothing"),
        ("", "can't start"),
    ],
)
def test_a_search_that_fails_says_why(tmp_path: Path, text: str, message: str) -> None:
    program = tmp_path / "python"  # in place of Python
    if text:
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    environment = msgspec.structs.replace(BAD, python=str(program))
    answer = bisect_inductor(Task(case=COMPILED), environment, {})
    assert answer.words.startswith(inductor_script.NO_ANSWER)
    assert message in answer.words
