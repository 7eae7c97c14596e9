"""Tables of figures that only some cases have: several backends, generated tokens, several batch sizes, ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import CaseFigures, VariantFigures
from torchzoo.analysis.peaks import PeaksFileError
from torchzoo.analysis.roofline import known_peaks, read_rate
from torchzoo.case import Case, Mode
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Measured, Record
from torchzoo.report import scaling, units
from torchzoo.report.document import Block, Column, Items, section, table
from torchzoo.stats import Estimate


def document(results: Sequence[CaseResult]) -> list[Block]:
    """Return the sections on tokens, ranks and batch sizes, for the cases that have such figures."""
    return [*generation(results), *scaling.document(results), *batch_sizes(results)]


# --- D, H and T, on a host of another speed ---

THREE_FIGURES: tuple[Column | str, ...] = (
    "case",
    *(Column(name, is_number=True) for name in ("D", "H", "T", "T there", "speedup", "speedup there")),
)


def three_figures(results: Sequence[CaseResult], host: float | None = None) -> list[Block]:
    """Return a table of D, H and T of each case, and of T on a host that takes `host` times as long as the reference.

    Each cell has eager's figure and the candidate's. Cases without these figures are left out.
    """
    host = 1.0 if host is None else host
    rows = [
        _three_figures_row(result.case.label(), figures, host)
        for result in results
        if (figures := result.figures) is not None and figures.shown.latency_on(host) is not None
    ]
    where = "the reference host" if host == 1.0 else f"a host that takes {host:.3g} times as long as the reference host"
    note = (
        "D: the device works. H: the host's work until the step returns, in seconds of the reference host. T: the step "
        f"as it was measured; there: on {where}, by the model of D and H."
    )
    return section("Device, host and time of a step", table(THREE_FIGURES, rows, notes=[note])) if rows else []


def _three_figures_row(label: str, figures: CaseFigures, host: float) -> tuple[str, ...]:
    def both(of: Callable[[VariantFigures], float | None]) -> str:
        return ", ".join("-" if (one := of(each)) is None else units.seconds(one) for each in figures.variants)

    speedups = (figures.speedup, figures.speedup_on(host))
    return (
        label,
        both(lambda one: one.raw.device_active_s),
        both(lambda one: None if one.host_s is None else one.host_s.value),
        both(lambda one: one.latency_s.value),
        both(lambda one: None if (there := one.latency_on(host)) is None else there.value),
        *("" if one is None else units.speedup(one) for one in speedups),
    )


# --- several backends beside one figure of eager ---


class BesideEager(msgspec.Struct, frozen=True, kw_only=True):
    """A case with each of its backends. Eager's figure was measured alone, or else is the middle one of all."""

    case: Case  # in eager
    eager: Estimate | None  # latency; None: not measured
    eagers: tuple[Estimate, ...]  # measured alone, and in turns with each backend
    backends: dict[str, CaseResult]  # by what compiled it: `inductor`, `inductor scope=step`

    @property
    def disagrees(self) -> bool:
        """Whether two of eager's figures have disjoint intervals."""
        sure = [one for one in self.eagers if one.has_interval]
        return bool(sure) and max(one.low for one in sure) > min(one.high for one in sure)


def beside_eager(results: Sequence[CaseResult]) -> list[BesideEager]:
    """A row for each case in eager."""
    groups: dict[Case, list[CaseResult]] = {}
    for result in results:
        groups.setdefault(result.case.in_eager(), []).append(result)
    return [_row_of_eager(case, some) for case, some in groups.items()]


def has_several_backends(results: Sequence[CaseResult]) -> bool:
    """Whether a case has several backends beside eager."""
    return any(len(one.backends) > 1 for one in beside_eager(results))


def _row_of_eager(case: Case, results: Sequence[CaseResult]) -> BesideEager:
    eagers = {one.has_candidate: one.figures.eager.latency_s for one in results if one.figures is not None}
    every = [one.figures.eager.latency_s for one in results if one.figures is not None]
    middle = sorted(every, key=lambda one: one.value)[(len(every) - 1) // 2] if every else None
    return BesideEager(
        case=case,
        eager=eagers.get(False, middle),
        eagers=tuple(every),
        backends={result.case.compiled_by(): result for result in results if result.has_candidate},
    )


OVER_EAGER = "Each speedup is over the eager that took turns with the backend in the same process."


def several_backends(results: Sequence[CaseResult]) -> list[Block]:
    """Return a table with a row for each case and the speedup of each backend; none if no case has several backends."""
    if not has_several_backends(results):
        return []
    found = beside_eager(results)
    names = list(dict.fromkeys(name for one in found for name in one.backends))
    return [table(("case", "eager", *names), (_beside_eager(one, names) for one in found), notes=[OVER_EAGER])]


def disagreements(results: Sequence[CaseResult]) -> list[str]:
    """Say in how many cases the figures of eager disagree, and where they differ most; no line if all agree."""
    found = beside_eager(results)
    disagreeing = [one for one in found if one.disagrees]
    if not disagreeing:
        return []
    ends = [_ends(one) for one in disagreeing]
    case, low, high = max(ends, key=lambda one: one[2].value / one[1].value)
    return [
        f"eager's own figures disagree beyond their intervals in {len(disagreeing)} of {len(found)} cases, most in "
        f"{case.label()}: {units.latency(low)} and {units.latency(high)}"
    ]


def _ends(one: BesideEager) -> tuple[Case, Estimate, Estimate]:
    sure = [each for each in one.eagers if each.has_interval]
    return one.case, min(sure, key=lambda each: each.high), max(sure, key=lambda each: each.low)


def _beside_eager(one: BesideEager, backends: Sequence[str]) -> list[str]:
    eager = "" if one.eager is None else units.latency(one.eager)
    speedups = [_speedup(one.backends[name]) if name in one.backends else "" for name in backends]
    return [one.case.label(), eager, *speedups]


def _speedup(result: CaseResult) -> str:
    """`1.32x [1.30, 1.34]`, with the status if it is in no mean; the status alone of a case without a speedup."""
    figures = result.figures
    if figures is None or figures.speedup is None:
        return str(result.status)
    return units.speedup(figures.speedup) + ("" if result.passed else f", {result.status}")


# --- models that generate: time to the first token, time of a token, tokens per second ---

GENERATION = ("case", "to the first token", "a token", "throughput", "share of the memory's peak")


def generation(results: Sequence[CaseResult]) -> list[Block]:
    """Return a table with a row for each case of a mode that generates."""
    return section("Generation", table(GENERATION, generation_rows(results)).used())


def generation_rows(results: Sequence[CaseResult]) -> list[tuple[str, str, str, str, str]]:
    """Return the cells under `GENERATION` for each measured case of a mode that generates, of the candidate if any.

    The last cell is the rate at which weights and caches are read at least, over the peak of the device's memory.
    """
    return [
        _generation_row(result.case.label(), result.case.mode, figures)
        for result in results
        if result.case.mode.generates and (figures := result.measured_figures) is not None
    ]


def _generation_row(label: str, mode: Mode, figures: CaseFigures) -> tuple[str, str, str, str, str]:
    time = units.latency(figures.shown.latency_s)
    rate = units.rate(figures.samples_per_s(figures.shown), figures.measured.sample_unit)
    times = (time, "") if mode is Mode.PREFILL else ("", time)
    return (label, *times, rate, _memory_share(figures))


def _memory_share(figures: CaseFigures) -> str:
    try:
        peaks = known_peaks(figures.record.case, figures.measured)
    except PeaksFileError:
        return "-"
    variant = EAGER_VARIANT if figures.candidate is None else CANDIDATE_VARIANT
    rate = read_rate(figures.measured, variant, peaks)
    if rate is None:
        return ""
    return "-" if rate.share is None else f"{rate.share.value:.1%}"


# --- throughput by batch size ---


def batch_sizes(results: Sequence[CaseResult]) -> list[Block]:
    """Return a line for each case that was measured at several batch sizes, with its throughput at each."""
    lines = batch_size_lines(results)
    return section("Batch sizes", Items(tuple(lines))) if lines else []


def batch_size_lines(results: Sequence[CaseResult]) -> list[str]:
    """`resnet18 eval cpu eager, images/s by batch size: 1: 15.2, 2: 27.0` for each case with several sizes."""
    rates: dict[str, dict[int, float]] = {}
    for result in results:
        case, figures = result.case, result.measured_figures
        if case.batch_size is not None and figures is not None:
            label = msgspec.structs.replace(case, batch_size=None).label()
            name = f"{label}, {figures.measured.sample_unit}/s by batch size"
            rates.setdefault(name, {})[case.batch_size] = figures.samples_per_s(figures.shown)
    return [f"{name}: {_listed(of_case)}" for name, of_case in rates.items() if len(of_case) > 1]


def curve_line(record: Record) -> list[str]:
    """Say which batch sizes `--bs auto` tried, with their throughput; no line without `--bs auto`."""
    if record.batch_curve is None or not isinstance(record.outcome, Measured):
        return []
    return [f"batch size by doubling, {record.outcome.sample_unit}/s in eager: {_listed(record.batch_curve)}"]


def _listed(rates: Mapping[int, float]) -> str:
    return ", ".join(f"{size}: {units.number(rates[size])}" for size in sorted(rates))
