"""`torchzoo run --dry-run`: the cases of a run on this machine, without measuring them."""

from __future__ import annotations

from pathlib import Path

from in_this_process import torchzoo
from user_models import make_folder


def lines_of(tmp_path: Path, *words: str) -> list[str]:
    """What it prints of two models, with the folder of a run that it must not write."""
    for name in ("one", "two"):
        if not (tmp_path / "zoo" / name).exists():
            make_folder(tmp_path / "zoo", name)
    folders = ["--models-dir", str(tmp_path / "zoo"), "-o", str(tmp_path / "run")]
    done = torchzoo("run", "one", "two", "-d", "cpu", *folders, *words, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run").exists()
    return done.stdout.splitlines()


def test_it_lists_the_cases_and_writes_nothing(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, "--backend", "eager,aot_eager", "--time-limit", "3", "--check")
    assert lines[:-1] == [f"{name} eval cpu aot_eager bs4" for name in ("one", "two")]
    assert lines[-1] == "2 cases to run; 3 s of timing a case at most; passes: check"


def test_it_says_why_a_case_cannot_run(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, "--backend", "eager,cudagraphs")
    assert any(line.startswith("not run (2 cases): cudagraphs: ") for line in lines)
    assert lines[-1].startswith("2 cases to run; ")


def test_a_part_and_a_batch_size_that_is_searched_for(tmp_path: Path) -> None:
    lines = lines_of(tmp_path, "--part", "2/2", "--bs", "auto")
    assert lines[0].startswith("two eval cpu eager")
    assert lines[1].startswith("1 case to run; ")
    assert lines[2].startswith("batch size auto: ")


def test_it_shows_what_the_budget_gives_each_case_unless_each_has_its_time_limit(tmp_path: Path) -> None:
    assert "1.5 s (budget 3 s)" in lines_of(tmp_path, "--budget", "3")[-1]
    assert "budget" not in lines_of(tmp_path, "--time-limit", "3", "-t", "train,eval")[-1]


def test_the_machines_of_an_executor_are_not_asked(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "one")
    words = ["one", "--models-dir", str(tmp_path / "zoo"), "--executor", "slurm", "--dry-run"]
    done = torchzoo("run", *words)
    assert done.returncode == 0, done.stderr
    assert "device: the accelerator of the machine that measures" in done.stdout
