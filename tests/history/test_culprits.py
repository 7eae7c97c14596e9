"""Following culprits with a fake judge: several steps, inconclusive and skipped versions, kills, damaged logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_judge import FakeJudge
from torchzoo.case import EAGER, Axes, Mode
from torchzoo.files import FileError
from torchzoo.history.bisection import Ending
from torchzoo.history.changes import Kind
from torchzoo.history.culprits import Asked, BisectLog, Result, Step, find_culprits
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.store import StoreError

REQUEST = RunRequest(
    patterns=("resnet18",), axes=Axes(modes=(Mode.EVAL,), devices=("cpu",), backends=(EAGER,)), settings=Settings()
)


def asked(count: int = 71, lanes: int = 1) -> Asked:
    versions = tuple(f"timm==1.{number}" for number in range(count))
    good, bad = versions[0], versions[-1]
    return Asked(good=good, bad=bad, versions=versions, request=REQUEST, kind=Kind.LATENCY, lanes=lanes)


def follow(path: Path, judge: FakeJudge, *, resume: bool = False, lanes: int = 1) -> tuple[Result, list[Step]]:
    steps: list[Step] = []
    with BisectLog.opened(path, resume=resume) as log:
        if not resume:
            log.begin(asked(lanes=lanes))
        result = find_culprits(log.asked(), log, judge.judge, show=steps.append)
    return result, steps


def names(result: Result) -> list[tuple[str, ...]]:
    return [one.specs for one in result.culprits]


def test_more_than_one_culprit_is_followed(tmp_path: Path) -> None:
    result, _ = follow(tmp_path, FakeJudge({12: 1.2, 40: 1.5, 70: 1.1}))
    assert names(result) == [("timm==1.12",), ("timm==1.40",), ("timm==1.70",)]
    assert [round(one.ratio.value, 3) for one in result.culprits if one.ratio] == [1.2, 1.5, 1.1]
    assert result.ended is Ending.FOUND  # the last culprit is the bad version itself


def test_several_lanes_are_judged_at_once(tmp_path: Path) -> None:
    result, steps = follow(tmp_path, FakeJudge({12: 1.2, 40: 1.5}), lanes=3)
    assert names(result) == [("timm==1.12",), ("timm==1.40",)]
    assert len({(step.entry.good, step.entry.midpoint) for step in steps}) <= 26


def test_an_inconclusive_version_is_measured_with_more_effort(tmp_path: Path) -> None:
    judge = FakeJudge({23: 1.2}, needed=4)
    result, _ = follow(tmp_path, judge)
    assert names(result) == [("timm==1.23",)]
    assert [ask.effort for _, ask in judge.asks[:6]] == [1, 2, 4, 1, 2, 4]
    assert len(set(judge.asks)) == len(judge.asks)  # the same ask would be measured by the same processes
    with BisectLog.opened(tmp_path, resume=True) as log:
        assert log.entries()[0][0].evidence.ratio is not None  # an infinite end was kept as a number


def test_a_bad_version_that_stays_inconclusive(tmp_path: Path) -> None:
    judge = FakeJudge({23: 1.2}, needed=1000)
    result, _ = follow(tmp_path, judge)
    assert (result.culprits, result.ended) == ((), Ending.UNMEASURABLE)
    assert [(ask.effort, ask.number) for _, ask in judge.asks] == [(1, 1), (2, 2), (4, 3), (8, 4), (16, 5)]


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
        with BisectLog.opened(folder, resume=True) as kept:
            entries, remark = kept.entries()
        assert len(entries) == len(whole.asks)
        assert ("could not be read and will be measured again" in remark) == bool(dies_at % 2)


def test_a_folder_is_not_used_twice_at_once_or_for_two_bisections(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no bisection in"), BisectLog.opened(tmp_path, resume=True):
        pass
    with BisectLog.opened(tmp_path) as log:
        with pytest.raises(StoreError, match="another torchzoo is at work"), BisectLog.opened(tmp_path):
            pass
        log.begin(asked())
    (tmp_path / "bisect.jsonl").touch()
    with pytest.raises(StoreError, match="go on with --resume"), BisectLog.opened(tmp_path):
        pass
    (tmp_path / "bisect.json").write_text("{}")
    with BisectLog.opened(tmp_path, resume=True) as log, pytest.raises(FileError, match="not written by this version"):
        log.asked()
