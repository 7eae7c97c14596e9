"""Under what conditions the cases of a run were measured: what a reader of means over them must know."""

from __future__ import annotations

from torchzoo.analysis.cases import case_results
from torchzoo.report import markdown, units
from torchzoo.report.remarks import Mark, marks_of
from torchzoo.store import Run

#: The marks of what may have changed the times of a case, beside what its step does by nature.
CONDITIONS = (
    Mark.REFUSED,
    Mark.UNSTEADY,
    Mark.DIFFERENT,
    Mark.BUSY,
    Mark.SLOW_HOST,
    Mark.SLOW_THROUGHPUT,
    Mark.THROTTLED,
    Mark.NOISY,
    Mark.TIME_LIMIT,
    Mark.FEW_SAMPLES,
)


def conditions(run: Run) -> list[str]:
    """How many measured cases each condition holds for, and which, as lines of Markdown.

    Empty where no time was measured.
    """
    timed = [result for result in case_results(run) if result.is_timed and result.measured]
    if not timed:
        return []
    marks = {result.case: marks_of(result) for result in timed}
    rows = []
    for mark in CONDITIONS:
        labels = [case.label() for case, found in marks.items() if mark in found]
        if labels:
            rows.append((mark.text, f"{len(labels)} of {len(timed)}", units.first_few(labels, most=4)))
    if not rows:
        return ["Nothing of note in any case that was timed."]
    return [
        *markdown.table(("condition", "cases", "which"), rows),
        "",
        "Their figures count all the same; only refused and unsteady cases are in no mean.",
    ]
