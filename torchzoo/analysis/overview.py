"""The results of all cases of a report together."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo.analysis.cases import CaseResult, Status
from torchzoo.analysis.totals import DeviceRatio, Outlier, Section, device_ratios, outliers, sections


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Totals, outliers, one device against another, and the cases that did not pass."""

    sections: tuple[Section, ...]
    outliers: tuple[Outlier, ...]
    device_ratios: tuple[DeviceRatio, ...]
    failed: tuple[CaseResult, ...]
    incorrect: tuple[CaseResult, ...]
    refused: tuple[CaseResult, ...]
    unsteady: tuple[CaseResult, ...]
    skipped: tuple[CaseResult, ...]


def overview(results: Sequence[CaseResult]) -> Overview:
    """The overview of these cases."""

    def of(status: Status) -> tuple[CaseResult, ...]:
        return tuple(result for result in results if result.status is status)

    return Overview(
        sections=sections(results),
        outliers=outliers(results),
        device_ratios=device_ratios(results),
        failed=of(Status.FAILED),
        incorrect=of(Status.INCORRECT),
        refused=of(Status.REFUSED),
        unsteady=of(Status.UNSTEADY),
        skipped=of(Status.SKIPPED),
    )
