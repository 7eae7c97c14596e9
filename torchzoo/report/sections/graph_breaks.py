"""The reasons of graph breaks, ranked over the cases of a report."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.graph_breaks import BreakCause, break_causes
from torchzoo.report import units
from torchzoo.report.document import Block, Column, Fold, Heading, Items, table

COLUMNS = (
    Column("reason"),
    Column("models", is_number=True),
    Column("breaks", is_number=True),
    Column("left whole", is_number=True),
    Column("most often at"),
    Column("which"),
)
EXPLAINED = (
    "Models: how many have it. Breaks: of graphs, over all cases. Left whole: those that left a whole function to "
    "Python. Addresses, paths and indices are left out of a reason, so that the same cause is one line."
)
MOST_MODELS = 4  # in a row
MOST_BREAKS = 5  # in the terminal


def blocks(results: Sequence[CaseResult]) -> list[Block]:
    """A row for each cause; in the terminal, the first of them in words."""
    causes = break_causes(results)
    if not causes:
        return []
    details = table(COLUMNS, map(_row, causes), notes=[EXPLAINED]).used()
    heading = f"Graph breaks ({_number(len(causes), 'reason')})"
    return [Heading(heading), Fold((details,), brief=(Items(tuple(_lines(causes))),))]


def _lines(causes: Sequence[BreakCause]) -> list[str]:
    """`14 models, 354 breaks: Dynamic shape operator ... (most often at boxes.py:48)` for each of the first causes."""
    found = [
        f"{_number(len(one.models), 'model')}, {_number(one.breaks, 'break')}: {one.reason}"
        + (f" (most often at {one.place})" if one.place else "")
        for one in causes[:MOST_BREAKS]
    ]
    more = len(causes) - MOST_BREAKS
    return [*found, *([f"and {_number(more, 'more reason')}: --format md has them all"] if more > 0 else [])]


def _row(one: BreakCause) -> tuple[str, str, str, str, str, str]:
    which = units.first_few(one.models, MOST_MODELS)
    return (one.reason, str(len(one.models)), str(one.breaks), str(one.whole or ""), one.place, which)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
