"""The causes of graph breaks, ranked over the cases of a report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from torchzoo.analysis.cases import CaseResult
from torchzoo.record import CANDIDATE_VARIANT, LEFT_WHOLE, GraphBreak, Measured
from torchzoo.report import units
from torchzoo.report.document import Block, Column, Fold, Heading, Items, table

# --- causes ---

#: Patterns of text that differs between models with the same cause, and their replacements.
_DIFFERENCES = (
    (r"LazyVariableTracker\(realized: (\w+\(.*\))\)", r"\1"),  # the same value, looked at earlier
    (r"(?: at )?0x[0-9A-Fa-f]+", ""),  # addresses
    (r"(?<=\))[0-9A-F]{6,}\b", ""),  # the rest of an address in NumPy's spelling
    (r"[^\s`'\"]*/site-packages/", ""),
    (r"(?<![\w.])/[^\s`'\"]*/(?=[\w.-]+\.py\b)", ""),
    (r"(?<=<eval_with_key>)\.\d+", ""),
    (r"(?<=\[)\d+(?=\])|(?<=[A-Za-z_]\.)\d+\b|\b\d{2,}\b", "N"),  # of a list or a module; sizes, numbers of lines
)


class BreakCause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause of graph breaks, over all cases that have it."""

    reason: str  # without what differs between models
    models: tuple[str, ...]  # by name
    breaks: int
    whole: int  # so many of `breaks` left a whole function to Python
    place: str  # where it happened most often; empty: not known


def cause(reason: str) -> str:
    """Return a reason without addresses, paths, indices and other text that differs between models."""
    text = reason.removeprefix(LEFT_WHOLE)
    for pattern, instead in _DIFFERENCES:
        text = re.sub(pattern, instead, text)
    return " ".join(text.split()).rstrip(": ")


def break_causes(results: Iterable[CaseResult]) -> list[BreakCause]:
    """Rank the causes by the number of models that have them, then by the number of breaks.

    Of a case that several processes measured, one counts. A case whose modes, backends or precisions differ from
    another's is a case of its own, so a break that both have counts twice.
    """
    models: dict[str, set[str]] = {}
    places: dict[str, Counter[str]] = {}
    whole: Counter[str] = Counter()
    for result in results:
        for one in _breaks(result):
            reason = cause(one.reason)
            models.setdefault(reason, set()).add(result.case.model)
            places.setdefault(reason, Counter())[one.place] += 1
            whole[reason] += one.reason.startswith(LEFT_WHOLE)
    found = [
        BreakCause(
            reason=reason,
            models=tuple(sorted(models[reason])),
            breaks=of_reason.total(),
            whole=whole[reason],
            place=min(of_reason, key=lambda place: (not place, -of_reason[place], place)),
        )
        for reason, of_reason in places.items()
    ]
    return sorted(found, key=lambda one: (-len(one.models), -one.breaks, one.reason))


def _breaks(result: CaseResult) -> tuple[GraphBreak, ...]:
    outcome = result.shown.outcome
    candidate = outcome.variants.get(CANDIDATE_VARIANT) if isinstance(outcome, Measured) else None
    return candidate.compilation.breaks if candidate is not None and candidate.compilation is not None else ()


# --- document ---

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


def document(results: Sequence[CaseResult]) -> list[Block]:
    """Return a table with a row for each cause; in the terminal, the first causes in words."""
    causes = break_causes(results)
    if not causes:
        return []
    which = [units.first_few(one.models, MOST_MODELS) for one in causes]
    rows = [
        (one.reason, str(len(one.models)), str(one.breaks), str(one.whole or ""), one.place, models)
        for one, models in zip(causes, which, strict=True)
    ]
    details = table(COLUMNS, rows, notes=[EXPLAINED]).used()
    heading = f"Graph breaks ({units.counted(len(causes), 'reason')})"
    return [Heading(heading), Fold((details,), brief=(Items(tuple(_lines(causes))),))]


def _lines(causes: Sequence[BreakCause]) -> list[str]:
    """`14 models, 354 breaks: Dynamic shape operator ... (most often at boxes.py:48)` for each of the first causes."""
    found = [
        f"{units.counted(len(one.models), 'model')}, {units.counted(one.breaks, 'break')}: {one.reason}"
        + (f" (most often at {one.place})" if one.place else "")
        for one in causes[:MOST_BREAKS]
    ]
    more = len(causes) - MOST_BREAKS
    return [*found, *([f"and {units.counted(more, 'more reason')}: --format md has them all"] if more > 0 else [])]
