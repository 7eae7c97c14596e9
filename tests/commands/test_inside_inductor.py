"""`torchzoo bisect --inside-inductor`, with a stand-in for inductor's bisector, which compiles for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import INDUCTOR, record
from in_this_process import refused, torchzoo
from kept_runs import against_eager, incorrect, keep
from torchzoo.case import Backend, Case
from torchzoo.history import into_inductor
from torchzoo.history.inductor_script import Inside, Task, no_answer

FOUND = Inside(
    words="backend inductor, the lowering of an operator (lowerings), number 2: relu",
    without_it="TORCH_BISECT_BACKEND=inductor TORCH_BISECT_SUBSYSTEM=lowerings TORCH_BISECT_MAX=1",
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    found: list[Case] = []

    def bisect_inductor(task: Task, *_: object) -> Inside:
        found.append(task.case)
        if task.case.model == "hidden":
            return no_answer(task, "its results are not wrong")
        return FOUND

    monkeypatch.setattr(into_inductor, "bisect_inductor", bisect_inductor)
    return found


def kept(folder: Path, *models: str) -> Path:
    records = [record(incorrect(2.0), backend=INDUCTOR, model=name) for name in models]
    return keep(folder / "run", [*records, record(against_eager(2.0), backend=INDUCTOR, model="right")])


def test_each_incorrect_case_is_looked_into_once(tmp_path: Path, asked: list[Case]) -> None:
    path = kept(tmp_path, "wrong", "other")
    done = torchzoo("bisect", "--inside-inductor", path)
    assert done.returncode == 0
    assert [case.model for case in asked] == ["wrong", "other"]
    assert "wrong eval cpu inductor bs4: its results are not eager's: loss is off by 40%" in done.stdout
    assert "  backend inductor, the lowering of an operator (lowerings), number 2: relu" in done.stdout
    assert " TORCH_BISECT_BACKEND=inductor TORCH_BISECT_SUBSYSTEM=lowerings TORCH_BISECT_MAX=1 " in done.stdout
    assert "relu" in torchzoo("bisect", "--inside-inductor", path, "other").stdout
    assert len(asked) == 2


def test_a_line_that_cannot_be_read_is_said(tmp_path: Path, asked: list[Case]) -> None:
    path = kept(tmp_path, "wrong")
    with (path / "records.jsonl").open("a") as file:
        file.write('{"case": {"mod')
    done = torchzoo("bisect", "--inside-inductor", path)
    assert (done.returncode, "records.jsonl: line 3 " in done.stderr, len(asked)) == (0, True, 1)


def test_what_has_no_answer_says_why(tmp_path: Path, asked: list[Case]) -> None:
    path = kept(tmp_path, "hidden", "wrong")
    done = torchzoo("bisect", "--inside-inductor", path)
    assert done.returncode == 1
    assert "its results are not wrong" in done.stdout
    assert f"  remove {path / 'narrowed'}" in done.stdout
    assert [case.model for case in asked] == ["hidden", "wrong"]  # one does not stop the next


def test_what_is_not_incorrect_or_not_inductors_is_refused(tmp_path: Path, asked: list[Case]) -> None:
    path = kept(tmp_path)
    assert "right eval cpu inductor bs4 is passed" in refused("bisect", "--inside-inductor", path, "right")
    assert torchzoo("bisect", "--inside-inductor", path).returncode == 0
    other = keep(tmp_path / "other", [record(incorrect(2.0), backend=Backend("aot_eager"), model="wrong")])
    done = torchzoo("bisect", "--inside-inductor", other)
    assert (done.returncode, "with the backend inductor" in done.stdout) == (1, True)
    assert "--good" in refused("bisect", "--inside-inductor", other, "--good", "torch==2.14.1")
    assert asked == []
