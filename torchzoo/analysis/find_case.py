"""Find the case of a run that a user's words mean."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torchzoo.analysis.cases import CaseResult
from torchzoo.errors import UsageError, nearest

SHOWN = 5  # matching cases that a message lists


def find_case(results: Sequence[CaseResult], words: Sequence[str]) -> CaseResult:
    """The case whose label (`resnet18 train cuda inductor bs16`) is these words, or the only case that has them all.

    Each word, which may be a glob, matches one word of the label: the model, the mode, the device, the backend ...

    Raises:
        UsageError: no case matches, or several do; the message names the closest.
    """
    asked = [part for word in words for part in word.split()]
    exact = [result for result in results if result.case.label().split() == asked]
    found = exact or [result for result in results if _has_all(result, asked)]
    text = " ".join(asked)
    if not found:
        known = dict.fromkeys(word for result in results for word in result.case.label().split())
        hints = [nearest(word, known) for word in asked if not any(fnmatchcase(other, word) for other in known)]
        hint = " ".join(filter(None, hints)) or "`torchzoo report RUN` lists its cases"
        raise UsageError(f"no case of the run matches '{text}': {hint}")
    if len(found) > 1:
        labels = [result.case.label() for result in found]
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        raise UsageError(f"{len(labels)} cases match '{text}', add words of one: {'; '.join(labels[:SHOWN])}{more}")
    return found[0]


def _has_all(result: CaseResult, asked: Sequence[str]) -> bool:
    label = result.case.label().split()
    return all(any(fnmatchcase(word, pattern) for word in label) for pattern in asked)
