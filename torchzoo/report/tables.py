"""Tables: one case in detail for the terminal, many cases a line each for the terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from torchzoo import stats
from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.figures import CaseFigures, VariantFigures, case_figures
from torchzoo.record import Check, Failed, Measured, Record
from torchzoo.report import markdown, units
from torchzoo.report.remarks import CHECK_WORDS, one_line, remarks, remarks_of, what_failed
from torchzoo.report.sections import breakdown, compilation, growth, sweep, work

HEADINGS = (
    "model",
    "mode",
    "device",
    "backend",
    "precision",
    "batch",
    "eager",
    "candidate",
    "speedup",
    "memory",
    "note",
)


def case_detail(record: Record) -> Any:
    """One case whole: its table; or what became of it, and the end of a failure's traceback."""
    from rich.text import Text

    if isinstance(record.outcome, Measured):
        return case_table(record)
    lines = [f"{record.case.label()}: {one_line(record)}"]
    if isinstance(record.outcome, Failed):
        lines.append(record.outcome.traceback.rstrip())
    return Text("\n".join(lines))


def case_table(record: Record) -> Any:
    """One measured case as a rich table: a column for eager, one for the candidate."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    figures = case_figures([record])
    case, measured = record.case, figures.measured
    table = Table(title=case.label(), title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    columns = figures.variants
    for name in ["eager", str(case.backend)][: len(columns)]:
        table.add_column(name, justify="right")
    for label, cells in figure_lines(figures, columns):
        table.add_row(label, *cells)
    if figures.speedup is not None:
        table.add_row("speedup over eager", "", units.speedup(figures.speedup))
    steps = sum(len(block.samples_s) for block in measured.blocks)
    below = [
        f"{measured.device_name}, {measured.threads} threads; {measured.parameters:,} parameters; "
        f"{steps} steps timed, {measured.stop_reason}",
        *sweep.curve_line(record),
        *(f"note: {remark}" for remark in remarks(measured)),
        *compilation.reasons(measured),
        *_check_lines(measured.check),
        *breakdown.longest_kernels(measured, is_cpu=case.device == "cpu"),
    ]
    return Group(table, *(Text(line) for line in below))


def _check_lines(check: Check | None) -> list[str]:
    """The verdict, then each kind of result with the tensor that stands worst."""
    if check is None:
        return []

    def said(error: float | None) -> str:
        return "-" if error is None else f"{error:.2g}"

    verdicts = {True: "", False: " WRONG", None: " not judged"}
    return [
        f"check: {CHECK_WORDS[check.status]}" + (f", judged at {check.judged_at}" if check.judged_at else ""),
        *(
            f"  {c.what}: error {said(c.error)}, eager's {said(c.eager_error)}, allowed {said(c.allowed)}, "
            f"at {c.worst}{verdicts[c.is_close]}"
            + (f" ({c.tensors_not_judged} of {c.tensors} tensors not judged)" if c.tensors_not_judged else "")
            for c in check.comparisons
        ),
    ]


def figure_lines(figures: CaseFigures, columns: Sequence[VariantFigures]) -> list[tuple[str, list[str]]]:
    """A label and a cell for each of `columns`; lines that say nothing are left out."""
    measured = figures.measured
    lines = [
        ("latency of a step", [units.latency(c.latency_s) for c in columns]),
        (
            "throughput",
            [units.rate(c.steps_per_s.value * measured.samples_per_step, measured.sample_unit) for c in columns],
        ),
        ("first step", [units.seconds(c.raw.first_step_s) for c in columns]),
        ("device memory, peak allocated", [units.size(c.raw.memory.device_peak_allocated_bytes) for c in columns]),
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
    energies = [None if c.raw.energy is None else stats.step_energy_j(c.raw.energy) for c in columns]
    return [
        ("energy of a step", ["-" if e is None else f"{units.energy(e.value)} {units.spread(e)}" for e in energies]),
        ("energy of a sample", ["-" if e is None else units.energy(e.value / samples_per_step) for e in energies]),
    ]


def _cells(result: CaseResult) -> tuple[str, ...]:
    """One case with all its repeats as a line of the Markdown table."""
    case = result.case
    head = (
        case.model,
        case.mode,
        case.device,
        str(case.backend),
        case.precision,
        "-" if case.batch_size is None else str(case.batch_size),
    )
    if not result.measured:
        return (*head, "", "", "", "", "; ".join(what_failed(result)))
    figures = case_figures(result.records)
    notes = [f"{figures.processes} processes"] if figures.processes > 1 else []
    return (*head, *_figures(figures), "; ".join([*notes, *what_failed(result), *remarks_of(result.measured)]))


def _figures(figures: CaseFigures) -> tuple[str, str, str, str]:
    """Latency of eager and of the candidate, speedup, memory."""
    memory = figures.shown.raw.memory
    return (
        units.latency(figures.eager.latency_s),
        units.latency(figures.candidate.latency_s) if figures.candidate else "",
        units.speedup(figures.speedup) if figures.speedup else "",
        units.size(memory.device_peak_allocated_bytes or memory.host_peak_rss_bytes),
    )


def terminal_table(results: Sequence[CaseResult]) -> Any:
    """Many cases for the terminal, 80 columns wide: measured ones, then remarks, then what did not run and why."""
    from rich.text import Text

    lines, unmeasured = [], []
    said: dict[str, list[str]] = {}
    for result in results:
        label = result.case.label()
        if result.measured:
            figures = case_figures(result.records)
            eager, candidate, speedup, memory = _figures(figures)
            several = f" ({figures.processes} processes)" if figures.processes > 1 else ""
            lines += [f"{label}{several}", f"  {eager:<19}{candidate:<19}{speedup:<25}{memory:>10}"]
            for remark in remarks_of(result.measured):
                said.setdefault(remark, []).append(label)
        unmeasured += [f"{label}: {text}" for text in what_failed(result)]
    if lines:
        lines.insert(0, f"  {'eager':<19}{'candidate':<19}{'speedup':<25}{'memory':>10}")
    notes = [f"note: {remark}: {', '.join(labels)}" for remark, labels in said.items()]
    return Text("\n".join([*lines, *sweep.lines(results), *notes, *unmeasured]))


def write_markdown(data: ReportData, file: IO[str]) -> None:
    """Many cases, a line each, under the commands, the machine, versions and dates."""
    lines = [
        *markdown.provenance(*(run.manifest for run in data.runs)),
        "- memory: peak allocated on the device, peak resident on the CPU; of the candidate where there is one",
        "",
        *markdown.table(HEADINGS, map(_cells, data.cases)),
    ]
    file.write("\n".join(lines) + "\n")
