"""An A/B decides a night's proposals, and whether a culprit has the change."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import CASE, record
from fake_lab import FakeLab, latency
from kept_nights import MIB, eager_s
from kept_runs import keep
from torchzoo.analysis.compare import compare_in_turns
from torchzoo.case import EAGER, Axes
from torchzoo.history.ab import AbError
from torchzoo.history.blame import is_refuted
from torchzoo.history.changes import Confirmed, Kind, Proposal
from torchzoo.history.confirm import Decided, by_base, decide, measure_pair
from torchzoo.history.culprits import Culprit
from torchzoo.history.software import Sides
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.stats import Estimate
from torchzoo.store import Run, read_run

CHANGE = Estimate(value=1.2, low=1.19, high=1.21, confidence=0.95, count=5)


def run_at(path: Path, step_s: float, memory: int = 300 * MIB) -> Run:
    """Five processes that differ by 0.2%."""
    steps = [step_s * (1 + 0.002 * (n % 3 - 1)) for n in range(5)]
    return read_run(keep(path, [record(eager_s(s, memory=memory), repeat=n) for n, s in enumerate(steps)]))


def test_each_change_keeps_the_night_of_its_own_proposal(tmp_path: Path) -> None:
    """Both are measured beside the earlier night. The next night must not report the later change again."""
    proposals = [Proposal(case=CASE, kind=kind, base=base, why="") for kind, base in (
        (Kind.HOST_MEMORY, "night 1"), (Kind.LATENCY, "night 3"),
    )]  # fmt: skip
    assert by_base(proposals) == {"night 1": tuple(proposals)}
    base = run_at(tmp_path / "base", 0.010, 300 * MIB)
    candidate = run_at(tmp_path / "candidate", 0.012, 400 * MIB)
    sides = Sides(base="lib==1", candidate="lib==2", good="lib==1", bad="lib==2")
    (decided,) = decide(
        [
            Decided(
                proposals=tuple(proposals),
                sides=sides,
                base=base,
                candidate=candidate,
                comparison=compare_in_turns(base, candidate),
            )
        ]
    )
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


@pytest.mark.parametrize(("step_s", "refuted"), [(0.0100, True), (0.0105, True), (0.0118, False), (0.0140, False)])
def test_a_culprit_without_half_of_its_changeis_refuted(tmp_path: Path, step_s: float, *, refuted: bool) -> None:
    comparison = compare_in_turns(run_at(tmp_path / "before", 0.01), run_at(tmp_path / "culprit", step_s))
    culprit = Culprit(before="lib==1", specs=("lib==2",), probability=0.97, ratio=CHANGE)
    target = Confirmed(case=CASE, kind=Kind.LATENCY, base="night", ratio=CHANGE, words="")
    assert is_refuted(comparison, culprit, target) is refuted
