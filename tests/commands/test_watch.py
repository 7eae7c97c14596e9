"""`torchzoo watch` without models: planted changes in a generated repository, and quiet nights."""

from __future__ import annotations

import json
from typing import Any

import pytest
from watched_suite import Planted, Watching

from fake_lab import Repository, latency
from torchzoo.case import Case
from torchzoo.history.changes import Kind
from torchzoo.history.nights import NightStatus, finished_nights
from torchzoo.store import read_run


def test_a_planted_step_is_proposed_confirmed_bisected_and_an_issue_is_written(
    watching: Watching, repository: Repository
) -> None:
    suite = watching("slower", "same", "larger", quiet=6)
    assert all(night.status is NightStatus.GOOD and not night.confirmed for night in finished_nights(suite.root))

    assert suite.night(15) == 1
    night, shown = suite.last, suite.shown
    assert night.software == repository.spec(15)
    assert {(one.case.model, one.kind) for one in night.proposed} == {
        ("slower", Kind.LATENCY), ("larger", Kind.HOST_MEMORY),
    }  # fmt: skip
    assert {(one.case.model, one.kind) for one in night.confirmed} == {
        ("slower", Kind.LATENCY), ("larger", Kind.HOST_MEMORY),
    }  # fmt: skip
    (blamed,) = night.blamed
    assert (blamed.before, blamed.specs) == (repository.spec(10), (repository.spec(11),))
    assert len(blamed.explains) == 2
    assert sorted(path.name for path in suite.folder.iterdir()) == [
        "asked.json", "bisect", "confirm", "issue-1.md", "night.json", "run",
    ]  # fmt: skip
    assert {case.model for case in read_run(suite.folder / "confirm" / "base").manifest.cases} == {"slower", "larger"}
    issue = (suite.folder / "issue-1.md").read_text()
    commit = repository.commits[11]
    assert issue.startswith(
        "# larger eval cpu eager bs4: host memory 1.20x since timm " + commit[:10] + " (and 1 more)"
    )
    assert "Ada Lovelace, 2026-11-01: change 11" in issue
    assert f"torchzoo ab --base {repository.spec(10)} --candidate {repository.spec(11)} larger -d cpu -t eval" in issue
    assert "| slower eval cpu eager bs4 | latency | 20" in issue
    assert f"found: {repository.spec(11)} (Ada Lovelace, 2026-11-01: change 11): 2 changes" in shown
    assert "regressed: 2 changes; next: read what is in" in shown
    assert not [spec for spec in suite.lab.prepared if spec == "this"]

    assert suite.night(15) == 0  # the next night is as slow: the change is known
    assert suite.last.proposed == ()


def test_one_bisection_a_night_leaves_the_change_of_another_culprit_without_one(
    watching: Watching, repository: Repository
) -> None:
    suite = watching("slower", "same", "later", quiet=6, plan=Planted(repository, second=13))
    assert suite.night(15) == 1
    found = {blamed.specs: [one.case.model for one in blamed.explains] for blamed in suite.last.blamed}
    assert found in ({(repository.spec(13),): ["later"]}, {(repository.spec(11),): ["slower"]})
    assert suite.last.issues == ("issue-1.md", "issue-2.md")
    assert "found in the night" in (suite.folder / "issue-2.md").read_text()


def test_the_issue_of_each_of_two_culprits_has_its_own_part_of_the_change(
    watching: Watching, repository: Repository
) -> None:
    def in_two_steps(spec: str, _: Case, noise: float) -> Any:
        number = repository.number(spec)
        return latency(0.02 * noise * (1.5 if number >= 9 else 1.0) * (1.2 if number >= 13 else 1.0))

    suite = watching("slower", quiet=6, plan=in_two_steps)
    assert suite.night(15) == 1
    (confirmed,) = suite.last.confirmed
    assert confirmed.ratio is not None
    assert confirmed.ratio.value == pytest.approx(1.8, rel=0.02)  # between the nights
    assert {blamed.specs for blamed in suite.last.blamed} == {(repository.spec(9),), (repository.spec(13),)}
    titles = [(suite.folder / name).read_text().split("\n")[0] for name in suite.last.issues]
    assert sorted(title.split()[7] for title in titles) == ["1.20x", "1.50x"]


def test_a_change_that_cannot_be_bisected_has_an_issue_between_the_nights(
    watching: Watching, repository: Repository
) -> None:
    """A ghost is slower while it is confirmed, and never again."""
    planted, seen = Planted(repository), []

    def haunted(spec: str, case: Case, noise: float) -> Any:
        if case.model == "ghost" and repository.number(spec) == 15:
            seen.append(case)
            return latency(0.02 * noise * (1.5 if len(seen) <= 11 else 1.0))
        return planted(spec, case, noise)

    suite = watching("slower", "ghost", quiet=6, plan=haunted)
    assert suite.night(15) == 1
    assert suite.last.blamed == ()
    assert suite.last.remarks == (
        "no version was found for ghost eval cpu eager bs4: latency: the bad version does not differ from the good one "
        "when they are measured again",
    )
    assert "ghost eval cpu eager bs4: latency 1.50x, found in the night" in (suite.folder / "issue-1.md").read_text()


def test_a_package_that_changed_beside_a_commit_is_not_the_commits_fault(
    watching: Watching, repository: Repository
) -> None:
    suite = watching("slower", quiet=0)
    suite.lab.packages = {"timm": "1.0.19", "numpy": "2.0"}

    def with_numpy(spec: str, _: Case, noise: float) -> Any:
        is_new = suite.lab.packages["numpy"] == "2.1" and "numpy==2.0" not in spec
        return latency(0.02 * noise * (1.1 if is_new else 1.0))

    suite.lab.plan = with_numpy
    suite.quiet(4)
    suite.lab.packages = {"timm": "1.0.19", "numpy": "2.1"}
    assert suite.night(4) == 1
    assert suite.last.blamed == ()
    issue = (suite.folder / "issue-1.md").read_text()
    assert f"- `{repository.spec(3)},numpy==2.0` and" in issue


def test_the_only_commit_of_a_day_needs_no_bisection(watching: Watching, repository: Repository) -> None:
    suite = watching("slower", "same", quiet=6, plan=Planted(repository, culprit=6))
    assert suite.night(6) == 1
    assert suite.last.blamed[0].specs == (repository.spec(6),)
    assert not (suite.folder / "bisect").exists()


def test_a_case_that_newly_fails_is_bisected(watching: Watching, repository: Repository) -> None:
    suite = watching("fails", "same", quiet=3)
    assert suite.night(15) == 1
    (confirmed,) = suite.last.confirmed
    assert (confirmed.kind, confirmed.ratio) == (Kind.FAILING, None)
    assert suite.last.blamed[0].specs == (repository.spec(11),)
    issue = (suite.folder / "issue-1.md").read_text()
    assert issue.startswith("# fails eval cpu eager bs4: failing since timm")
    assert "no kernel for this shape" in issue
    assert suite.night(15) == 0


def test_a_wrong_proposal_is_not_confirmed(watching: Watching, repository: Repository) -> None:
    planted = Planted(repository, culprit=99)
    suite = watching("slower", "same", plan=planted)
    suite.lab.plan = lambda *given: latency(0.02 * given[2] * 1.08)  # the whole machine is slower tonight
    assert suite.night(4) == 0
    assert [one.kind for one in suite.last.proposed] == [Kind.LATENCY] * 2
    assert (suite.last.status, suite.last.confirmed, suite.last.issues) == (NightStatus.GOOD, (), ())
    assert "not confirmed: slower eval cpu eager bs4: latency" in suite.shown


def test_an_ab_that_cannot_tell_leaves_the_night_undecided(watching: Watching, repository: Repository) -> None:
    def wild(spec: str, case: Case, noise: float) -> Any:
        slower = 1.6 if case.repeat % 3 == 0 else 0.9
        return latency(0.02 * noise * (slower if repository.number(spec) == 4 else 1.0))

    suite = watching("slower", plan=wild)
    assert suite.night(4) == 0
    assert suite.last.status is NightStatus.UNDECIDED
    assert suite.last.remarks == ("the A/B could not tell: slower eval cpu eager bs4: latency",)
    assert "undecided: slower eval cpu eager bs4: latency" in suite.shown
    sides = [read_run(suite.folder / "confirm" / side) for side in ("base", "candidate")]
    assert [len(side.records) for side in sides] == [10, 10]


def test_processes_that_drift_are_compared_in_pairs(watching: Watching, repository: Repository) -> None:
    drift = (1.0, 1.3, 0.8, 1.5, 1.1)

    def drifting(spec: str, case: Case, noise: float) -> Any:
        slower = 1.25 if repository.number(spec) == 4 else 1.0
        return latency(0.02 * noise * slower * drift[case.repeat % 5])

    suite = watching("slower", plan=drifting)
    assert suite.night(4) == 1
    assert [one.kind for one in suite.last.confirmed] == [Kind.LATENCY]
    assert suite.last.remarks == ()


def test_the_same_software_is_not_measured_again_and_the_night_says_so(watching: Watching) -> None:
    suite = watching("slower", quiet=0)
    for _ in range(3):
        assert suite.night(3) == 0
    assert suite.last.status is NightStatus.GOOD
    suite.lab.plan = lambda *given: latency(0.03 * given[2])
    assert suite.night(3) == 0
    assert len(suite.lab.measured) == 4
    assert suite.last.status is NightStatus.UNDECIDED
    (remark,) = suite.last.remarks
    assert "could not be decided: no recorded software changed" in remark
    assert remark in suite.shown


def test_this_environment_is_held_against_its_old_packages(watching: Watching, monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases are no commits, so pip is asked what lies between."""
    from packaging.version import Version

    from torchzoo.history import candidates

    versions = [Version(f"1.0.{number}") for number in range(10, 20)]
    monkeypatch.setattr(candidates, "offered_versions", lambda *_, **__: versions)
    suite = watching("slower", quiet=0)
    suite.lab.packages = {"timm": "1.0.10"}

    def slower_since_14(spec: str, _: Case, noise: float) -> Any:
        version = suite.lab.packages["timm"] if spec == "this" else spec.partition("==")[2]
        return latency(0.02 * noise * (1.1 if Version(version) >= Version("1.0.14") else 1.0))

    suite.lab.plan = slower_since_14
    for _ in range(4):
        assert suite.call() == 0
    suite.lab.packages = {"timm": "1.0.19"}
    assert suite.call() == 1
    night = suite.last
    assert night.software == "this"
    assert night.blamed[0].specs == ("timm==1.0.14",)
    assert "measuring 1 case beside the night" in suite.shown
    asked = json.loads((suite.folder / "confirm" / "ab.json").read_text())
    assert (asked["base"], asked["candidate"]) == ("timm==1.0.10", "this")


def test_an_environment_that_cannot_be_made_leaves_the_night_undecided(
    watching: Watching, repository: Repository
) -> None:
    suite = watching("slower")
    suite.lab.cannot_make = {repository.spec(3)}
    assert suite.night(15) == 0
    assert suite.last.status is NightStatus.UNDECIDED
    assert "no such version" in suite.last.remarks[0]
    assert "undecided: nothing was confirmed, and not all could be decided" in suite.shown
    suite.lab.cannot_make = {repository.spec(14)}
    assert suite.night(14) == 2
    assert len(finished_nights(suite.root)) == len(list((suite.root / "nights").glob("2*"))) == 5
    suite.lab.cannot_make = set()
    assert suite.night(15) == 1  # what could not be decided is proposed again
