"""The picture of a run's speedups as SVG: a row for each domain and mode, a dot for each case, and the mean."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.totals import ALL, Total, speedups_by_group
from torchzoo.case import Mode
from torchzoo.errors import UsageError
from torchzoo.report import dots
from torchzoo.report.dots import DotRow, Panel, Value
from torchzoo.report.markdown import provenance_line

AXIS = "eager time / candidate time: right of 1x the candidate is faster"


def picture(data: ReportData) -> str:
    """The whole file.

    Raises:
        UsageError: no case with a backend beside eager passed, so there is no speedup.
    """
    panels = []
    for group, by_domain in speedups_by_group(data.cases).items():
        results = [
            one for one in data.cases if one.has_candidate and one.passed and one.case.comparison_group() == group
        ]
        panels.append(_panel(group, by_domain, results))
    if not panels:
        raise UsageError("no speedups to draw: no case with a backend beside eager passed (--backend adds one)")
    return dots.picture(panels, provenance_line([run.manifest for run in data.runs], data.device_names))


def _panel(group: str, by_domain: dict[str, dict[Mode, Total]], results: Sequence[CaseResult]) -> Panel:
    groups: list[DotRow] = []
    for domain, by_mode in by_domain.items():
        for mode in (mode for mode in Mode if mode in by_mode):
            mean = by_mode[mode].passing
            assert mean is not None
            groups.append(
                DotRow(
                    name=domain.replace("_", " "),
                    mode=mode,
                    values=tuple(map(speedup_of, (one for one in results if _row_of(one) == (domain, mode)))),
                    mean=mean,
                    count=by_mode[mode].compared,
                )
            )
    return Panel(
        title=f"Speedup of {group} over eager",
        axis=AXIS,
        groups=tuple(groups),
        dot="model" if len({(one.case.model, one.case.mode) for one in results}) == len(results) else "case",
    )


def _row_of(result: CaseResult) -> tuple[str, Mode]:
    """The row that has its dot: of its domain; of all where its domain is not known."""
    return (ALL if result.domain is None else result.domain), result.case.mode


def speedup_of(result: CaseResult) -> Value:
    """The speedup of a case that passed with a backend beside eager."""
    assert result.figures is not None
    assert result.figures.speedup is not None
    return Value(name=result.case.label(), value=result.figures.speedup.value)
