"""The columns of figures in tables of many cases: the terminal's, Markdown's and those of HTML pages."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from torchzoo.analysis.bound import case_bound
from torchzoo.analysis.figures import CaseFigures
from torchzoo.report import units
from torchzoo.stats import Estimate


class Detail(enum.IntEnum):
    """How much a cell says."""

    VALUE = 0
    INTERVAL = 1
    ALL = 2  # the confidence of an interval, too, where it is not 95%


class FigureColumn(NamedTuple):
    """A column: its heading, what it means, the figure of `analysis.frame` that sorts it, and what makes its cells."""

    heading: str
    meaning: str
    figure: str
    of: Callable[[CaseFigures], Any]  # None: the cell is empty
    shown: Callable[[Any, Detail], str]

    def cell(self, figures: CaseFigures, detail: Detail = Detail.ALL) -> str:
        """The text for a case."""
        found = self.of(figures)
        return "" if found is None else self.shown(found, detail)


def _latency(estimate: Estimate, detail: Detail) -> str:
    if detail is Detail.VALUE:
        return units.seconds(estimate.value)
    return units.latency(estimate, has_confidence=detail is Detail.ALL)


def _speedup(estimate: Estimate, detail: Detail) -> str:
    if detail is Detail.VALUE:
        return f"{estimate.value:.2f}x"
    return units.speedup(estimate, has_confidence=detail is Detail.ALL)


def _bound(figures: CaseFigures, detail: Detail) -> str:
    """`host, 31% / 88%`: what bounds the case, and the share in which the device works, of eager and the candidate."""
    found = case_bound([figures.measured]) or ""
    shares = [variant.device_share for variant in figures.variants]
    if not found or detail is Detail.VALUE or None in shares:
        return found
    return f"{found}, {' / '.join(f'{share:.0%}' for share in shares if share is not None)}"


EAGER = FigureColumn("eager", "Latency of an eager step", "eager_latency_s", lambda one: one.eager.latency_s, _latency)
CANDIDATE = FigureColumn(
    "candidate",
    "Latency of a step of the backend",
    "latency_s",
    lambda one: one.candidate and one.candidate.latency_s,
    _latency,
)
TIME = FigureColumn(
    "time",
    "Latency of a step of the backend, or of eager where there is none",
    "latency_s",
    lambda one: one.shown.latency_s,
    _latency,
)
SPEEDUP = FigureColumn(
    "speedup", "Eager time over candidate time, paired", "speedup", lambda one: one.speedup, _speedup
)
REACH = FigureColumn(
    "±",
    "How far the 95% interval of the speedup reaches (else that of the time)",
    "",
    lambda one: one.speedup or one.eager.latency_s,
    lambda estimate, _: units.reach(estimate),
)
BOUND = FigureColumn(
    "bound by", "What bounds the step, and the share in which the device works", "", lambda one: one, _bound
)
MEMORY = FigureColumn(
    "memory",
    "Peak allocated on the device, or on the CPU peak resident; of the candidate if there is one",
    "",
    lambda one: one.peak_bytes,
    lambda peak_bytes, _: units.size(peak_bytes),
)
FIRST_STEP = FigureColumn(
    "first step",
    "Wall time of the first step, compilation included",
    "first_step_s",
    lambda one: one.shown.raw.first_step_s,
    lambda seconds, _: units.seconds(seconds),
)
