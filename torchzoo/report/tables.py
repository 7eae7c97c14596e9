"""Tables: one case in detail for the terminal, many cases for the terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from torchzoo.analysis.beside_eager import has_several_backends
from torchzoo.analysis.cases import CaseResult, Status
from torchzoo.analysis.figures import CaseFigures, VariantFigures, case_figures
from torchzoo.case import Mode, Precision
from torchzoo.record import Check, Checked, CheckStatus, Failed, Measured, Record, ResultComparison
from torchzoo.report import terminal, units
from torchzoo.report.case_lines import CaseLines
from torchzoo.report.columns import BOUND, CANDIDATE, EAGER, MEMORY, SPEEDUP, TIME, FigureColumn
from torchzoo.report.document import Table, table
from torchzoo.report.overview import of_the_cases
from torchzoo.report.remarks import CHECK_WORDS, one_line, remarks_of, what_failed
from torchzoo.report.sections import backends, breakdown, compilation, growth, sweep, work
from torchzoo.report.sections.checks import check_of

MOST_LABELS = 4  # of cases that have a reason in common
FIGURES = (EAGER, CANDIDATE, SPEEDUP, BOUND, MEMORY)
#: The same where another table has eager's.
OWN_FIGURES = (TIME, SPEEDUP, BOUND, MEMORY)


# --- one case, for the terminal ---


def case_detail(record: Record) -> Any:
    """One case whole: its table; or what became of it, and the end of a failure's traceback."""
    from rich.console import Group

    if isinstance(record.outcome, Measured):
        return case_table(record)
    lines = [f"{record.case.label()}: {one_line(record)}"]
    if isinstance(record.outcome, Failed):
        lines += record.outcome.traceback.rstrip().split("\n")
    if isinstance(record.outcome, Checked):
        return Group(*map(terminal.hanging, [*lines, *checked_lines(record.outcome)]))
    return Group(*terminal.texts(lines))


def case_table(record: Record) -> Any:
    """One measured case: its name, and its figures."""
    from rich.console import Group

    figures = case_figures([record])
    return Group(terminal.text(record.case.label()), figures_table(figures, [figures.measured]))


def figures_table(
    figures: CaseFigures, processes: Sequence[Measured], *, most_reasons: int | None = compilation.FEW
) -> Any:
    """A column for eager, one for the candidate, and below what else there is to say of all these processes.

    Args:
        figures: of the case.
        processes: that measured it.
        most_reasons: how many graph breaks and the like are shown; None for all.
    """
    from rich.console import Group

    record, measured = figures.record, figures.measured
    case = record.case
    columns = figures.variants
    names = ["eager", str(case.backend)][: len(columns)]
    rows = [(label, *cells) for label, cells in figure_lines(figures, columns)]
    if figures.speedup is not None:
        rows.append(("speedup over eager", "", units.speedup(figures.speedup)))
    several = [f"over {figures.processes} processes; what has no interval is of the middle one"]
    below = [
        *(several if figures.processes > 1 else []),
        f"{_device_and_size(measured)}; {figures.timed_steps} steps timed, {measured.stop_reason}",
        *sweep.curve_line(record),
        *(f"note: {remark}" for remark in remarks_of(processes)),
        *compilation.reasons(measured, limit=most_reasons),
        *_check_lines(measured.check),
    ]
    return Group(
        terminal.table(("", *names), rows, right=names),
        *map(terminal.hanging, below),
        *breakdown.kernel_tables(measured, is_cpu=case.device == "cpu"),
    )


def checked_lines(checked: Checked) -> list[str]:
    """What there is to say of a case that was not timed."""
    graphs = "" if checked.graphs is None else f"; {checked.graphs} graphs captured"
    return [
        f"{_device_and_size(checked)}{graphs}; nothing was timed",
        *_check_lines(checked.check),
    ]


def _device_and_size(one: Measured | Checked) -> str:
    threads = "1 thread" if one.threads == 1 else f"{one.threads} threads"
    return f"{one.device_name}, {threads}; {one.parameters:,} parameters"


def _check_lines(check: Check | None) -> list[str]:
    """The status, then each kind of result with its worst tensor."""
    if check is None:
        return []

    def shown(error: float | None) -> str:
        return "-" if error is None else f"{error:.2g}"

    verdicts = {True: "", False: " WRONG", None: " not judged"}
    return [
        f"check: {CHECK_WORDS[check.status]}{_how_checked(check)}",
        *(
            f"  {c.what}: error {shown(c.error)}, eager's {shown(c.eager_error)}, allowed {shown(c.allowed)}, "
            f"at {c.worst}{f' of step {c.step}' if c.step > 1 else ''}{verdicts[c.is_close]}" + _counted(c)
            for c in check.comparisons
        ),
    ]


def _how_checked(check: Check) -> str:
    """`, 3 steps, judged at fp32, compiled anew for the check: nothing was timed`."""
    said = [f"{check.steps} steps in a row"] if check.steps > 1 else []
    said += [f"judged at {check.judged_at}"] if check.judged_at else []
    said += [f"compiled anew for the check: {check.compiled_anew}"] if check.compiled_anew else []
    return "".join(f", {one}" for one in said)


def _counted(comparison: ResultComparison) -> str:
    """How many tensors are wrong, if not just one of one, and how many could not be judged."""
    tensors, wrong, open_ = comparison.tensors, comparison.tensors_wrong, comparison.tensors_not_judged
    said = [f"{wrong} wrong"] if wrong and tensors > 1 else []
    said += [f"{open_} not judged"] if open_ else []
    return f" (of {tensors} tensors {', '.join(said)})" if said else ""


def _issued(variant: VariantFigures) -> str:
    """`2.70 ms (69%)`: when a step returns, and the share of its time; nothing on the CPU, where it is over then."""
    if variant.issued_s is None or variant.device_share is None:
        return "-"
    return f"{units.seconds(variant.issued_s)} ({variant.issued_s / variant.latency_s.value:.0%})"


def _device_peak(figures: CaseFigures, variant: VariantFigures) -> str:
    """The peak on the device; on the CPU nothing, which leaves the line out."""
    peak_bytes = variant.raw.memory.device_peak_allocated_bytes
    is_unknown = peak_bytes is None and figures.record.case.device_type != "cpu"
    return "not known" if is_unknown else units.size(peak_bytes)


#: What the latency of a step is called where it has a name of its own.
LATENCIES = {Mode.PREFILL: "time to the first token", Mode.DECODE: "time of a token"}


def figure_lines(figures: CaseFigures, columns: Sequence[VariantFigures]) -> list[tuple[str, list[str]]]:
    """A label and a cell for each of `columns`. Lines of which no cell is known are left out."""
    measured = figures.measured
    lines = [
        (LATENCIES.get(figures.record.case.mode, "latency of a step"), [units.latency(c.latency_s) for c in columns]),
        ("throughput", [units.rate(figures.samples_per_s(c), measured.sample_unit) for c in columns]),
        ("device works", ["-" if c.device_share is None else f"{c.device_share:.0%}" for c in columns]),
        ("step returns after", [_issued(c) for c in columns]),
        ("first step", [units.seconds(c.raw.first_step_s) for c in columns]),
        ("device memory, peak allocated", [_device_peak(figures, c) for c in columns]),
        ("device memory, peak reserved", [units.size(c.raw.memory.device_peak_reserved_bytes) for c in columns]),
        ("device memory of the process", [units.size(c.raw.memory.device_process_bytes) for c in columns]),
        ("host memory, peak resident", [units.size(c.raw.memory.host_peak_rss_bytes) for c in columns]),
        ("host memory, unique", [units.size(c.raw.memory.host_uss_bytes) for c in columns]),
        *growth.lines([c.raw for c in columns]),
        ("outlying steps", [str(c.outliers) for c in columns]),
        *compilation.lines(columns),
        *breakdown.lines(columns, is_cpu=figures.record.case.device == "cpu"),
        *_energy_lines(columns, measured.samples_per_step),
        *work.lines(figures.record.case, measured),
    ]
    return [(label, cells) for label, cells in lines if set(cells) != {"-"}]


def _energy_lines(columns: Sequence[VariantFigures], samples_per_step: int) -> list[tuple[str, list[str]]]:
    energies = [c.step_energy_j for c in columns]
    return [
        ("energy of a step", ["-" if e is None else units.energy_estimate(e) for e in energies]),
        ("energy of a sample", ["-" if e is None else units.energy(e.value / samples_per_step) for e in energies]),
    ]


# --- many cases ---


def terminal_table(results: Sequence[CaseResult]) -> Any:
    """Many cases for the terminal: a line each, and why some have no figures."""
    from rich.console import Group

    if not results:
        return Group()
    lines = CaseLines({f"{len(results)} case{'s' * (len(results) != 1)}": results})
    above, below = backends.blocks(results), of_the_cases(results)
    return Group(
        *([terminal.render(above), ""] if above else []),
        lines,
        *map(terminal.hanging, [*not_measured(results), *backends.notes(results)]),
        *(["", terminal.render(below)] if below else []),
    )


def not_measured(results: Sequence[CaseResult]) -> list[str]:
    """Why cases have no figures. Cases with the same reason are in one line, the first few of them by name.

    Those that were checked and are correct are left out: their own line says so.
    """
    cases_by_reason: dict[str, list[str]] = {}
    for result in results:
        found = check_of(result) if result.status is Status.CHECKED else None
        if found is not None and found.status is CheckStatus.CORRECT:
            continue
        for reason in what_failed(result):
            cases_by_reason.setdefault(reason, []).append(result.case.label())
    return [
        f"{reason} ({len(labels)}): {units.first_few(labels, MOST_LABELS)}"
        for reason, labels in sorted(cases_by_reason.items(), key=lambda item: item[0].startswith("skipped"))
    ]


def cases_table(results: Sequence[CaseResult]) -> Table:
    """Many cases, a row each. Where another table has the figures of eager beside several backends, none are here."""
    columns = OWN_FIGURES if has_several_backends(results) else FIGURES
    headings = ("model", "mode", "device", "backend", "precision", "batch", *(one.heading for one in columns), "note")
    return table(headings, (_cells(result, columns) for result in results))


def _cells(result: CaseResult, columns: Sequence[FigureColumn]) -> tuple[str, ...]:
    """One case with all its repeats."""
    case = result.case
    axes = msgspec.structs.replace(case, precision=Precision.DEFAULT).axes_label()  # precision has a column of its own
    head = (
        case.model,
        case.mode,
        case.device,
        axes,
        case.precision,
        "-" if case.batch_size is None else str(case.batch_size),
    )
    figures = result.measured_figures
    if figures is None:
        return (*head, *[""] * len(columns), "; ".join(what_failed(result)))
    notes = [f"{figures.processes} processes"] if figures.processes > 1 else []
    return (
        *head,
        *(one.cell(figures) for one in columns),
        "; ".join([*notes, *what_failed(result), *remarks_of(result.measured)]),
    )
