"""The reasons of graph breaks, ranked over the cases of a report."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.graph_breaks import BreakCause, break_causes
from torchzoo.report import units

HEADINGS = ("reason", "models", "breaks", "left whole", "most often at", "which")
EXPLAINED = (
    "Models: how many have it. Breaks: of graphs, over all cases. Left whole: those that left a whole function to "
    "Python. Addresses, paths and indices are left out of a reason, so that the same cause is one line."
)
MOST_MODELS = 4  # that a line names


def rows(results: Sequence[CaseResult]) -> list[tuple[str, str, str, str, str, str]]:
    """The cells under `HEADINGS`, for each cause."""
    return [_row(one) for one in break_causes(results)]


def lines(results: Sequence[CaseResult], most: int) -> list[str]:
    """The first causes in words: `14 models, 354 breaks: Dynamic shape operator ... (most often at boxes.py:48)`."""
    causes = break_causes(results)
    found = [
        f"{_number(len(one.models), 'model')}, {_number(one.breaks, 'break')}: {one.reason}"
        + (f" (most often at {one.place})" if one.place else "")
        for one in causes[:most]
    ]
    more = len(causes) - most
    return [*found, *([f"and {_number(more, 'more reason')}: --format md has them all"] if more > 0 else [])]


def _row(one: BreakCause) -> tuple[str, str, str, str, str, str]:
    which = units.first_few(one.models, MOST_MODELS)
    return (one.reason, str(len(one.models)), str(one.breaks), str(one.whole or ""), one.place, which)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
