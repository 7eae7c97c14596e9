"""A culprit is blamed only where it differs from the version before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import CASE, record
from kept_nights import eager_s
from kept_runs import keep
from torchzoo.analysis.compare import compare_in_turns
from torchzoo.history.blame import _is_refuted
from torchzoo.history.culprits import Culprit
from torchzoo.history.nights import Confirmed
from torchzoo.history.proposals import Kind
from torchzoo.stats import Estimate
from torchzoo.store import Run, read_run

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
