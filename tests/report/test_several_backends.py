"""Several backends of the same models: one figure of eager for each, and no mean over backends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from examples import INDUCTOR, compared, measured, results_of
from examples import record as example
from kept_runs import against_eager
from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.totals import sections
from torchzoo.case import Backend
from torchzoo.record import Block, Failed, FailureKind, Record
from torchzoo.report import some_cases
from torchzoo.report.document import Table
from torchzoo.report.some_cases import beside_eager
from torchzoo.settings import Stage

OTHER = Backend("tvm")


def two_backends() -> list[Record]:
    return [
        example(against_eager(speedup), model=name, backend=backend)
        for backend, speedup in ((INDUCTOR, 2.0), (OTHER, 4.0))
        for name in "abcd"
    ]


def cells(results: Sequence[CaseResult]) -> tuple[list[str], list[list[str]]]:
    (table,) = some_cases.several_backends(results)
    assert isinstance(table, Table)
    return [column.heading for column in table.columns], [[cell.text for cell in row] for row in table.rows]


def test_eager_that_was_measured_alone_counts() -> None:
    alone = measured(blocks=(Block("eager", (0.25,)),) * 8)
    (row,) = beside_eager(results_of([example(alone), example(against_eager(2.0), backend=INDUCTOR)]))
    assert row.eager is not None
    assert row.eager.value == 0.25
    assert row.disagrees
    assert list(row.backends) == ["inductor"]


def test_one_backend_of_each_model_has_no_such_table() -> None:
    results = results_of([example(model="a"), example(model="b"), example(compared(), model="b", backend=INDUCTOR)])
    assert some_cases.several_backends(results) == []
    assert len(some_cases.disagreements(results)) == 1  # what eager took alone, and beside inductor


def test_a_backend_that_failed_says_so_in_its_cell() -> None:
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.COMPILE, message="no")
    _, rows = cells(results_of([example(compared(), backend=INDUCTOR), example(failed, backend=OTHER)]))
    assert rows[0][2].startswith("2.00")
    assert rows[0][3] == "failed"


def test_there_is_no_mean_over_several_backends() -> None:
    every, first, second = sections(results_of(two_backends()))
    assert {total.passing for total in every.totals if total.axis != "backend"} == {None}
    assert all(total.over_all is total.time_ratio is None for total in every.totals if total.axis != "backend")
    by_backend = [total for total in every.totals if total.axis == "backend"]
    assert [total.passing.value for total in by_backend if total.passing] == pytest.approx([2.0, 4.0], rel=0.01)
    assert [one.totals[0].passing.value for one in (first, second) if one.totals[0].passing] == pytest.approx(
        [2, 4], rel=0.01
    )
    assert every.totals[0].compared == 8
