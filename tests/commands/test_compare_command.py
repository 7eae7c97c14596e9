"""`torchzoo compare`: exit statuses, files, runs cut short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples import environment
from in_this_process import refused, torchzoo
from kept_runs import keep
from repeated_runs import STEADY, records, times


class Runs:
    def __init__(self, folder: Path) -> None:
        self.base = keep(folder / "base", records(STEADY))
        self.slow = keep(folder / "slow", records(times(1.1)))
        self.other = keep(folder / "other", records(STEADY), environment=environment(torch="2.16.0"))


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def compared(*words: object) -> int:
    return torchzoo("compare", *words).returncode


def test_exit_statuses(runs: Runs) -> None:
    assert compared(runs.base, runs.base) == compared(runs.slow, runs.base) == 0
    assert compared(runs.base, runs.slow) == 1
    assert compared(runs.base, runs.slow, "--threshold", "20%") == 0
    assert (
        compared(runs.base, runs.slow, "--threshold", "7") == compared(runs.base, runs.slow, "--threshold", "7%") == 1
    )
    assert compared(runs.base, runs.slow, "--metric", "host_memory") == 0
    assert compared(runs.base, runs.other) == 2
    assert compared(runs.base, runs.other, "--across=torch") == compared(runs.base, runs.other, "--across") == 0


@pytest.mark.parametrize(
    "options", [["--metric", "latancy"], *(["--threshold", wrong] for wrong in ("-7", "0%", "100", "much"))]
)
def test_other_options_are_refused(runs: Runs, options: list[str]) -> None:
    said = refused("compare", runs.base, runs.base, *options)
    assert options[0] in said or options[1] in said


def test_the_sides_of_an_ab_were_measured_in_turns(tmp_path: Path) -> None:
    base, candidate = (keep(tmp_path / "out" / side, records(STEADY)) for side in ("base", "candidate"))
    other = keep(tmp_path / "out" / "other", records(STEADY))

    def is_in_turns(*runs: Path) -> bool:
        done = torchzoo("compare", *runs, "--format", "md")
        assert done.returncode == 0
        return "measured in turns" in done.stdout

    assert not is_in_turns(base, candidate)
    (tmp_path / "out" / "ab.json").write_text("{}")
    assert is_in_turns(base, candidate)
    assert is_in_turns(candidate, base)
    assert not is_in_turns(base, other)
    assert not is_in_turns(base, base)


def test_new_torch_keeps_its_verdicts(tmp_path: Path) -> None:
    base = keep(tmp_path / "base", records(STEADY))
    slow = keep(tmp_path / "slow", records(times(1.1)), environment=environment(torch="2.16.0"))
    done = torchzoo("compare", base, slow, "--across=torch", "--format", "json", "-o", tmp_path / "out.json")
    assert done.returncode == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["has_regression"] is True
    assert [one["verdict"] for one in found["findings"] if one["metric"] == "latency"] == ["slower"]


def test_a_run_cut_short_is_compared_as_far_as_it_goes(runs: Runs, tmp_path: Path) -> None:
    with (runs.base / "records.jsonl").open("a") as file:
        file.write('{"case": {"mod')
    done = torchzoo("compare", runs.base, runs.base)
    assert (done.returncode, "records.jsonl: line 6" in done.stderr) == (0, True)
    for lost in (keep(tmp_path / "empty", []), tmp_path / "none"):
        assert f"{lost}" in torchzoo("compare", runs.base, lost).stderr
        assert compared(runs.base, lost) == 2
