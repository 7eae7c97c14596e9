"""The issues of a night, as files: one for each culprit, and one for what has none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from torchzoo.history.blame import Found
from torchzoo.history.candidates import package_of, short_name
from torchzoo.history.confirm import Decided
from torchzoo.history.nights import Confirmed
from torchzoo.report import regression_issue
from torchzoo.report.regression_issue import Effect, Issue
from torchzoo.report.units import first_few
from torchzoo.store import write_whole


def write_issues(
    folder: Path,
    found: Sequence[Found],
    left: Sequence[Confirmed],
    decided: Sequence[Decided],
    remarks: Sequence[str],
) -> list[tuple[Path, str]]:
    """Write an issue for each culprit, and one for what has none of each A/B. Returns the files and the titles."""
    issues = [_issue_of_culprit(folder.name, one) for one in found if one.blamed.explains]
    for one in decided:
        rest = [each for each in one.confirmed if each in left]
        if rest:
            issues.append(_issue_without_culprit(folder.name, one, rest, remarks))
    written = []
    for number, issue in enumerate(issues, start=1):
        path = folder / f"issue-{number}.md"
        write_whole(path, regression_issue.markdown(issue).encode())
        written.append((path, regression_issue.title(issue)))
    return written


def _issue_of_culprit(night: str, found: Found) -> Issue:
    blamed = found.blamed
    return Issue(
        night=night,
        effects=_effects(found.effects),
        base=blamed.before,
        candidate=blamed.specs[-1],
        version=f"{package_of(blamed.specs[-1])} {short_name(blamed.specs[-1])}",
        sure=f"{math.floor(100 * blamed.probability)}%" if blamed.probability < 1 else "",
        about=blamed.about,
        others=blamed.specs[:-1],
        inside=() if blamed.inside is None else (blamed.inside.words, blamed.inside.without_it),
        comparison=found.comparison,
    )


def _issue_without_culprit(night: str, decided: Decided, rest: Sequence[Confirmed], remarks: Sequence[str]) -> Issue:
    sides = decided.sides
    also = (f"these differ, too, and no SPEC brings them back: {first_few(sides.rest, 30)}",) if sides.rest else ()
    return Issue(
        night=night,
        effects=_effects(rest),
        base=sides.base,
        candidate=sides.candidate,
        remarks=(*remarks, *also),
        comparison=decided.comparison,
    )


def _effects(confirmed: Sequence[Confirmed]) -> tuple[Effect, ...]:
    """The changes as an issue shows them, the largest first."""
    ordered = sorted(confirmed, key=lambda one: -one.ratio.value if one.ratio is not None else -math.inf)
    return tuple(
        Effect(
            case=one.case,
            what=one.kind.words,
            change=one.words,
            short=f"{one.ratio.value:.2f}x" if one.ratio is not None else "",
        )
        for one in ordered
    )
