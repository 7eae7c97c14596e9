"""An A/B decides a night's proposals."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import CASE, record
from fake_lab import FakeLab, latency
from kept_nights import MIB, eager_s
from kept_runs import keep
from torchzoo.case import EAGER, Axes
from torchzoo.history.ab import AbError
from torchzoo.history.confirm import MeasuredGroup, decide, groups_of, measure_pair
from torchzoo.history.proposals import Kind, Proposal
from torchzoo.history.software import Sides
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.store import Run, read_run


def run_at(path: Path, step_s: float, memory: int) -> Run:
    steps = [step_s * (1 + 0.002 * (n % 3 - 1)) for n in range(5)]
    return read_run(keep(path, [record(eager_s(s, memory=memory), repeat=n) for n, s in enumerate(steps)]))


def test_each_change_keeps_the_night_of_its_own_proposal(tmp_path: Path) -> None:
    """Both are measured beside the earlier night. The next night must not report the later change again."""
    proposals = [Proposal(case=CASE, kind=kind, base=base, why="") for kind, base in (
        (Kind.HOST_MEMORY, "night 1"), (Kind.LATENCY, "night 3"),
    )]  # fmt: skip
    (group,) = groups_of(proposals)
    assert group.base == "night 1"
    base = run_at(tmp_path / "base", 0.010, 300 * MIB)
    candidate = run_at(tmp_path / "candidate", 0.012, 400 * MIB)
    (decided,) = decide([MeasuredGroup(group=group, sides=Sides(), base=base, candidate=candidate)])
    assert {one.kind: one.base for one in decided.confirmed} == {Kind.HOST_MEMORY: "night 1", Kind.LATENCY: "night 3"}


def test_a_folder_of_another_ab_is_not_taken_for_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = FakeLab(lambda _, __, noise: latency(0.02 * noise)).install(monkeypatch)
    request = RunRequest(
        patterns=("tiny",), axes=Axes(modes=(CASE.mode,), devices=("cpu",), backends=(EAGER,)), settings=Settings()
    )
    measure_pair("lib==1", "lib==2", [CASE], request, tmp_path)
    count = len(lab.measured)
    measure_pair("lib==1", "lib==2", [CASE], request, tmp_path)  # the same is not measured again
    assert len(lab.measured) == count
    with pytest.raises(AbError, match="holds an A/B of something else, begun by an earlier call: remove this folder"):
        measure_pair("lib==1", "lib==3", [CASE], request, tmp_path)
