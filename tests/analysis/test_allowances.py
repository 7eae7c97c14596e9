"""What others do on a device explains any difference: with it on one side only, a comparison has no verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from examples import CASE, INDUCTOR, measured, record, results_of, run_of, variant_result
from kept_nights import eager_s, night
from repeated_runs import LOOP_S, STEADY, process, times
from torchzoo.analysis.compare import compare_runs
from torchzoo.analysis.findings import Finding, Metric, Verdict
from torchzoo.analysis.run_figures import judge_figures, run_figures
from torchzoo.history import queries
from torchzoo.history.index import open_index
from torchzoo.record import Block, DeviceState, Measured, Record

IDLE, OPEN = DeviceState(foreign_processes=0), DeviceState(foreign_processes=1)
SHARED = {"device_state_before": IDLE, "device_state_after": OPEN}


def processes(factor: float, shared: int) -> list[Record]:
    """Five processes; the first `shared` of them with others on the device."""
    return [
        record(process(step_s, **(SHARED if number < shared else {})), repeat=number)
        for number, step_s in enumerate(times(factor))
    ]


def of_runs(base: list[Record], candidate: list[Record], metric: Metric = Metric.LATENCY) -> Finding:
    (found,) = compare_runs(run_of(base), run_of(candidate), metrics=[metric]).findings
    return found


def of_figures(base: list[Record], candidate: list[Record], metric: Metric = Metric.LATENCY) -> Finding:
    sides = [[one for one in run_figures(results_of(side)[0]) if one.metric is metric] for side in (base, candidate)]
    (found,) = judge_figures([(CASE, metric, *sides)])
    return found


@pytest.mark.parametrize("judge", [of_runs, of_figures])
@pytest.mark.parametrize(
    ("base", "candidate", "found"),
    [
        (0, 0, Verdict.SLOWER),
        (len(STEADY), 0, Verdict.INCONCLUSIVE),
        (0, len(STEADY), Verdict.INCONCLUSIVE),
        (len(STEADY), len(STEADY), Verdict.SLOWER),  # others are always there: both sides have them
        (1, 0, Verdict.SLOWER),  # the noise between the processes has it
    ],
)
def test_a_device_shared_on_one_side_only_gives_no_verdict(
    judge: Callable[[list[Record], list[Record]], Finding], base: int, candidate: int, found: Verdict
) -> None:
    finding = judge(processes(1.0, base), processes(1.2, candidate))
    assert finding.verdict is found
    assert ("had it open" in finding.remark) is (found is Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("judge", [of_runs, of_figures])
def test_the_time_over_eagers_has_none_either(
    judge: Callable[[list[Record], list[Record], Metric], Finding],
) -> None:
    """Others on the device slow down a candidate and eager by different shares."""

    def side(factor: float, **changes: object) -> list[Record]:
        return [
            record(beside_eager(step_s * factor, **changes), backend=INDUCTOR, repeat=n)
            for n, step_s in enumerate(STEADY)
        ]

    assert judge(side(1.0), side(1.2), Metric.OVER_EAGER).verdict is Verdict.SLOWER
    finding = judge(side(1.0), side(1.2, **SHARED), Metric.OVER_EAGER)
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert "while the candidate was measured" in finding.remark


def beside_eager(step_s: float, **changes: object) -> Measured:
    """A candidate of steps of this many seconds, in turns with eager, whose steps take 0.2 s."""
    eager, candidate = Block("eager", (0.2,)), Block("candidate", (step_s,))
    variants = {"eager": variant_result(), "candidate": variant_result()}
    blocks = (eager, candidate, candidate, eager) * 8
    return measured(blocks=blocks, variants=variants, host_loop_s=LOOP_S, **changes)


def test_the_index_keeps_whether_a_device_was_shared(tmp_path: Path) -> None:
    for number, changes in enumerate(({}, SHARED)):
        night(tmp_path / "runs", number, [record(eager_s(0.01, **changes))])
    with open_index(tmp_path / "i") as index:
        index.update([tmp_path / "runs"])
        (one,) = queries.series(index, {}, [Metric.LATENCY])
    assert [point.figure and point.figure.always_shared for point in one.points] == [False, True]
