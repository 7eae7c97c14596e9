"""One case in full for the terminal: axes, what became of it, figures, samples, remarks, machine, and its command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from torchzoo.analysis.cases import CaseResult, Status
from torchzoo.analysis.step_times import steps_s
from torchzoo.report import bars, markdown, tables, terminal, units
from torchzoo.report.case_lines import CASE
from torchzoo.report.remarks import what_failed
from torchzoo.report.text import csv_text

STATUS_WORDS = {
    Status.PASSED: "measured",
    Status.CHECKED: "checked, and not timed",
    Status.INCORRECT: "measured, and INCORRECT",
    Status.REFUSED: "measured, and REFUSED: its label does not hold, and it is in no mean",
    Status.UNSTEADY: "measured, and UNSTEADY: it is in no mean",
    Status.FAILED: "FAILED",
    Status.SKIPPED: "skipped",
}
SAMPLE_HEADINGS = ("repeat", "block", "variant", "step_s")


def show(result: CaseResult, file: IO[str] | None = None) -> None:
    """Print all that is known of the case, to standard output or to `file`."""
    terminal.show(in_full(result), file=file)
    terminal.show_line(f"again: {result.command}", file)


def in_full(result: CaseResult) -> Any:
    """All that is known of the case, but the command that measures it again."""
    from rich.console import Group

    axes = [(name, text(result.case)) for name, text in CASE.items() if text(result.case)]
    words = "checked, and INCORRECT" if result.checked and result.wrong_checks else STATUS_WORDS[result.status]
    status = words + (f": {result.reason}" if result.reason else "")
    parts: list[Any] = [
        terminal.text(result.case.label(), style="bold"),
        terminal.hanging(status),
        terminal.hanging(", ".join(f"{name} {text}" for name, text in axes)),
        "",
    ]
    if result.measured_figures is not None:
        parts += [
            tables.figures_table(result.measured_figures, result.measured, most_reasons=None),
            "",
            *_samples(result),
            "",
        ]
    for checked in result.checked:
        parts += [*map(terminal.hanging, tables.checked_lines(checked)), ""]
    parts += _not_measured(result)
    parts += map(terminal.hanging, _provenance(result))
    return Group(*parts)


def _not_measured(result: CaseResult) -> Iterator[Any]:
    """What became of repeats without figures, and the end of each traceback."""
    if result.measured:
        yield from map(terminal.hanging, what_failed(result))
    tracebacks = dict.fromkeys(failed.traceback.rstrip() for failed in result.all_failures if failed.traceback)
    for traceback in tracebacks:
        yield from terminal.texts([*traceback.split("\n"), ""])
    yield from (terminal.hanging(f"log: {failed.log}") for failed in result.all_failures if failed.log)


def _samples(result: CaseResult) -> Iterator[Any]:
    known = bars.known_bars()
    for variant, steps in steps_s(result).items():
        low, high = units.seconds(min(steps)), units.seconds(max(steps))
        yield terminal.hanging(f"{variant}: {len(steps)} steps from {low} to {high} (--samples prints them)")
        yield terminal.text(f"  in time    |{bars.in_time(steps, bars=known)}|", no_wrap=True)
        yield terminal.text(f"  histogram  |{bars.histogram(steps, bars=known)}|", no_wrap=True)


def _provenance(result: CaseResult) -> Iterator[str]:
    """Where and when it was measured."""
    shown = result.shown
    yield f"machine: {markdown.machine(result.manifest)}"
    yield f"software: {markdown.software(result.manifest)}"
    yield f"measured: {shown.started_at} to {shown.finished_at}" + (f", on {shown.lane}" if shown.lane else "")
    yield f"run: {result.run}"


def samples_csv(result: CaseResult) -> str:
    """Each timed step as a row of CSV: the repeat, the block (in the order in which they ran), the variant, seconds."""
    rows = [
        (record.case.repeat, number, block.variant, sample_s)
        for record in result.records
        for number, block in enumerate(getattr(record.outcome, "blocks", ()))
        for sample_s in block.samples_s
    ]
    return csv_text([SAMPLE_HEADINGS, *rows])
