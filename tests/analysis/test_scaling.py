from __future__ import annotations

from examples import INDUCTOR, in_turns, measured, record, results_of
from torchzoo.case import EAGER, Backend, Parallel
from torchzoo.record import Block, Record
from torchzoo.report import scaling
from torchzoo.report.document import Table
from torchzoo.report.scaling import Scaling, scalings


def pair(eager_s: float, candidate_s: float, *, world: int = 1, parallel: Parallel = Parallel.NONE) -> Record:
    return record(in_turns(eager_s, candidate_s), backend=INDUCTOR, world=world, parallel=parallel)


def by_backend(found: list[Scaling]) -> dict[Backend, Scaling]:
    assert len({one.case.backend for one in found}) == len(found)
    return {one.case.backend: one for one in found}


def test_eager_and_the_candidate_of_a_case_scale_each_by_themselves() -> None:
    records = [pair(0.2, 0.1), pair(0.25, 0.2, world=2, parallel=Parallel.DDP)]
    found = by_backend(scalings(results_of(records)))
    assert found[EAGER].weak is not None
    assert round(found[EAGER].weak.value, 6) == 0.8  # 0.2 s on one device, 0.25 s on two
    weak = found[INDUCTOR].weak
    assert weak is not None
    assert round(weak.value, 6) == 0.5  # 0.1 s on one device, 0.2 s on two
    _, shown = scaling.document(results_of(records))
    assert isinstance(shown, Table)
    steps = [tuple(cell.text for cell in row[:2]) for row in shown.rows]
    assert [("eager" in label, float(step.split()[0])) for label, step in steps] == [(True, 250), (False, 200)]


def test_eager_measured_by_itself_is_shown_rather_than_eager_beside_a_candidate() -> None:
    by_itself = record(
        measured(blocks=tuple(Block("eager", (0.4, 0.4)) for _ in range(10))), world=2, parallel=Parallel.DDP
    )
    beside = pair(0.25, 0.2, world=2, parallel=Parallel.DDP)
    for records in ([by_itself, beside], [beside, by_itself]):
        found = by_backend(scalings(results_of(records)))
        assert found[EAGER].figures.latency_s.value == 0.4
        assert found[INDUCTOR].figures.latency_s.value == 0.2


def test_tensor_parallelism_scales_strongly_only() -> None:
    found = by_backend(scalings(results_of([pair(0.4, 0.2), pair(0.2, 0.1, world=2, parallel=Parallel.TP)])))
    for one in found.values():
        assert one.weak is None
        assert one.strong is not None
        assert round(one.strong.value, 6) == 2
