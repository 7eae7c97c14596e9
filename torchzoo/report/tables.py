"""Tables: one case in detail for the terminal, many cases a line each for the terminal or in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

from torchzoo.record import Failed, Manifest, Measured, Record, Skipped
from torchzoo.report import units
from torchzoo.report.rows import Figures, Row, in_a_line, remarks, row

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


def case_table(record: Record) -> Any:
    """One measured case as a rich table: a column for eager, one for the candidate."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    figures = row(record)
    assert figures is not None
    case, measured = record.case, figures.measured
    table = Table(title=case.label(), title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    columns = [figures.eager] + ([figures.candidate] if figures.candidate else [])
    for name in ["eager", str(case.backend)][: len(columns)]:
        table.add_column(name, justify="right")
    for label, cells in _lines(figures, columns):
        table.add_row(label, *cells)
    if figures.speedup is not None:
        table.add_row("speedup over eager", "", units.speedup(figures.speedup))
    steps = sum(len(block.samples_s) for block in measured.blocks)
    below = [
        f"{measured.device_name}, {measured.threads} threads; {measured.parameters:,} parameters; "
        f"{steps} steps timed, {measured.stop_reason}",
        *(f"note: {remark}" for remark in remarks(measured)),
    ]
    return Group(table, *(Text(line) for line in below))


def _lines(figures: Row, columns: Sequence[Figures]) -> list[tuple[str, list[str]]]:
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
        ("outlying steps", [str(c.outliers) for c in columns]),
    ]
    return [(label, cells) for label, cells in lines if set(cells) != {"-"}]


def _cells(record: Record) -> tuple[str, ...]:
    case, figures = record.case, row(record)
    head = (
        case.model,
        case.mode,
        case.device,
        str(case.backend),
        case.precision,
        "-" if case.batch_size is None else str(case.batch_size),
    )
    outcome = record.outcome
    if isinstance(outcome, Skipped):
        return (*head, "", "", "", "", f"skipped: {outcome.reason}")
    if isinstance(outcome, Failed):
        return (*head, "", "", "", "", f"FAILED, {outcome.kind} in {outcome.stage}: {outcome.message}")
    assert figures is not None
    shown = figures.candidate or figures.eager
    memory = shown.raw.memory.device_peak_allocated_bytes or shown.raw.memory.host_peak_rss_bytes
    return (
        *head,
        units.latency(figures.eager.latency_s),
        units.latency(figures.candidate.latency_s) if figures.candidate else "",
        units.speedup(figures.speedup) if figures.speedup else "",
        units.size(memory),
        "; ".join(remarks(figures.measured)),
    )


def terminal_table(records: Sequence[Record]) -> Any:
    """Many cases for the terminal, 80 columns wide: measured ones, then remarks, then what did not run and why."""
    from rich.text import Text

    lines, unmeasured = [], []
    said: dict[str, list[str]] = {}
    for record in records:
        if isinstance(record.outcome, Measured):
            eager, candidate, speedup, memory = _cells(record)[6:10]
            lines += [record.case.label(), f"  {eager:<19}{candidate:<19}{speedup:<25}{memory:>10}"]
            for remark in remarks(record.outcome):
                said.setdefault(remark, []).append(record.case.label())
        else:
            unmeasured.append(f"{record.case.label()}: {in_a_line(record)}")
    if lines:
        lines.insert(0, f"  {'eager':<19}{'candidate':<19}{'speedup':<25}{'memory':>10}")
    notes = [f"note: {remark}: {', '.join(labels)}" for remark, labels in said.items()]
    return Text("\n".join([*lines, *notes, *unmeasured]))


def write_markdown(manifest: Manifest, records: Sequence[Record], file: IO[str]) -> None:
    """Many cases, a line each, under the machine, versions and date."""
    environment = manifest.environment
    gpus = ", ".join(f"{gpu['name']} (driver {gpu['driver']})" for gpu in environment.get("gpus", []))
    packages = ", ".join(f"{name} {version}" for name, version in environment.get("packages", {}).items())
    lines = [
        f"- command: `{' '.join(manifest.command)}`",
        f"- date: {manifest.created_at[:10]}",
        f"- machine: {environment.get('cpu')}, {environment.get('cpu_usable')} cores; {gpus or 'no GPU'}",
        f"- software: torchzoo {environment.get('torchzoo')} "
        f"({environment.get('torchzoo_commit') or 'no checkout'}), torch {environment.get('torch')}, "
        f"CUDA {environment.get('cuda')}, Python {environment.get('python')}, {packages}",
        "- memory: peak allocated on the device, peak resident on the CPU; of the candidate where there is one",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + " --- |" * len(HEADINGS),
    ]
    lines += ["| " + " | ".join(_escape(cell) for cell in _cells(record)) + " |" for record in records]
    file.write("\n".join(lines) + "\n")


def _escape(text: str) -> str:
    """Text that can't break out of a Markdown table's cell."""
    text = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    return text.replace("<", "&lt;").replace(">", "&gt;")
