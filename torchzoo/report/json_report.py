"""A report as one JSON document: what is known of the runs, the meaning of each column, a summary, a row per case."""

from __future__ import annotations

from typing import Any

import msgspec

from torchzoo.analysis.cases import ReportData
from torchzoo.analysis.frame import FIGURES, values
from torchzoo.analysis.totals import OUTLIER_RULE, overview
from torchzoo.record import Manifest
from torchzoo.report.graph_breaks import break_causes
from torchzoo.report.overview import TOTALS_NOTE
from torchzoo.stats import Estimate

LAYOUT = 1


def document(data: ReportData) -> dict[str, Any]:
    """The whole document. Infinities and NaN become null when it is written."""
    found = overview(data.cases)
    return {
        "layout": LAYOUT,
        "runs": [
            {"path": str(run.path), "damaged_lines": run.damaged_lines, **about_run(run.manifest)} for run in data.runs
        ],
        "not_run": data.not_run,
        "repeats_not_run": data.repeats_not_run,
        "superseded": data.superseded,
        "columns": {column.name: column.text for column in FIGURES},
        "summary": {
            "note": TOTALS_NOTE,
            "sections": [
                {
                    "title": one.title,
                    "totals": [plain(total) | {"pass_rate": total.pass_rate} for total in one.totals],
                }
                for one in found.sections
            ],
            "outlier_rule": OUTLIER_RULE,
            "outliers": [
                {"case": one.result.case.label(), "speedup": one.speedup, "usual": one.usual, "score": one.score}
                for one in found.outliers
            ],
            "device_ratios": [
                {
                    "case": one.result.case.label(),
                    "base": one.base,
                    "device": one.device,
                    "ratio": one.ratio.value,
                    **{end: plain(one.ratio)[end] for end in ("low", "high")},
                }
                for one in found.device_ratios
            ],
            "graph_breaks": [msgspec.to_builtins(one) for one in break_causes(data.cases)],
        },
        "rows": [values(result) for result in data.cases],
    }


def plain(value: Any) -> Any:
    """The value in Python's own types. Where an estimate has no interval, its ends and its confidence are None."""
    value = msgspec.to_builtins(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == set(Estimate.__struct_fields__):
        estimate = msgspec.convert(value, Estimate)
        return value if estimate.has_interval or estimate.of == "range" else value | _NO_INTERVAL
    return {name: plain(one) for name, one in value.items()}


_NO_INTERVAL = dict.fromkeys(("low", "high", "confidence"))


def about_run(manifest: Manifest) -> dict[str, Any]:
    """A run's manifest without its cases and their domains: those are in the rows."""
    return {name: value for name, value in msgspec.to_builtins(manifest).items() if name not in ("cases", "domains")}
