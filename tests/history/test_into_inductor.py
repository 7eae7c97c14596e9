"""From the culprit into inductor: when its bisector is asked, with what, and what is kept of the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples import CASE, INDUCTOR, record, run_of
from kept_runs import against_eager
from torchzoo.case import Case
from torchzoo.environments.make import PythonEnvironment
from torchzoo.history import into_inductor
from torchzoo.history.inductor_bisect import BisectionFailed
from torchzoo.history.inductor_script import Answer
from torchzoo.history.into_inductor import Inside, applies_to, look_inside
from torchzoo.history.proposals import Kind
from torchzoo.settings import Settings
from torchzoo.store import Run

COMPILED = msgspec.structs.replace(CASE, backend=INDUCTOR)
BAD = PythonEnvironment(name="torch==2", python="/venv/bin/python", variables={"PYTHONPATH": "/code"}, key="k")
FOUND = Answer(backend="inductor", subsystem="lowerings", number=2, about="relu")


class Bisector:
    """Stands for `bisect_inductor`, which compiles for minutes."""

    def __init__(self, answer: Answer | str = FOUND) -> None:
        self.answer = answer
        self.asked: list[tuple[Case, dict[str, Any]]] = []

    def __call__(self, case: Case, **options: Any) -> Answer:
        self.asked.append((case, options))
        if isinstance(self.answer, str):
            raise BisectionFailed(self.answer)
        return self.answer


@pytest.fixture
def bisector(monkeypatch: pytest.MonkeyPatch) -> Bisector:
    made = Bisector()
    monkeypatch.setattr(into_inductor, "bisect_inductor", made)
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
    found = look_inside(Kind.LATENCY, COMPILED, run(2.0), run(1.0), BAD, kept)
    assert found.words == "backend inductor, the lowering of an operator (lowerings), number 2: relu"
    assert found.without_it == "TORCH_BISECT_BACKEND=inductor TORCH_BISECT_SUBSYSTEM=lowerings TORCH_BISECT_MAX=1"
    ((case, options),) = bisector.asked
    assert case == COMPILED
    assert options["slow_from"] == pytest.approx(2**-0.5, rel=0.01)  # between 0.5 and 1
    assert options["python"] == "/venv/bin/python"
    assert options["models_dirs"] == ("/zoo",)
    assert options["variables"] == {"PYTHONPATH": "/code", "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("candidate", [run(2.0, eager_s=0.3), run(2.5)], ids=["eager is slower too", "it is faster"])
def test_what_is_not_slower_beside_eager_is_not_looked_into(candidate: Run, bisector: Bisector, tmp_path: Path) -> None:
    found = look_inside(Kind.LATENCY, COMPILED, run(2.0), candidate, BAD, tmp_path / "inside.json")
    assert found.words.startswith("not looked into: the step did not become slower beside eager's")
    assert bisector.asked == []


def test_an_answer_is_kept(bisector: Bisector, tmp_path: Path) -> None:
    kept = tmp_path / "inside.json"
    first = look_inside(Kind.LATENCY, COMPILED, run(2.0), run(1.0), BAD, kept)
    assert look_inside(Kind.LATENCY, COMPILED, run(2.0), run(1.0), BAD, kept) == first
    assert len(bisector.asked) == 1
    kept.write_text("{")  # cut short by a crash
    look_inside(Kind.LATENCY, COMPILED, run(2.0), run(1.0), BAD, kept)
    assert len(bisector.asked) == 2


def test_no_answer_says_why(bisector: Bisector, tmp_path: Path) -> None:
    bisector.answer = "it is not slow"
    found = look_inside(Kind.LATENCY, COMPILED, run(2.0), run(1.0), BAD, tmp_path / "inside.json")
    assert found == Inside(words="inductor's own bisector gave no answer: it is not slow")
