"""Throughput by batch size, of cases that were measured at several batch sizes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import CaseFigures
from torchzoo.case import Case


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
