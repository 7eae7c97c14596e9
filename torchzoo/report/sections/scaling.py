"""How steps scale over ranks."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.collectives import CollectiveFigures
from torchzoo.analysis.scaling import Scaling, scalings
from torchzoo.report import units
from torchzoo.report.document import Block, section, table
from torchzoo.stats import Estimate

HEADINGS = (
    "case",
    "step",
    "a device",
    "weak scaling",
    "strong scaling",
    "exposed communication",
    "collectives of a step",
    "spread of ranks",
    "memory of ranks",
)


def blocks(results: Sequence[CaseResult]) -> list[Block]:
    """A row for each case with several ranks."""
    return section("Scaling over ranks", table(HEADINGS, map(_row, scalings(results))).used())


def _row(one: Scaling) -> tuple[str, ...]:
    return (
        one.case.label(),
        units.latency(one.figures.latency_s),
        units.rate(one.samples_per_s_and_device, one.sample_unit),
        _ratio(one.weak),
        _ratio(one.strong),
        "" if one.exposed is None else units.share(one.exposed),
        "; ".join(map(_collective, one.collectives)),
        f"{one.spread:.1%}",
        _memory(one.least_bytes, one.most_bytes),
    )


def _ratio(estimate: Estimate | None) -> str:
    return "" if estimate is None else units.speedup(estimate)


def _collective(one: CollectiveFigures) -> str:
    """`14 all_reduce, 418 MiB, bus 312 GB/s [300, 320], 83% of the measured peak`."""
    parts = [f"{one.calls} {one.name}"]
    parts += [units.size(one.bytes)] if one.bytes is not None else []
    if one.bus_bytes_per_s is not None:
        reached = ""
        if one.ceiling_bytes_per_s is not None:
            reached = f", {one.bus_bytes_per_s.value / one.ceiling_bytes_per_s:.0%} of the measured peak"
        parts.append(f"bus {units.bandwidth(one.bus_bytes_per_s)}{reached}")
    return ", ".join(parts)


def _memory(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return ""
    return units.size(most) if least == most else f"{units.size(least)} to {units.size(most)}"
