"""Where a step's time goes: shares of its wall time and the longest kernels, as lines of one case's table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchzoo import stats
from torchzoo.analysis.figures import VariantFigures
from torchzoo.record import Measured
from torchzoo.report import units

KERNELS = 5


def lines(columns: Sequence[VariantFigures], *, is_cpu: bool) -> list[tuple[str, list[str]]]:
    """A label and a cell for each variant; `-` where it was not profiled."""
    shares = [stats.shares(c.raw.breakdown) if c.raw.breakdown else None for c in columns]
    parts = (
        (("inside operators", "active"), ("Python and framework", "idle"))
        if is_cpu
        else (("device active", "active"), ("data movement", "movement"), ("device idle", "idle"))
    )
    return [
        ("profiled step, of which", [_profiled_step(figures) for figures in columns]),
        *((label, ["-" if s is None else units.share(getattr(s, part)) for s in shares]) for label, part in parts),
    ]


def _profiled_step(figures: VariantFigures) -> str:
    """How long a step takes under the profiler, and how much that is of its usual latency."""
    if figures.raw.breakdown is None or not figures.raw.breakdown.steps:
        return "-"
    wall_s = stats.median_estimate([step.wall_s for step in figures.raw.breakdown.steps]).value
    return f"{units.seconds(wall_s)}, {wall_s / figures.latency_s.value:.2f}x latency"


def longest_kernels(measured: Measured, *, is_cpu: bool) -> Iterator[str]:
    """For each variant that was profiled, a heading and the kernels (operators) that took longest."""
    for name, result in measured.variants.items():
        if result.breakdown is None or not result.breakdown.steps:
            continue
        steps = len(result.breakdown.steps)
        wall_s = sum(step.wall_s for step in result.breakdown.steps)
        yield f"{name}: {'operators (their own time)' if is_cpu else 'kernels'} that took longest, of {steps} steps"
        for kernel in result.breakdown.kernels[:KERNELS]:
            calls = f"{kernel.calls / steps:,.4g} a step"
            yield f"  {100 * kernel.total_s / wall_s:4.1f}%  {calls:>12}  {short(kernel.name)}"


def short(name: str, width: int = 56) -> str:
    """A kernel's name without its result type, cut."""
    name = name.removeprefix("void ")
    return name if len(name) <= width else name[: width - 1] + "…"
