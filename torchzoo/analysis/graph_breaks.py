"""Why Dynamo ended graphs, ranked over the models of a run: one line for each cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from torchzoo.analysis.cases import CaseResult
from torchzoo.record import CANDIDATE_VARIANT, LEFT_WHOLE, GraphBreak, Measured

#: What differs between models that have the same cause, and what stands there instead.
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
    """One cause of graph breaks, over all cases that have it."""

    reason: str  # without what differs between models
    models: tuple[str, ...]  # by name
    breaks: int
    whole: int  # so many of `breaks` left a whole function to Python
    place: str  # where it happened most often; empty: not known


def cause(reason: str) -> str:
    """A break's reason without what differs between models: addresses, paths, indices, how much was left to Python."""
    text = reason.removeprefix(LEFT_WHOLE)
    for pattern, instead in _DIFFERENCES:
        text = re.sub(pattern, instead, text)
    return " ".join(text.split()).rstrip(": ")


def break_causes(results: Iterable[CaseResult]) -> list[BreakCause]:
    """The causes over these cases: first what most models have, then what broke most graphs.

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
