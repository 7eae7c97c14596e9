"""Following culprits with a fake judge: several steps, inconclusive and skipped versions, kills, damaged logs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from torchzoo.case import EAGER, Axes, Mode
from torchzoo.history.bisect_log import Asked, BisectLog
from torchzoo.history.bisection import Ending, Evidence, Judgement, Standing
from torchzoo.history.culprits import Follower, Result, Step, evidence_text
from torchzoo.history.proposals import Kind
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.stats import Estimate
from torchzoo.store import StoreError

REQUEST = RunRequest(
    patterns=("resnet18",), axes=Axes(modes=(Mode.EVAL,), devices=("cpu",), backends=(EAGER,)), settings=Settings()
)


def asked(count: int = 71, lanes: int = 1) -> Asked:
    versions = tuple(f"timm==1.{number}" for number in range(count))
    good, bad = versions[0], versions[-1]
    return Asked(good=good, bad=bad, versions=versions, request=REQUEST, kind=Kind.LATENCY, lanes=lanes)


class FakeJudge:
    """A judge that knows how long the step of each version takes: 1, and more from each culprit on."""

    def __init__(self, steps: dict[int, float], *, needed: int = 1, broken: range = range(0)) -> None:
        self.steps = steps
        self.needed = needed  # the effort from which a verdict is not inconclusive
        self.broken = broken
        self.asks: list[tuple[str, Judgement]] = []
        self.dies_at = 10**9
        self.lock = threading.Lock()

    def time_s(self, spec: str) -> float:
        number, total = int(spec.rpartition(".")[2]), 1.0
        for culprit, factor in self.steps.items():
            total *= factor if number >= culprit else 1.0
        return total

    def judge(self, good: str, asks: Sequence[Judgement]) -> list[Evidence]:
        return [self.one(good, ask) for ask in asks]

    def one(self, good: str, ask: Judgement) -> Evidence:
        with self.lock:
            if len(self.asks) == self.dies_at:
                raise KeyboardInterrupt
            self.asks.append((good, ask))
        if int(ask.midpoint.rpartition(".")[2]) in self.broken:
            return Evidence(verdict=Standing.SKIPPED, reason="the model fails")
        value = self.time_s(ask.midpoint) / self.time_s(good)
        ratio = Estimate(value=value, low=value - 0.02, high=value + 0.02, confidence=0.95, count=5)
        if ask.effort < self.needed:
            return Evidence(verdict=Standing.INCONCLUSIVE, ratio=msgspec.structs.replace(ratio, high=float("inf")))
        return Evidence(verdict=Standing.BAD if value > 1.07 else Standing.GOOD, ratio=ratio)


def follow(path: Path, judge: FakeJudge, *, resume: bool = False, lanes: int = 1) -> tuple[Result, list[Step]]:
    steps: list[Step] = []
    with BisectLog(path, resume=resume) as log:
        if not resume:
            log.begin(asked(lanes=lanes))
        result = Follower(asked=log.asked(), log=log, judge=judge, show=steps.append).follow()
    return result, steps


def names(result: Result) -> list[tuple[str, ...]]:
    return [one.specs for one in result.culprits]


def test_one_culprit(tmp_path: Path) -> None:
    judge = FakeJudge({23: 1.2})
    result, steps = follow(tmp_path, judge)
    (culprit,) = result.culprits
    assert culprit.is_exact
    assert (culprit.before, culprit.specs) == ("timm==1.22", ("timm==1.23",))
    assert culprit.probability >= 0.95
    assert culprit.ratio is not None
    assert culprit.ratio.value == pytest.approx(1.2)
    assert result.ended is Ending.ABSENT  # nothing is left between the culprit and the bad version
    assert len([good for good, _ in judge.asks if good == "timm==1.0"]) <= 8
    assert steps[-2].best == "timm==1.23"
    assert evidence_text(steps[0].entry.evidence) == "bad 1.200x [1.180, 1.220]"


def test_more_than_one_culprit_is_followed(tmp_path: Path) -> None:
    result, _ = follow(tmp_path, FakeJudge({12: 1.2, 40: 1.5, 70: 1.1}))
    assert names(result) == [("timm==1.12",), ("timm==1.40",), ("timm==1.70",)]
    assert [round(one.ratio.value, 3) for one in result.culprits if one.ratio] == [1.2, 1.5, 1.1]
    assert result.ended is Ending.FOUND  # the last culprit is the bad version itself


def test_several_lanes_are_judged_at_once(tmp_path: Path) -> None:
    result, steps = follow(tmp_path, FakeJudge({12: 1.2, 40: 1.5}), lanes=3)
    assert names(result) == [("timm==1.12",), ("timm==1.40",)]
    assert len({(step.entry.good, step.entry.midpoint) for step in steps}) <= 26


def test_no_change(tmp_path: Path) -> None:
    judge = FakeJudge({})
    result, _ = follow(tmp_path, judge)
    assert (result.culprits, result.ended) == ((), Ending.ABSENT)
    assert [ask.number for _, ask in judge.asks] == [1, 2]  # two measurements of the bad version


def test_an_inconclusive_version_is_measured_with_more_effort(tmp_path: Path) -> None:
    judge = FakeJudge({23: 1.2}, needed=4)
    result, _ = follow(tmp_path, judge)
    assert names(result) == [("timm==1.23",)]
    assert [ask.effort for _, ask in judge.asks[:6]] == [1, 2, 4, 1, 2, 4]
    assert len(set(judge.asks)) == len(judge.asks)  # the same ask would be measured by the same processes
    with BisectLog(tmp_path, resume=True) as log:
        assert log.entries()[0][0].evidence.ratio is not None  # an infinite end was kept as a number


def test_a_bad_version_that_stays_inconclusive(tmp_path: Path) -> None:
    judge = FakeJudge({23: 1.2}, needed=1000)
    result, _ = follow(tmp_path, judge)
    assert (result.culprits, result.ended) == ((), Ending.UNMEASURABLE)
    assert [(ask.effort, ask.number) for _, ask in judge.asks] == [(1, 1), (2, 2), (4, 3), (8, 4), (16, 5)]


def test_only_skipped_versions_are_left(tmp_path: Path) -> None:
    result, _ = follow(tmp_path, FakeJudge({23: 1.2, 60: 1.3}, broken=range(21, 26)))
    assert names(result) == [tuple(f"timm==1.{number}" for number in range(21, 27)), ("timm==1.60",)]
    assert not result.culprits[0].is_exact


def test_a_bad_version_that_fails(tmp_path: Path) -> None:
    result, _ = follow(tmp_path, FakeJudge({23: 1.2}, broken=range(70, 71)))
    assert (result.ended, result.reason) == (Ending.UNMEASURABLE, "the model fails")


def test_killed_at_any_moment_it_goes_on_and_measures_nothing_twice(tmp_path: Path) -> None:
    whole = FakeJudge({12: 1.2, 40: 1.5}, needed=2)
    expected, _ = follow(tmp_path / "whole", whole)
    for dies_at in range(0, len(whole.asks), 3):
        folder = tmp_path / str(dies_at)
        judge = FakeJudge({12: 1.2, 40: 1.5}, needed=2)
        judge.dies_at = dies_at
        with pytest.raises(KeyboardInterrupt):
            follow(folder, judge)
        log = folder / "bisect.jsonl"
        if dies_at % 2:  # killed while the last line was written
            log.write_bytes(log.read_bytes() + b'{"good":"timm==1.0","midp')
        judge.dies_at = 10**9
        result, _ = follow(folder, judge, resume=True)
        assert result == expected
        assert judge.asks == whole.asks
        with BisectLog(folder, resume=True) as kept:
            entries, remark = kept.entries()
        assert len(entries) == len(whole.asks)
        assert ("could not be read and will be measured again" in remark) == bool(dies_at % 2)


def test_a_folder_is_not_used_twice_at_once_or_for_two_bisections(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no bisection in"), BisectLog(tmp_path, resume=True):
        pass
    with BisectLog(tmp_path) as log:
        with pytest.raises(StoreError, match="another torchzoo is at work"), BisectLog(tmp_path):
            pass
        log.begin(asked())
    with pytest.raises(StoreError, match="go on with --resume"), BisectLog(tmp_path):
        pass
    (tmp_path / "bisect.json").write_text("{}")
    with BisectLog(tmp_path, resume=True) as log, pytest.raises(StoreError, match="not written by this version"):
        log.asked()
