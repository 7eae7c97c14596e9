"""Published figures beside measured ones: what stands where, what is missing, and reasons only where they belong."""

from __future__ import annotations

from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from torchzoo.report import beside, markdown
from torchzoo.report.beside import BesideError, Published, PublishedTable, Reason, Row, exactly
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


def shown(rows: list[Row], *reasons: Reason) -> str:
    return markdown.render(list(beside.tables(PUBLISHED, rows, reasons)))


def row(**changes: Any) -> Row:
    return Row(**({"table": "Table 1", "figure": "train", "measured": HALF} | changes))


def test_each_kind_of_row(snapshot: SnapshotAssertion) -> None:
    assert shown([row(note="8 models"), row(figure="eval")]) == snapshot(name="in and out of our interval")
    unsure = Estimate(value=52.0, low=49.0, high=55.0, confidence=0.0, count=2)
    step = row(table="Table 2", figure="step", measured=exactly(50.0), deviation=1.5)
    assert shown([row(measured=unsure), row(figure="eval", measured=exactly(0.01234)), step]) == snapshot(name="units")
    several = [row(figure=name, beside="train") for name in ("ours, small", "ours, large")]
    assert shown([*several, row(figure="eval", measured=None, missing="no such peak")]) == snapshot(name="missing")


@pytest.mark.parametrize(("also", "count"), [((), 1), (("eval",), 2)])
def test_a_reason_stands_at_its_figures_with_its_evidence(also: tuple[str, ...], count: int) -> None:
    reason = Reason(table="Table 1", figure="train", also=also, reason="the batch is larger", evidence="runs/batches")
    assert shown([row(), row(figure="eval")], reason).count("the batch is larger (runs/batches)") == count


def test_data_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(BesideError, match="which is no table"):
        shown([row(table="Table 3")])
    with pytest.raises(BesideError, match="'x' stands beside 'nothing'"):
        shown([row(figure="x", beside="nothing")])
    with pytest.raises(BesideError, match="there is no such figure"):
        shown([row()], Reason(table="Table 1", figure="trian", reason="a", evidence="b"))
    with pytest.raises(BesideError, match="'evla' in 'Table 1', and there is no such figure"):
        shown([row()], Reason(table="Table 1", figure="train", also=("evla",), reason="a", evidence="b"))
    again = Reason(table="Table 1", figure="train", reason="a", evidence="b")
    with pytest.raises(BesideError, match="two reasons are about 'train' in 'Table 1'"):
        shown([row()], again, again)
