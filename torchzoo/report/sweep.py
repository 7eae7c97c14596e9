"""Throughput by batch size: of cases measured at several, and of what `--bs auto` tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from torchzoo.record import Case, Measured, Record
from torchzoo.report import units
from torchzoo.report.rows import by_case, repeated


def lines(records: Sequence[Record]) -> list[str]:
    """`resnet18 eval cpu eager, images/s by batch size: 1: 15.2, 2: 27.0` of what was measured at several."""
    rates: dict[Case, dict[int, float]] = {}
    sample_units = {}
    for case, group in by_case(records).items():
        if case.batch_size is None or not any(isinstance(record.outcome, Measured) for record in group):
            continue
        figures = repeated(group)
        shown, measured = figures.candidate or figures.eager, figures.measured
        whole = msgspec.structs.replace(case, batch_size=None)
        rates.setdefault(whole, {})[case.batch_size] = shown.steps_per_s.value * measured.samples_per_step
        sample_units[whole] = measured.sample_unit
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
