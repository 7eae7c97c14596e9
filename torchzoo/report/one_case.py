"""The document of one case: axes, outcome, figures, samples, remarks, machine, and the command to measure it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO

from torchzoo.analysis.cases import CaseResult, Status
from torchzoo.analysis.figures import CaseFigures, VariantFigures, case_figures
from torchzoo.analysis.peaks import Peaks, PeaksFileError
from torchzoo.analysis.roofline import (
    Achieved,
    achieved,
    known_peaks,
    longest_kernels,
    profiled_step_s,
    read_rate,
    short_name,
)
from torchzoo.case import Case, Mode
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Check, Checked, Failed, Measured, Record, ResultComparison
from torchzoo.report import bars, compile_stats, markdown, terminal, units
from torchzoo.report.case_lines import CASE
from torchzoo.report.document import Block, Code, Column, Heading, Items, table
from torchzoo.report.remarks import CHECK_WORDS, growth_lines, one_line, remarks_of, what_failed
from torchzoo.report.some_cases import curve_line
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
#: The names of a step's latency in modes that have their own.
LATENCIES = {Mode.PREFILL: "time to the first token", Mode.DECODE: "time of a token"}
KERNELS = 5
SAMPLE_HEADINGS = ("repeat", "block", "variant", "step_s")


def show(result: CaseResult, file: IO[str] | None = None) -> None:
    """Print the document of the case and the command that measures it again, to standard output or to `file`."""
    terminal.show(terminal.render(document(result)), file=file)
    terminal.show_line(f"again: {result.command}", file)


def document(result: CaseResult) -> list[Block]:
    """Return all that is known of the case, except the command that measures it again."""
    axes = ", ".join(f"{name} {text}" for name, of in CASE.items() if (text := of(result.case)))
    words = "checked, and INCORRECT" if result.checked and result.wrong_checks else STATUS_WORDS[result.status]
    status = words + (f": {result.reason}" if result.reason else "")
    blocks: list[Block] = [Heading(result.case.label()), Items((status, axes))]
    if result.measured_figures is not None:
        blocks += figures_of(result.measured_figures, result.measured, most_reasons=None)
        blocks.append(Items(tuple(_samples(result))))
    blocks += [Items(tuple(_checked(one))) for one in result.checked]
    return [*blocks, *_not_measured(result), Items(tuple(_provenance(result)))]


def brief(record: Record) -> list[Block]:
    """Return the figures of one process; of a process that has none, its outcome and the end of its traceback."""
    outcome, label = record.outcome, record.case.label()
    if isinstance(outcome, Measured):
        figures = case_figures([record])
        return [Heading(label), *figures_of(figures, [figures.measured])]
    lines = [f"{label}: {one_line(record)}", *(_checked(outcome) if isinstance(outcome, Checked) else [])]
    traceback = outcome.traceback.rstrip() if isinstance(outcome, Failed) else ""
    return [Items(tuple(lines)), *([_traceback(traceback)] if traceback else [])]


def figures_of(
    figures: CaseFigures, processes: Sequence[Measured], *, most_reasons: int | None = compile_stats.FEW
) -> list[Block]:
    """Return a table with a column for eager and one for the candidate, then remarks, check and longest kernels.

    At most `most_reasons` graph breaks and the like are shown.
    """
    record, measured = figures.record, figures.measured
    names = ["eager", str(record.case.backend)][: len(figures.variants)]
    rows = [(label, *cells) for label, cells in figure_lines(figures, figures.variants)]
    if figures.speedup is not None:
        rows.append(("speedup over eager", "", units.speedup(figures.speedup)))
    several = [f"over {figures.processes} processes; what has no interval is of the middle one"]
    below = [
        *(several if figures.processes > 1 else []),
        f"{_device_and_size(measured)}; {figures.timed_steps} steps timed, {measured.stop_reason}",
        *curve_line(record),
        *(f"note: {remark}" for remark in remarks_of(processes)),
        *compile_stats.reasons(measured, limit=most_reasons),
        *_check(measured.check),
    ]
    return [
        table(("", *(Column(name, is_number=True) for name in names)), rows),
        Items(tuple(below)),
        *_kernels(measured, is_cpu=record.case.device == "cpu"),
    ]


def _checked(checked: Checked) -> list[str]:
    graphs = "" if checked.graphs is None else f"; {checked.graphs} graphs captured"
    return [f"{_device_and_size(checked)}{graphs}; nothing was timed", *_check(checked.check)]


def _device_and_size(one: Measured | Checked) -> str:
    return f"{one.device_name}, {one.threads} thread{'s' * (one.threads != 1)}; {one.parameters:,} parameters"


def _not_measured(result: CaseResult) -> Iterator[Block]:
    """Yield the outcomes of repeats without figures, the end of each traceback, and the files of logs."""
    if result.measured:
        yield Items(tuple(what_failed(result)))
    yield from map(_traceback, dict.fromkeys(one.traceback.rstrip() for one in result.all_failures if one.traceback))
    yield Items(tuple(f"log: {failed.log}" for failed in result.all_failures if failed.log))


def _traceback(text: str) -> Code:
    return Code(tuple(text.split("\n")), language="")


def steps_s(result: CaseResult) -> dict[str, list[float]]:
    """All timed steps by variant, in the order of execution, over all processes that measured the case."""
    found: dict[str, list[float]] = {}
    for measured in result.measured:
        for block in measured.blocks:
            found.setdefault(block.variant, []).extend(block.samples_s)
    return {variant: found[variant] for variant in (EAGER_VARIANT, CANDIDATE_VARIANT) if found.get(variant)}


def _samples(result: CaseResult) -> Iterator[str]:
    known = bars.known_bars()
    for variant, steps in steps_s(result).items():
        low, high = units.seconds(min(steps)), units.seconds(max(steps))
        yield f"{variant}: {len(steps)} steps from {low} to {high} (--samples prints them)"
        yield f"  in time    |{bars.in_time(steps, bars=known)}|"
        yield f"  histogram  |{bars.histogram(steps, bars=known)}|"


def _provenance(result: CaseResult) -> Iterator[str]:
    shown = result.shown
    yield f"machine: {markdown.machine(result.manifest)}"
    yield f"software: {markdown.software(result.manifest)}"
    yield f"measured: {shown.started_at} to {shown.finished_at}" + (f", on {shown.lane}" if shown.lane else "")
    yield f"run: {result.run}"


def samples_csv(result: CaseResult) -> str:
    """Return a row of CSV for each timed step: the repeat, the block in the order of running, the variant, seconds."""
    rows = [
        (record.case.repeat, number, block.variant, sample_s)
        for record in result.records
        for number, block in enumerate(getattr(record.outcome, "blocks", ()))
        for sample_s in block.samples_s
    ]
    return csv_text([SAMPLE_HEADINGS, *rows])


# --- the lines of the table ---


def figure_lines(figures: CaseFigures, columns: Sequence[VariantFigures]) -> list[tuple[str, list[str]]]:
    """Return lines of the table: a label, and a cell for each of `columns`. Lines without a known cell are left out."""
    measured, energies = figures.measured, [c.step_energy_j for c in columns]
    samples = measured.samples_per_step
    lines = [
        (LATENCIES.get(figures.record.case.mode, "latency of a step"), [units.latency(c.latency_s) for c in columns]),
        ("throughput", [units.rate(figures.samples_per_s(c), measured.sample_unit) for c in columns]),
        ("device works", ["-" if c.device_share is None else f"{c.device_share:.0%}" for c in columns]),
        ("step returns after", [_issued(c) for c in columns]),
        *three_figures_lines(columns),
        ("first step", [units.seconds(c.raw.first_step_s) for c in columns]),
        ("device memory, peak allocated", [_device_peak(figures, c) for c in columns]),
        ("device memory, peak reserved", [units.size(c.raw.memory.device_peak_reserved_bytes) for c in columns]),
        ("device memory of the process", [units.size(c.raw.memory.device_process_bytes) for c in columns]),
        ("host memory, peak resident", [units.size(c.raw.memory.host_peak_rss_bytes) for c in columns]),
        ("host memory, unique", [units.size(c.raw.memory.host_uss_bytes) for c in columns]),
        *growth_lines([c.raw for c in columns]),
        ("outlying steps", [str(c.outliers) for c in columns]),
        *compile_stats.lines(columns),
        *_breakdown_lines(columns, is_cpu=figures.record.case.device == "cpu"),
        ("energy of a step", ["-" if e is None else units.energy_estimate(e) for e in energies]),
        ("energy of a sample", ["-" if e is None else units.energy(e.value / samples) for e in energies]),
        *work_lines(figures.record.case, measured),
    ]
    return [(label, cells) for label, cells in lines if set(cells) != {"-"}]


def three_figures_lines(columns: Sequence[VariantFigures]) -> list[tuple[str, list[str]]]:
    """Return lines on D, H and what T would be on the reference host."""
    active_s = [c.raw.device_active_s for c in columns]
    there = [c.latency_on(1.0) for c in columns]
    return [
        ("device's work (D)", ["-" if one is None else units.seconds(one) for one in active_s]),
        (
            "host's work (H), on the reference host",
            ["-" if c.host_s is None else units.latency(c.host_s) for c in columns],
        ),
        ("latency on the reference host", ["-" if one is None else units.latency(one) for one in there]),
    ]


def _issued(variant: VariantFigures) -> str:
    """`2.70 ms (69%)`: when a step returns, and the share of its time; `-` on the CPU, where it has ended by then."""
    if variant.issued_s is None or variant.device_share is None:
        return "-"
    return f"{units.seconds(variant.issued_s)} ({variant.issued_s / variant.latency_s.value:.0%})"


def _device_peak(figures: CaseFigures, variant: VariantFigures) -> str:
    """The peak on the device; `-` on the CPU, so that the line is left out."""
    peak_bytes = variant.raw.memory.device_peak_allocated_bytes
    is_unknown = peak_bytes is None and figures.record.case.device_type != "cpu"
    return "not known" if is_unknown else units.size(peak_bytes)


def _breakdown_lines(columns: Sequence[VariantFigures], *, is_cpu: bool) -> list[tuple[str, list[str]]]:
    names = {"active": "device active", "movement": "data movement", "idle": "device idle"}
    if is_cpu:
        names = {"active": "inside operators", "idle": "Python and framework"}
    names["communication"] = "only collectives"

    def share(figures: VariantFigures, part: str) -> str:
        found = getattr(figures.shares, part, None)
        return "-" if found is None else units.share(found)

    return [
        ("profiled step, of which", [_profiled_step(figures) for figures in columns]),
        *((label, [share(figures, part) for figures in columns]) for part, label in names.items()),
    ]


def _profiled_step(figures: VariantFigures) -> str:
    """`12.3 ms, 1.05x latency`: how long a step takes under the profiler, beside its usual latency."""
    wall_s = profiled_step_s(figures.raw.breakdown)
    return "-" if wall_s is None else f"{units.seconds(wall_s)}, {wall_s / figures.latency_s.value:.2f}x latency"


def work_lines(case: Case, measured: Measured) -> list[tuple[str, list[str]]]:
    """Return lines on how much a step computes and reads, how fast, and what bounds it; none if nothing was counted."""
    others = len(measured.variants) - 1
    api: list[tuple[str, list[str]]] = []
    if measured.api is not None:
        used = f"{len(measured.api.functions)}, {len(measured.api.operators)}"
        api = [("functions, operators of PyTorch", [used, *["-"] * others])]
    if measured.flops is None and measured.bytes_read_per_step is None:
        return api
    try:
        peaks = known_peaks(case, measured)
    except PeaksFileError as error:
        return [("share of peak (MFU)", [str(error), *[""] * others]), *api]
    return [*_read_lines(measured, peaks), *_operation_lines(measured, peaks), *api]


def _read_lines(measured: Measured, peaks: Peaks) -> list[tuple[str, list[str]]]:
    rates = [rate for name in measured.variants if (rate := read_rate(measured, name, peaks)) is not None]
    if not rates:
        return []
    same = ["the same"] * (len(rates) - 1)
    peak = "not known" if peaks.memory is None else f"{units.size(int(peaks.memory.per_s))}/s ({peaks.memory.source})"
    return [
        ("weights and caches read", [units.size(measured.bytes_read_per_step), *same]),
        ("read at least at", [f"{units.size(int(rate.bytes_per_s.value))}/s" for rate in rates]),
        ("peak of the memory", [peak, *same]),
        ("share of that peak", ["-" if rate.share is None else f"{rate.share.value:.1%}" for rate in rates]),
    ]


def _operation_lines(measured: Measured, peaks: Peaks) -> list[tuple[str, list[str]]]:
    found = [reached for name in measured.variants if (reached := achieved(measured, name, peaks)) is not None]
    if measured.flops is None or not measured.flops.total:
        return [("operations of a step", ["none that count", *[""] * (len(found) - 1)])] if found else []
    return [
        ("operations of a step", [units.operations(measured.flops.total), *["the same"] * (len(found) - 1)]),
        ("achieved", [units.operations_per_s(one.flop_per_s) for one in found]),
        ("its peak", [_peak(one) for one in found]),
        ("share of peak (MFU)", ["-" if one.mfu is None else f"{one.mfu.value:.1%}" for one in found]),
        ("bound by", [f"{one.bound} ({one.why})" for one in found]),
    ]


def _peak(reached: Achieved) -> str:
    """`67.0 TFLOP/s (fp32 12%, tf32 88%; datasheet)`."""
    if reached.peak is None:
        return "not known; see torchzoo doctor --peaks"
    paths = sorted(reached.peak.paths.items())
    mixture = ", ".join(path if share > 0.995 else f"{path} {share:.0%}" for path, share in paths if share > 0.005)
    return f"{units.operations(reached.peak.flop_per_s)}/s ({mixture}; {reached.peak.source})"


# --- below the table ---


def _kernels(measured: Measured, *, is_cpu: bool) -> Iterator[Block]:
    for name, result in measured.variants.items():
        if result.breakdown is None or not result.breakdown.steps:
            continue
        what = "operators (their own time)" if is_cpu else "kernels"
        yield Heading(f"{name}: {what} that took longest, of {len(result.breakdown.steps)} steps", level=3)
        rows = (
            (f"{100 * kernel.share:.1f}%", f"{kernel.calls_per_step:,.4g}", short_name(kernel.name))
            for kernel in longest_kernels(result.breakdown, KERNELS)
        )
        numbers = (Column(heading, is_number=True) for heading in ("share", "calls a step"))
        yield table((*numbers, "operator" if is_cpu else "kernel"), rows)


def _check(check: Check | None) -> list[str]:
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
    said = f", {check.steps} steps in a row" if check.steps > 1 else ""
    said += f", judged at {check.judged_at}" if check.judged_at else ""
    return said + (f", compiled anew for the check: {check.compiled_anew}" if check.compiled_anew else "")


def _counted(comparison: ResultComparison) -> str:
    """` (of 3 tensors 2 wrong, 1 not judged)`; empty where the only tensor is wrong or all are close."""
    tensors, wrong, open_ = comparison.tensors, comparison.tensors_wrong, comparison.tensors_not_judged
    said = [f"{wrong} wrong"] if wrong and tensors > 1 else []
    said += [f"{open_} not judged"] if open_ else []
    return f" (of {tensors} tensors {', '.join(said)})" if said else ""
