"""Where a step's time goes: shares of its wall time and the longest kernels, as lines of one case's table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torchzoo.analysis.figures import VariantFigures
from torchzoo.analysis.kernels import longest_kernels, profiled_step_s
from torchzoo.record import Measured
from torchzoo.report import terminal, units
from torchzoo.stats import Shares

KERNELS = 5


def lines(columns: Sequence[VariantFigures], *, is_cpu: bool) -> list[tuple[str, list[str]]]:
    """A label and a cell for each variant; `-` if it was not profiled."""
    names = {"active": "device active", "movement": "data movement", "idle": "device idle"}
    if is_cpu:
        names = {"active": "inside operators", "idle": "Python and framework"}
    shares = [figures.shares for figures in columns]
    if any(one is not None and one.communication is not None for one in shares):
        names["communication"] = "only collectives"
    return [
        ("profiled step, of which", [_profiled_step(figures) for figures in columns]),
        *((label, [_cell(one, part) for one in shares]) for part, label in names.items()),
    ]


def _cell(shares: Shares | None, part: str) -> str:
    found = getattr(shares, part, None)
    return "-" if found is None else units.share(found)


def _profiled_step(figures: VariantFigures) -> str:
    """`12.3 ms, 1.05x latency`: how long a step takes under the profiler, beside its usual latency."""
    wall_s = profiled_step_s(figures.raw.breakdown)
    return "-" if wall_s is None else f"{units.seconds(wall_s)}, {wall_s / figures.latency_s.value:.2f}x latency"


def kernel_tables(measured: Measured, *, is_cpu: bool) -> Iterator[Any]:
    """For each variant that was profiled, a heading and the kernels (on the CPU: operators) that took longest."""
    for name, result in measured.variants.items():
        if result.breakdown is None or not result.breakdown.steps:
            continue
        what = "operators (their own time)" if is_cpu else "kernels"
        yield terminal.text(f"{name}: {what} that took longest, of {len(result.breakdown.steps)} steps")
        rows = [
            (f"{100 * kernel.share:.1f}%", f"{kernel.calls_per_step:,.4g} a step", short(kernel.name))
            for kernel in longest_kernels(result.breakdown, KERNELS)
        ]
        headings = ("share", "calls", "kernel")
        yield terminal.indented(terminal.table(headings, rows, right=headings[:2], has_headings=False))


def short(name: str, width: int = 56) -> str:
    """A kernel's name without its result type, cut to the width."""
    name = name.removeprefix("void ")
    return name if len(name) <= width else name[: width - 1] + "…"
