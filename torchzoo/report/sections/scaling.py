"""How steps scale over ranks."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.scaling import scalings
from torchzoo.report import units
from torchzoo.stats import Estimate

HEADINGS = ("case", "step", "a device", "weak scaling", "strong scaling", "spread of ranks", "memory of ranks")


def rows(results: Sequence[CaseResult]) -> list[tuple[str, ...]]:
    """The cells under `HEADINGS` for each case with several ranks."""
    return [
        (
            one.case.label(),
            units.latency(one.figures.shown.latency_s),
            units.rate(one.samples_per_s_and_device, one.figures.measured.sample_unit),
            _ratio(one.weak),
            _ratio(one.strong),
            f"{one.spread:.1%}",
            _memory(one.least_bytes, one.most_bytes),
        )
        for one in scalings(results)
    ]


def lines(results: Sequence[CaseResult]) -> list[str]:
    """The same in words."""
    found = []
    for label, step, rate, weak, strong, spread, memory in rows(results):
        parts = [f"{step} a step", f"{rate} and device"]
        parts += [f"{word} scaling {ratio}" for word, ratio in (("weak", weak), ("strong", strong)) if ratio]
        parts += [f"ranks within {spread}", *([memory] if memory else [])]
        found.append(f"{label}: {', '.join(parts)}")
    return found


def _ratio(estimate: Estimate | None) -> str:
    return "" if estimate is None else units.speedup(estimate)


def _memory(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return ""
    return units.size(most) if least == most else f"{units.size(least)} to {units.size(most)}"
