"""Tables: one case in detail for the terminal, many cases for the terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from torchzoo.analysis.bound import case_bound
from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.figures import CaseFigures, VariantFigures, case_figures
from torchzoo.case import Mode
from torchzoo.record import Check, Failed, Measured, Record
from torchzoo.report import markdown, terminal, units
from torchzoo.report.remarks import CHECK_WORDS, one_line, remarks, remarks_of, what_failed
from torchzoo.report.sections import breakdown, compilation, generation, growth, scaling, sweep, work

FIGURES = ("eager", "candidate", "speedup", "bound by", "memory")
HEADINGS = ("model", "mode", "device", "backend", "precision", "batch", *FIGURES, "note")


# --- one case, for the terminal ---


def case_detail(record: Record) -> Any:
    """One case whole: its table; or what became of it, and the end of a failure's traceback."""
    from rich.console import Group

    if isinstance(record.outcome, Measured):
        return case_table(record)
    lines = [f"{record.case.label()}: {one_line(record)}"]
    if isinstance(record.outcome, Failed):
        lines += record.outcome.traceback.rstrip().split("\n")
    return Group(*terminal.texts(lines))


def case_table(record: Record) -> Any:
    """One measured case: a column for eager, one for the candidate, and below what else there is to say."""
    from rich.console import Group

    figures = case_figures([record])
    case, measured = record.case, figures.measured
    columns = figures.variants
    names = ["eager", str(case.backend)][: len(columns)]
    rows = [(label, *cells) for label, cells in figure_lines(figures, columns)]
    if figures.speedup is not None:
        rows.append(("speedup over eager", "", units.speedup(figures.speedup)))
    below = [
        f"{measured.device_name}, {measured.threads} threads; {measured.parameters:,} parameters; "
        f"{figures.timed_steps} steps timed, {measured.stop_reason}",
        *sweep.curve_line(record),
        *(f"note: {remark}" for remark in remarks(measured)),
        *compilation.reasons(measured),
        *_check_lines(measured.check),
    ]
    return Group(
        terminal.text(case.label()),
        terminal.table(("", *names), rows, right=names),
        *terminal.texts(below),
        *breakdown.kernel_tables(measured, is_cpu=case.device == "cpu"),
    )


def _check_lines(check: Check | None) -> list[str]:
    """The status, then each kind of result with its worst tensor."""
    if check is None:
        return []

    def shown(error: float | None) -> str:
        return "-" if error is None else f"{error:.2g}"

    verdicts = {True: "", False: " WRONG", None: " not judged"}
    return [
        f"check: {CHECK_WORDS[check.status]}" + (f", judged at {check.judged_at}" if check.judged_at else ""),
        *(
            f"  {c.what}: error {shown(c.error)}, eager's {shown(c.eager_error)}, allowed {shown(c.allowed)}, "
            f"at {c.worst}{verdicts[c.is_close]}"
            + (f" ({c.tensors_not_judged} of {c.tensors} tensors not judged)" if c.tensors_not_judged else "")
            for c in check.comparisons
        ),
    ]


#: What the latency of a step is called where it has a name of its own.
LATENCIES = {Mode.PREFILL: "time to the first token", Mode.DECODE: "time of a token"}


def figure_lines(figures: CaseFigures, columns: Sequence[VariantFigures]) -> list[tuple[str, list[str]]]:
    """A label and a cell for each of `columns`. Lines of which no cell is known are left out."""
    measured = figures.measured
    lines = [
        (LATENCIES.get(figures.record.case.mode, "latency of a step"), [units.latency(c.latency_s) for c in columns]),
        ("throughput", [units.rate(figures.samples_per_s(c), measured.sample_unit) for c in columns]),
        ("device works", ["-" if c.device_share is None else f"{c.device_share:.0%}" for c in columns]),
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
    energies = [c.step_energy_j for c in columns]
    return [
        ("energy of a step", ["-" if e is None else units.energy_estimate(e) for e in energies]),
        ("energy of a sample", ["-" if e is None else units.energy(e.value / samples_per_step) for e in energies]),
    ]


# --- many cases ---


def _figures(figures: CaseFigures) -> tuple[str, str, str, str, str]:
    """The cells under `FIGURES`."""
    memory = figures.shown.raw.memory
    return (
        units.latency(figures.eager.latency_s),
        units.latency(figures.candidate.latency_s) if figures.candidate else "",
        units.speedup(figures.speedup) if figures.speedup else "",
        _bound(figures),
        units.size(memory.device_peak_allocated_bytes or memory.host_peak_rss_bytes),
    )


def _bound(figures: CaseFigures) -> str:
    """`host, 31% / 88%`: what bounds the case, and the share in which the device works, of eager and the candidate."""
    bound = case_bound([figures.measured])
    shares = [variant.device_share for variant in figures.variants]
    if bound is None or None in shares:
        return bound or ""
    return f"{bound}, {' / '.join(f'{share:.0%}' for share in shares if share is not None)}"


def used_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows without the columns that are empty in every row."""
    used = [number for number in range(len(headings)) if any(row[number] for row in rows)]
    return [headings[number] for number in used], [[row[number] for number in used] for row in rows]


def terminal_table(results: Sequence[CaseResult]) -> Any:
    """Many cases for the terminal: the figures of those that were measured, remarks, and why others have no figures."""
    from rich.console import Group

    rows, unmeasured = [], []
    cases_by_remark: dict[str, list[str]] = {}
    for result in results:
        label = result.case.label()
        if (figures := result.measured_figures) is not None:
            several = f" ({figures.processes} processes)" if figures.processes > 1 else ""
            rows.append((f"{label}{several}", *_figures(figures)))
            for remark in remarks_of(result.measured):
                cases_by_remark.setdefault(remark, []).append(label)
        unmeasured += [f"{label}: {text}" for text in what_failed(result)]
    (_, *headings), rows_used = used_columns(("case", *FIGURES), rows) if rows else (("case",), [])
    table = [terminal.CaseTable(headings, rows_used, right={"memory"})] if rows else []
    notes = [f"note: {remark}: {', '.join(labels)}" for remark, labels in cases_by_remark.items()]
    more = [line for section in (generation, scaling, sweep) for line in section.lines(results)]
    return Group(*table, *terminal.texts([*more, *notes, *unmeasured]))


def write_markdown(data: ReportData, file: IO[str]) -> None:
    """Many cases, a line each, under the commands, the machine, versions and dates."""
    lines = [
        *markdown.provenance(*(run.manifest for run in data.runs)),
        "- memory: peak allocated on the device, or on the CPU peak resident; of the candidate if there is one",
        "",
        *markdown.table(HEADINGS, map(_markdown_cells, data.cases)),
    ]
    if generating := generation.rows(data.cases):
        lines += ["", "## Generation", "", *markdown.table(generation.HEADINGS, generating)]
    if scaled := scaling.rows(data.cases):
        lines += ["", "## Scaling", "", *markdown.table(scaling.HEADINGS, scaled)]
    file.write("\n".join(lines) + "\n")


def _markdown_cells(result: CaseResult) -> tuple[str, ...]:
    """The cells under `HEADINGS`: one case with all its repeats."""
    case = result.case
    head = (
        case.model,
        case.mode,
        case.device,
        str(case.backend),
        case.precision,
        "-" if case.batch_size is None else str(case.batch_size),
    )
    figures = result.measured_figures
    if figures is None:
        return (*head, *[""] * len(FIGURES), "; ".join(what_failed(result)))
    notes = [f"{figures.processes} processes"] if figures.processes > 1 else []
    return (*head, *_figures(figures), "; ".join([*notes, *what_failed(result), *remarks_of(result.measured)]))
