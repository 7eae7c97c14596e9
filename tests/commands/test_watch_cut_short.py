"""A night of `torchzoo watch` that was cut short: the next call goes on with it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from watched_suite import Planted, Suite, Watching

from fake_lab import Repository, latency
from torchzoo.case import Case
from torchzoo.history import watch
from torchzoo.history.nights import NightStatus, finished_nights
from torchzoo.record import Skipped


def test_killed_at_any_moment_the_next_call_goes_on_and_nothing_is_measured_twice(
    watching: Watching, tmp_path: Path
) -> None:
    quiet = watching("slower", "same")

    def on_a_copy(name: str) -> Suite:
        shutil.copytree(quiet.root, tmp_path / name)
        return watching(*quiet.models, quiet=0, folder=name)

    suite = on_a_copy("whole")
    assert suite.night(15) == 1
    count, expected = len(suite.lab.measured), suite.last
    for dies_at in sorted({*range(0, count, 11), count - 1}):
        suite = on_a_copy(str(dies_at))
        suite.lab.dies_at = dies_at
        assert suite.night(15) == 130
        assert "the same command goes on with this night" in suite.said
        suite.lab.dies_at = -1
        assert suite.night(15) == 1
        assert len(suite.lab.measured) == len(set(suite.lab.measured)) == count
        assert [one.specs for one in suite.last.blamed] == [one.specs for one in expected.blamed]
        assert len(finished_nights(suite.root)) == 5


def test_groups_beside_two_nights_share_one_bisection_and_one_issue(watching: Watching, repository: Repository) -> None:
    """In the last quiet night, one case was skipped. So it is held against the night before that."""
    planted = Planted(repository)

    def shy(spec: str, case: Case, noise: float) -> Any:
        if case.model == "shy":
            if repository.number(spec) == 3:
                return Skipped(reason="not tonight")
            case = msgspec.structs.replace(case, model="slower")
        return planted(spec, case, noise)

    suite = watching("slower", "shy", plan=shy)
    suite.lab.dies_at = len(suite.lab.measured) + 32  # in the second A/B
    assert suite.night(15) == 130
    suite.lab.dies_at = -1
    assert suite.night(15) == 1
    assert (suite.folder / "confirm-2" / "candidate" / "run.json").is_file()
    assert len(suite.lab.measured) == len(set(suite.lab.measured))
    assert len({one.base for one in suite.last.confirmed}) == 2
    (blamed,) = suite.last.blamed
    assert blamed.specs == (repository.spec(11),)
    assert {one.case.model for one in blamed.explains} == {"slower", "shy"}
    assert suite.last.issues == ("issue-1.md",)


@pytest.mark.parametrize("step", ["propose", "confirm", "blame", "write_issues", "finish"])
def test_killed_between_two_steps(
    step: str, watching: Watching, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = watching("slower")

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(watch, step, die)
        assert suite.night(15) == 130
    assert suite.night(15) == 1
    assert len(suite.lab.measured) == len(set(suite.lab.measured))
    assert suite.last.blamed[0].specs == (repository.spec(11),)


def test_a_night_that_was_cut_short_keeps_its_commit(watching: Watching, tmp_path: Path) -> None:
    suite = watching("a", "b", quiet=0, plan=lambda *given: latency(0.02 * given[2]))
    repository_of_today = Repository(tmp_path / "moving")
    repository_of_today.commit(2)
    command = ["--software", repository_of_today.head]
    suite.lab.dies_at = 1
    assert suite.call(*command) == 130
    repository_of_today.commit()
    suite.lab.dies_at = -1
    assert suite.call(*command) == 0
    assert [one.software for one in finished_nights(suite.root)] == [repository_of_today.spec(1)]
    assert suite.call(*command) == 0
    assert finished_nights(suite.root)[-1].software == repository_of_today.spec(2)
    suite.lab.dies_at = len(suite.lab.measured) + 1
    assert suite.call(*command) == 130
    suite.lab.dies_at = -1
    assert suite.call(*command, "-t", "train") == 0
    assert "it was begun with other models, options or software" in suite.shown
    assert [one.status for one in finished_nights(suite.root)][-2:] == [NightStatus.UNDECIDED, NightStatus.GOOD]


def test_an_environment_that_changed_while_the_night_was_cut_short(watching: Watching) -> None:
    suite = watching("slower", quiet=0, plan=lambda *given: latency(0.02 * given[2]))
    for _ in range(4):
        assert suite.call() == 0
    suite.lab.packages = {"timm": "1.0.20"}
    suite.lab.plan = lambda *given: latency(0.03 * given[2])
    suite.lab.dies_at = len(suite.lab.measured) + 1
    assert suite.call() == 130
    suite.lab.packages = {"timm": "1.0.21"}
    suite.lab.dies_at = -1
    assert suite.call() == 0
    night = suite.last
    assert night.status is NightStatus.UNDECIDED
    assert "the environment changed after the run of this night: timm was 1.0.20, is 1.0.21" in night.remarks[0]
