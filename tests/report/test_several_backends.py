"""Several backends of the same models: one figure of eager for each, and no mean over backends."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from examples import INDUCTOR, compared, rendered, results_of
from examples import record as example
from kept_runs import keep
from torchzoo.analysis.beside_eager import beside_eager
from torchzoo.analysis.cases import CaseResult, read_report_data
from torchzoo.analysis.totals import sections
from torchzoo.case import Backend
from torchzoo.commands.report import FORMATS
from torchzoo.record import Block, Failed, FailureKind, Measured, Record
from torchzoo.report import some_cases, terminal_report
from torchzoo.report.document import Table
from torchzoo.settings import Stage

OTHER = Backend("tvm")


def times(eager_s: float, candidate_s: float) -> Measured:
    of = {"eager": eager_s, "candidate": candidate_s}
    blocks = tuple(
        Block(block.variant, (of[block.variant] * (1 + 0.001 * (number % 8)),))
        for number, block in enumerate(compared().blocks)
    )
    return msgspec.structs.replace(compared(), blocks=blocks)


def two_backends(second_eager_s: float) -> list[Record]:
    return [example(times(0.2, 0.1), model=name, backend=INDUCTOR) for name in "abcd"] + [
        example(times(second_eager_s if name == "a" else 0.2, 0.05), model=name, backend=OTHER) for name in "abcd"
    ]


def cells(results: Sequence[CaseResult]) -> tuple[list[str], list[list[str]]]:
    (table,) = some_cases.several_backends(results)
    assert isinstance(table, Table)
    return [column.heading for column in table.columns], [[cell.text for cell in row] for row in table.rows]


def test_each_model_has_one_figure_of_eager_and_a_speedup_of_each_backend() -> None:
    results = results_of(two_backends(0.2))
    headings, rows = cells(results)
    assert headings == ["case", "eager", "inductor", "tvm"]
    assert [row[0].split()[0] for row in rows] == list("abcd")
    assert all(row[1].startswith("20") and row[2].startswith("2.00") and row[3].startswith("4.0") for row in rows)
    assert some_cases.disagreements(results) == []
    text = rendered(terminal_report.terminal_table(results))
    headings = [line.split() for line in text.splitlines() if line.startswith(("case ", "model "))]
    assert headings == [["case", "eager", "inductor", "tvm"], ["model", "backend", "time", "speedup", "memory"]]


def test_figures_of_eager_that_disagree_are_told() -> None:
    results = results_of(two_backends(0.3))
    (note,) = some_cases.disagreements(results)
    assert "in 1 of 4 cases" in note
    assert "a eval cpu eager bs4" in note
    assert note in " ".join(rendered(terminal_report.terminal_table(results)).split())


def test_eager_that_was_measured_alone_counts() -> None:
    alone = msgspec.structs.replace(
        times(0.25, 0.1), blocks=(Block("eager", (0.25,)),) * 8, variants={"eager": compared().variants["eager"]}
    )
    (row,) = beside_eager(results_of([example(alone), example(times(0.2, 0.1), backend=INDUCTOR)]))
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
    every, first, second = sections(results_of(two_backends(0.2)))
    assert {total.passing for total in every.totals if total.axis != "backend"} == {None}
    assert all(total.over_all is total.time_ratio is None for total in every.totals if total.axis != "backend")
    by_backend = [total for total in every.totals if total.axis == "backend"]
    assert [total.passing.value for total in by_backend if total.passing] == pytest.approx([2.0, 4.0])
    assert [one.totals[0].passing.value for one in (first, second) if one.totals[0].passing] == pytest.approx([2, 4])
    assert every.totals[0].compared == 8


@pytest.mark.parametrize("form", ["md", "html", "json", "csv", "table", "svg"])
def test_every_format_shows_them(tmp_path: Path, form: str) -> None:
    data = read_report_data([keep(tmp_path / "run", two_backends(0.3))])
    file = io.StringIO()
    FORMATS[form].write(data, file)
    text = file.getvalue()
    if form == "json":
        totals = json.loads(text)["summary"]["sections"][0]["totals"]
        assert totals[0]["passing"] is None
    if form in ("md", "html", "table"):
        assert "disagree" in text
    if form == "md":
        assert "| case | eager | inductor | tvm |" in text
        assert "| time | speedup |" in text
