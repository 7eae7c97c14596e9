"""The columns of figures in tables of many cases: the terminal's, Markdown's and those of HTML pages."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from torchzoo.analysis.figures import CaseFigures
from torchzoo.analysis.frame import Figure, Unit, figure
from torchzoo.report import units
from torchzoo.stats import Estimate


class Detail(enum.IntEnum):
    """How much a cell says."""

    VALUE = 0
    INTERVAL = 1
    ALL = 2  # the confidence of an interval, too, where it is not 95%


class FigureColumn(NamedTuple):
    """A column: its heading, its figure, and what makes its cells of the figures of a case (None: from the unit)."""

    heading: str
    figure: Figure
    shown: Callable[[CaseFigures, Detail], str] | None = None
    of_candidate: bool = False  # cells of cases of eager alone are empty

    def cell(self, figures: CaseFigures, detail: Detail = Detail.ALL) -> str:
        """The text for a case."""
        if self.shown is not None:
            return self.shown(figures, detail)
        found = None if self.of_candidate and figures.candidate is None else self.figure.found(figures)
        return "" if found is None else _shown(found, self.figure.unit, detail)


def _shown(value: Any, unit: Unit, detail: Detail) -> str:
    if isinstance(value, Estimate) and detail is not Detail.VALUE:
        with_interval = units.latency if unit is Unit.SECONDS else units.speedup
        return with_interval(value, has_confidence=detail is Detail.ALL)
    value = value.value if isinstance(value, Estimate) else value
    return f"{value:.2f}x" if unit is Unit.RATIO else units.metric_value(value, unit)


def _bound(figures: CaseFigures, detail: Detail) -> str:
    """`host, 31% / 88%`: what bounds the case, and the share in which the device works, of eager and the candidate."""
    found = figure("bound").found(figures) or ""
    shares = [variant.device_share for variant in figures.variants]
    if not found or detail is Detail.VALUE or None in shares:
        return found
    return f"{found}, {' / '.join(f'{share:.0%}' for share in shares if share is not None)}"


EAGER = FigureColumn("eager", figure("eager_latency_s"))
CANDIDATE = FigureColumn("candidate", figure("latency_s"), of_candidate=True)
TIME = FigureColumn("time", figure("latency_s"))
SPEEDUP = FigureColumn("speedup", figure("speedup"))
#: How far the 95% interval of the speedup reaches, or that of the time where there is no speedup.
REACH = FigureColumn("±", figure("speedup"), lambda one, _: units.reach(one.speedup or one.eager.latency_s))
BOUND = FigureColumn("bound by", figure("bound"), _bound)
MEMORY = FigureColumn("memory", figure("peak_bytes"))
FIRST_STEP = FigureColumn("first step", figure("first_step_s"))
