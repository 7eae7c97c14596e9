"""A culprit is blamed only where it differs from the version before it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from examples import CASE, record
from kept_nights import eager_s
from kept_runs import keep
from torchzoo.analysis.compare import compare_in_turns
from torchzoo.case import EAGER, Axes
from torchzoo.history import blame
from torchzoo.history.bisect_log import Asked, BisectLog
from torchzoo.history.blame import Found, _is_refuted, joined, request_of
from torchzoo.history.confirm import Decided, Group
from torchzoo.history.culprits import Culprit
from torchzoo.history.nights import Blamed, Confirmed
from torchzoo.history.proposals import Kind
from torchzoo.history.software import Sides
from torchzoo.history.turns import ignore
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.stats import Estimate
from torchzoo.store import Run, StoreError, read_run

CHANGE = Estimate(value=1.2, low=1.19, high=1.21, confidence=0.95, count=5)


def run_at(path: Path, step_s: float) -> Run:
    """Five processes that differ by 0.2%."""
    return read_run(keep(path, [record(eager_s(step_s * (1 + 0.002 * (n % 3 - 1))), repeat=n) for n in range(5)]))


@pytest.mark.parametrize(("step_s", "refuted"), [(0.0100, True), (0.0105, True), (0.0118, False), (0.0140, False)])
def test_a_culprit_without_half_of_its_change_is_refuted(tmp_path: Path, step_s: float, *, refuted: bool) -> None:
    comparison = compare_in_turns(run_at(tmp_path / "before", 0.01), run_at(tmp_path / "culprit", step_s))
    culprit = Culprit(before="lib==1", specs=("lib==2",), probability=0.97, ratio=CHANGE)
    target = Confirmed(case=CASE, kind=Kind.LATENCY, base="night", ratio=CHANGE, words="")
    assert _is_refuted(comparison, culprit, target) is refuted


def test_two_bisections_that_end_at_one_culprit_make_one_issue(tmp_path: Path) -> None:
    comparison = compare_in_turns(run_at(tmp_path / "before", 0.01), run_at(tmp_path / "culprit", 0.012))

    def found(probability: float, *explained: tuple[Kind, str], spec: str = "lib==2") -> Found:
        effects = tuple(Confirmed(case=CASE, kind=kind, base="night", words=words) for kind, words in explained)
        explains = tuple(msgspec.structs.replace(one, words="of the night") for one in effects)
        blamed = Blamed(before="lib==1", specs=(spec,), probability=probability, about="", explains=explains)
        return Found(blamed=blamed, effects=effects, comparison=comparison)

    other = found(0.96, (Kind.FAILING, "x"), spec="lib==3")
    first = found(0.99, (Kind.LATENCY, "1.14x"), (Kind.LEAKING, "leaks"))
    second = found(0.97, (Kind.LATENCY, "1.11x"), (Kind.HOST_MEMORY, "1.20x"))
    both, unchanged = joined(joined([first], other), second)
    assert unchanged is other
    assert both.blamed.probability == 0.99
    assert {one.kind for one in both.blamed.explains} == {Kind.LATENCY, Kind.LEAKING, Kind.HOST_MEMORY}
    assert {one.kind: one.words for one in both.effects} == {
        Kind.LATENCY: "1.11x",
        Kind.LEAKING: "leaks",
        Kind.HOST_MEMORY: "1.20x",
    }


def test_a_folder_of_another_bisection_is_not_taken_for_this_one(tmp_path: Path) -> None:
    target = Confirmed(case=CASE, kind=Kind.LATENCY, base="night", ratio=CHANGE, words="")
    axes = Axes(modes=(CASE.mode,), devices=("cpu",), backends=(EAGER,))
    request = RunRequest(patterns=("tiny",), axes=axes, settings=Settings())
    asked = Asked(
        good="lib==1",
        bad="lib==3",
        versions=("lib==1", "lib==2", "lib==3"),
        request=request_of(CASE, request),
        kind=Kind.HOST_MEMORY,
    )
    with BisectLog(tmp_path) as log:
        log.begin(asked)
    comparison = compare_in_turns(run_at(tmp_path / "before", 0.01), run_at(tmp_path / "culprit", 0.012))
    decided = Decided(
        group=Group(base="night", proposals=()), sides=Sides(), comparison=comparison, confirmed=(target,), undecided=()
    )
    work = blame._Shared(decided=decided, request=request, on_record=ignore, on_step=ignore)
    with pytest.raises(StoreError, match="holds another bisection, begun by an earlier call: remove this folder"):
        blame._bisected(work, target, ("lib==1", "lib==3"), tmp_path)


def test_what_is_no_figure_is_not_refuted(tmp_path: Path) -> None:
    comparison = compare_in_turns(run_at(tmp_path / "before", 0.01), run_at(tmp_path / "culprit", 0.01))
    culprit = Culprit(before="lib==1", specs=("lib==2",), probability=0.97, ratio=None)
    assert not _is_refuted(comparison, culprit, Confirmed(case=CASE, kind=Kind.FAILING, base="night", words=""))
