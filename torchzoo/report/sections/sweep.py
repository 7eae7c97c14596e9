"""Throughput by batch size: of cases measured at several, and of what `--bs auto` tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import case_figures
from torchzoo.case import Case
from torchzoo.record import Measured, Record
from torchzoo.report import units


def lines(results: Sequence[CaseResult]) -> list[str]:
    """`resnet18 eval cpu eager, images/s by batch size: 1: 15.2, 2: 27.0` of what was measured at several."""
    rates: dict[Case, dict[int, float]] = {}
    sample_units = {}
    for result in results:
        if result.case.batch_size is None or not result.measured:
            continue
        figures = case_figures(result.records)
        whole = msgspec.structs.replace(result.case, batch_size=None)
        rate = figures.shown.steps_per_s.value * figures.measured.samples_per_step
        rates.setdefault(whole, {})[result.case.batch_size] = rate
        sample_units[whole] = figures.measured.sample_unit
    return [
        f"{case.label()}, {sample_units[case]}/s by batch size: {_listed(curve)}"
        for case, curve in rates.items()
        if len(curve) > 1
    ]


def curve_line(record: Record) -> list[str]:
    """What `--bs auto` tried before it chose the record's batch size; nothing where it was not asked for."""
    if record.batch_curve is None or not isinstance(record.outcome, Measured):
        return []
    return [f"batch size by doubling, {record.outcome.sample_unit}/s in eager: {_listed(record.batch_curve)}"]


def _listed(rates: Mapping[int, float]) -> str:
    return ", ".join(f"{size}: {units.number(rates[size])}" for size in sorted(rates))
