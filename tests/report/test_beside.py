"""Published figures beside measured ones: what stands where, what is missing, and reasons only where they belong."""

from __future__ import annotations

from typing import Any

import pytest

from torchzoo.report import beside
from torchzoo.report.beside import BesideError, Published, PublishedTable, Reason, Row, exactly
from torchzoo.report.document import Table
from torchzoo.stats import Estimate

PUBLISHED = Published(
    source="A paper",
    hardware="a GPU",
    software="torch 2.0",
    tables={
        "Table 1": PublishedTable(unit="%", figures={"train": 50.0, "eval": 20.0}),
        "Table 2": PublishedTable(unit="ms", about="Means.", figures={"step": (100.0, 2.5)}),
    },
)
HALF = Estimate(value=52.0, low=49.0, high=55.0, confidence=0.95, count=9)


def lines(rows: list[Row], *reasons: Reason) -> dict[str, list[str]]:
    """The cells of each line by its first cell."""
    tables = [block for block in beside.tables(PUBLISHED, rows, reasons) if isinstance(block, Table)]
    return {first.text: [cell.text for cell in cells] for table in tables for first, *cells in table.rows}


def row(**changes: Any) -> Row:
    return Row(**({"table": "Table 1", "figure": "train", "measured": HALF} | changes))


def test_a_share_differs_in_points_and_says_whether_it_is_in_our_interval() -> None:
    shown = lines([row(note="8 models"), row(figure="eval")])
    assert shown["train"] == [
        "50 %",
        "52.0 % [49.0, 55.0]; 8 models",
        "+2.0 points, in the interval",
        "no sure difference",
    ]
    assert shown["eval"][2:] == ["+32.0 points", "not known yet"]


def test_an_interval_that_holds_at_nothing_is_not_shown() -> None:
    shown = lines([row(measured=Estimate(value=52.0, low=49.0, high=55.0, confidence=0.0, count=2))])
    assert shown["train"][1:3] == ["52.0 % (2 samples: too few for an interval)", "+2.0 points"]


def test_other_units_differ_by_a_ratio_and_keep_the_deviation() -> None:
    shown = lines([row(table="Table 2", figure="step", measured=exactly(50.0), deviation=1.5)])
    assert shown["step"] == ["100 ms, sigma 2.5", "50.0 ms, sigma 1.50", "0.50 of the published", "not known yet"]


def test_what_was_not_measured_says_so() -> None:
    shown = lines([row(measured=None, missing="no such peak")])
    assert shown["train"] == ["50 %", "not measured: no such peak", "", ""]
    assert shown["eval"] == ["20 %", "not measured: no measured case of this run gives it", "", ""]
    assert shown["step"][1] == "not measured: no measured case of this run gives it"


def test_several_rows_may_stand_beside_one_published_figure() -> None:
    shown = lines([row(figure="ours, small", beside="train"), row(figure="ours, large", beside="train")])
    assert [shown[name][0] for name in ("ours, small", "ours, large")] == ["50 %", "50 %"]
    assert "train" not in shown


def test_a_reason_stands_at_its_figure_with_its_evidence() -> None:
    reason = Reason(table="Table 1", figure="train", reason="the batch is larger", evidence="runs/batches")
    shown = lines([row(), row(figure="eval")], reason)
    assert shown["train"][3] == "the batch is larger (runs/batches)"
    assert shown["eval"][3] == "not known yet"


def test_a_reason_may_stand_at_several_figures() -> None:
    reason = Reason(table="Table 1", figure="train", also=("eval",), reason="the batch is larger", evidence="runs/b")
    shown = lines([row(), row(figure="eval")], reason)
    assert shown["train"][3] == shown["eval"][3] == "the batch is larger (runs/b)"


def test_data_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(BesideError, match="which is no table"):
        lines([row(table="Table 3")])
    with pytest.raises(BesideError, match="'x' stands beside 'nothing'"):
        lines([row(figure="x", beside="nothing")])
    with pytest.raises(BesideError, match="there is no such figure"):
        lines([row()], Reason(table="Table 1", figure="trian", reason="a", evidence="b"))
    with pytest.raises(BesideError, match="'evla' in 'Table 1', and there is no such figure"):
        lines([row()], Reason(table="Table 1", figure="train", also=("evla",), reason="a", evidence="b"))
    again = Reason(table="Table 1", figure="train", reason="a", evidence="b")
    with pytest.raises(BesideError, match="two reasons are about 'train' in 'Table 1'"):
        lines([row()], again, again)


def test_small_and_negative_figures_keep_three_digits() -> None:
    shown = lines([row(measured=exactly(-71.234)), row(figure="eval", measured=exactly(0.01234))])
    assert shown["train"][1] == "-71.2 %"
    assert shown["eval"][1] == "0.0123 %"
