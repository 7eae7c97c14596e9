"""`torchzoo bisect --inside-inductor`, with a stand-in for inductor's bisector, which compiles for minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from examples import INDUCTOR, record
from kept_runs import against_eager, incorrect, keep
from torchzoo.case import Backend, Case
from torchzoo.cli import main
from torchzoo.history import into_inductor
from torchzoo.history.inductor_bisect import BisectionFailed
from torchzoo.history.inductor_script import Answer

FOUND = Answer(backend="inductor", subsystem="lowerings", number=2, about="relu")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    found: list[Case] = []

    def bisect_inductor(case: Case, **_: Any) -> Answer:
        found.append(case)
        if case.model == "hidden":
            raise BisectionFailed("its results are not wrong")
        return FOUND

    monkeypatch.setattr(into_inductor, "bisect_inductor", bisect_inductor)
    return found


def kept(folder: Path, *models: str) -> Path:
    records = [record(incorrect(2.0), backend=INDUCTOR, model=name) for name in models]
    return keep(folder / "run", [*records, record(against_eager(2.0), backend=INDUCTOR, model="right")])


def test_each_incorrect_case_is_looked_into_once(
    tmp_path: Path, asked: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(kept(tmp_path, "wrong", "other"))
    assert main(["bisect", "--inside-inductor", path]) == 0
    shown = capsys.readouterr().out
    assert [case.model for case in asked] == ["wrong", "other"]
    assert "wrong eval cpu inductor bs4: its results are not eager's: loss is off by 40%" in shown
    assert "  backend inductor, the lowering of an operator (lowerings), number 2: relu" in shown
    assert "  without it: TORCH_BISECT_BACKEND=inductor TORCH_BISECT_SUBSYSTEM=lowerings TORCH_BISECT_MAX=1 " in shown
    assert "--debug DIR, then DIR/*/reproduce.py --minify" in shown
    assert main(["bisect", "--inside-inductor", path, "other"]) == 0
    assert len(asked) == 2
    assert "relu" in capsys.readouterr().out


def test_a_line_that_cannot_be_read_is_said(
    tmp_path: Path, asked: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    path = kept(tmp_path, "wrong")
    with (path / "records.jsonl").open("a") as file:
        file.write('{"case": {"mod')
    assert main(["bisect", "--inside-inductor", str(path)]) == 0
    assert "records.jsonl: line 3 could not be read" in capsys.readouterr().err
    assert len(asked) == 1


def test_what_has_no_answer_says_why(tmp_path: Path, asked: list[Case], capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path, "hidden", "wrong")
    assert main(["bisect", "--inside-inductor", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "  inductor's own bisector gave no answer: its results are not wrong" in shown
    assert f"  remove {path / 'narrowed'}" in shown
    assert [case.model for case in asked] == ["hidden", "wrong"]  # one does not stop the next


def test_what_is_not_incorrect_or_not_inductors_is_refused(
    tmp_path: Path, asked: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bisect", "--inside-inductor", str(kept(tmp_path)), "right"]) == 2
    assert "right eval cpu inductor bs4 is passed: " in capsys.readouterr().err
    assert main(["bisect", "--inside-inductor", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == "no case of this run has incorrect results\n"
    other = keep(tmp_path / "other", [record(incorrect(2.0), backend=Backend("aot_eager"), model="wrong")])
    assert main(["bisect", "--inside-inductor", str(other)]) == 1
    assert "only cases of one rank with the backend inductor" in capsys.readouterr().out
    assert main(["bisect", "--inside-inductor", str(other), "--good", "torch==2.14.1"]) == 2
    assert "--inside-inductor reads a kept run: leave out --good" in capsys.readouterr().err
    assert asked == []
