"""Throughput by batch size: of cases that were measured at several sizes, and of what `--bs auto` tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import CaseFigures
from torchzoo.case import Case
from torchzoo.record import Measured, Record
from torchzoo.report import units
from torchzoo.report.document import Block, Heading, Items

# Throughput by batch size, of cases that were measured at several batch sizes.


class ThroughputCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Samples per second of one case by batch size."""

    case: Case  # without a batch size
    sample_unit: str
    samples_per_s: dict[int, float]


def throughput_curves(results: Sequence[CaseResult]) -> list[ThroughputCurve]:
    """The curves of the cases that were measured at two batch sizes or more."""
    found: dict[Case, dict[int, CaseFigures]] = {}
    for result in results:
        if result.case.batch_size is not None and result.measured_figures is not None:
            case = msgspec.structs.replace(result.case, batch_size=None)
            found.setdefault(case, {})[result.case.batch_size] = result.measured_figures
    return [
        ThroughputCurve(
            case=case,
            sample_unit=next(iter(by_size.values())).measured.sample_unit,
            samples_per_s={size: figures.samples_per_s(figures.shown) for size, figures in by_size.items()},
        )
        for case, by_size in found.items()
        if len(by_size) > 1
    ]


def blocks(results: Sequence[CaseResult]) -> list[Block]:
    """A line for each case with several batch sizes."""
    return [Heading("Batch sizes"), Items(tuple(found))] if (found := lines(results)) else []


def lines(results: Sequence[CaseResult]) -> list[str]:
    """`resnet18 eval cpu eager, images/s by batch size: 1: 15.2, 2: 27.0` for each case with several sizes."""
    return [
        f"{curve.case.label()}, {curve.sample_unit}/s by batch size: {_listed(curve.samples_per_s)}"
        for curve in throughput_curves(results)
    ]


def curve_line(record: Record) -> list[str]:
    """The batch sizes that `--bs auto` tried before it chose the record's batch size; no line without `--bs auto`."""
    if record.batch_curve is None or not isinstance(record.outcome, Measured):
        return []
    return [f"batch size by doubling, {record.outcome.sample_unit}/s in eager: {_listed(record.batch_curve)}"]


def _listed(rates: Mapping[int, float]) -> str:
    return ", ".join(f"{size}: {units.number(rates[size])}" for size in sorted(rates))
