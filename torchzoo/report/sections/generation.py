"""The figures of models that generate: time to the first token, time of a token, tokens per second."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import CaseFigures
from torchzoo.analysis.peaks import PeaksFileError
from torchzoo.analysis.roofline import known_peaks, read_rate
from torchzoo.case import Mode
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.report import units
from torchzoo.report.document import Block, section, table

HEADINGS = ("case", "to the first token", "a token", "throughput", "share of the memory's peak")


def blocks(results: Sequence[CaseResult]) -> list[Block]:
    """A row for each case of a mode that generates."""
    return section("Generation", table(HEADINGS, rows(results)).used())


def rows(results: Sequence[CaseResult]) -> list[tuple[str, str, str, str, str]]:
    """The cells under `HEADINGS` for each measured case of a mode that generates; of the candidate if there is one.

    The last one is the rate at which weights and caches are read at least, over the peak of the device's memory.
    """
    return [
        _row(result.case.label(), result.case.mode, figures)
        for result in results
        if result.case.mode.generates and (figures := result.measured_figures) is not None
    ]


def _row(label: str, mode: Mode, figures: CaseFigures) -> tuple[str, str, str, str, str]:
    time = units.latency(figures.shown.latency_s)
    rate = units.rate(figures.samples_per_s(figures.shown), figures.measured.sample_unit)
    times = (time, "") if mode is Mode.PREFILL else ("", time)
    return (label, *times, rate, _share(figures))


def _share(figures: CaseFigures) -> str:
    try:
        peaks = known_peaks(figures.record.case, figures.measured)
    except PeaksFileError:
        return "-"
    variant = EAGER_VARIANT if figures.candidate is None else CANDIDATE_VARIANT
    rate = read_rate(figures.measured, variant, peaks)
    if rate is None:
        return ""
    return "-" if rate.share is None else f"{rate.share.value:.1%}"
