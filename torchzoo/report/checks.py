"""Results of `--check`: how many cases compute what eager computes, by backend, precision and mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from torchzoo.analysis.cases import CaseResult
from torchzoo.record import Check, CheckStatus
from torchzoo.report.document import Block, Column, Fold, Heading, Text, table

#: From the worst to the best, with their words. Of several processes, a case has the worst one.
WORDS = {
    CheckStatus.INCORRECT: "incorrect",
    CheckStatus.NONDETERMINISTIC: "nondeterministic",
    CheckStatus.REFERENCE_FAILED: "no reference",
    CheckStatus.NOT_REACHED: "not reached",
    CheckStatus.PARTLY_CORRECT: "partly correct",
    CheckStatus.CORRECT: "correct",
}
NOT_CHECKED = "not checked"
HEADINGS = ("results checked", *reversed(WORDS.values()), NOT_CHECKED)
REASON_HEADINGS = ("case", "", "reason")
EXPLAINED = (
    "Results are compared with a reference, in fp64 where the row says nothing else. Nondeterministic: eager's own "
    "results differ from run to run. No reference: there is nothing to compare with, for the reason given. Partly "
    "correct: what can be judged is, and rounding leaves more than a tenth of a kind of result open. Not reached: it "
    "failed after its timing. Cases that failed before or were skipped are not counted."
)


def document(results: Sequence[CaseResult]) -> list[Block]:
    """Return the counts; as details, how to read them and why results are not called correct."""
    if not (counted := rows(results)):
        return []
    why = table(REASON_HEADINGS, reasons(results))
    details = Fold((Text(EXPLAINED), *([why] if why.rows else [])))
    columns = [Column(heading, is_number=heading != HEADINGS[0]) for heading in HEADINGS]
    return [Heading("Results checked"), table(columns, counted).used(), details]


def rows(results: Sequence[CaseResult]) -> list[tuple[str, ...]]:
    """The cells under `HEADINGS`, for each kind of case; none where nothing was checked."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        if result.checks:
            name = f"{result.case.comparison_group()}, {result.case.mode}"
            found = check_of(result)
            counts.setdefault(name, Counter())[NOT_CHECKED if found is None else WORDS[found.status]] += 1
    if not any(counted.keys() - {NOT_CHECKED} for counted in counts.values()):
        return []
    return [(name, *(str(counted[word] or "") for word in HEADINGS[1:])) for name, counted in counts.items()]


def reasons(results: Sequence[CaseResult]) -> Iterator[tuple[str, str, str]]:
    """The cells under `REASON_HEADINGS`, for each case whose results were checked and are not called correct."""
    for result in results:
        found = check_of(result)
        if found is not None and found.status is not CheckStatus.CORRECT:
            yield result.case.label(), WORDS[found.status], found.reason


def check_of(result: CaseResult) -> Check | None:
    """The check of a case: of several processes the worst one. None if one was not checked and no other is worse."""
    present = [one for one in result.checks if one is not None]
    worst = min(present, key=lambda one: list(WORDS).index(one.status), default=None)
    is_whole = len(present) == len(result.checks)
    is_right = worst is not None and worst.status in (CheckStatus.CORRECT, CheckStatus.PARTLY_CORRECT)
    return None if is_right and not is_whole else worst
