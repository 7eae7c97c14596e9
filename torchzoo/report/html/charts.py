"""The charts of the page: their sections, and the data from which `page.js` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.frame import Row
from torchzoo.analysis.totals import Overview
from torchzoo.case import AXES
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.report import units
from torchzoo.report.html import digits
from torchzoo.report.one_case import figure_lines, steps_s
from torchzoo.report.remarks import remarks_of
from torchzoo.stats import Estimate

#: How many step times the file may hold; each takes about six bytes.
SAMPLES = 400_000
SAMPLES_PER_VARIANT = (50, 2000)


class Chart(msgspec.Struct, frozen=True):
    """The section of a chart. `page.js` has a function with the name `id` that draws it."""

    id: str
    short: str  # in the page's navigation
    title: str
    text: str


def figures(rows: Sequence[Row], found: Overview) -> list[Chart]:
    """The charts for which there is something to draw."""
    has_ratios = any(total.passing for total in found.sections[0].totals)
    wanted = {
        "totals": has_ratios,
        "ratios": has_ratios,
        "breakdown": any(row["eager_active_share"] is not None for row in rows),
        "devices": bool(found.device_ratios),
        "memory": any(row["eager_host_peak_rss_bytes"] is not None for row in rows),
        "compile": any(row["graphs"] is not None for row in rows),
    }
    return [chart for chart in _CHARTS if wanted[chart.id]]


_CHARTS = (
    Chart(
        "totals",
        "Speedups",
        "Speedups by group",
        "Geometric means of the cases' paired speedups. The filters do not change them.",
    ),
    Chart(
        "ratios",
        "Ratios",
        "Time, CPU memory and GPU memory against eager",
        "Candidate over eager, per model, on a logarithmic scale; below 1 the candidate needs less (T, CM and GM of "
        "the TorchBench paper, arXiv:2304.14226). CPU memory is the process's peak resident size.",
    ),
    Chart(
        "breakdown",
        "Breakdown",
        "Where a step's time goes",
        "Shares of a profiled step's wall time: the device computes, only moves data, or idles. On the CPU, active is "
        "time inside operators and idle is Python and the framework.",
    ),
    Chart(
        "devices",
        "Devices",
        "One device against another",
        "Latency on the first device over latency on another, for the same model, mode, backend, precision and batch "
        "size. The interval goes from the least to the greatest ratio that the two latencies' intervals allow.",
    ),
    Chart(
        "memory",
        "Memory",
        "Peak memory",
        "Peaks over a few steady steps, measured in a pass of their own. The scale is logarithmic.",
    ),
    Chart(
        "compile",
        "Compile time",
        "First step, compilation included",
        "Cases that are prepared at the same time make each other's wall time longer, unless the run was exclusive. "
        "They do not change the CPU time.",
    ),
)


def chart_data(data: ReportData, rows: Sequence[Row], found: Overview, ids: dict[int, int]) -> dict[str, Any]:
    """What `page.js` reads: the cases, the totals and the device ratios. `ids` numbers the results by their `id()`."""
    variants = sum(1 + (result.figures.candidate is not None) for result in data.cases if result.figures is not None)
    least, most = SAMPLES_PER_VARIANT
    shown = max(least, min(most, SAMPLES // max(1, variants)))
    return {
        "axes": [axis.name for axis in AXES if axis.kind is not int],
        "cases": [
            _case(number, result, row, shown) for number, (result, row) in enumerate(zip(data.cases, rows, strict=True))
        ],
        "totals": [
            {
                "axis": total.axis,
                "name": total.name,
                "passing": _ends(total.passing),
                "all": _ends(total.over_all),
                "compared": total.compared,
                "comparable": total.comparable,
            }
            for total in found.sections[0].totals
        ],
        "devices": [
            {"id": ids[id(one.result)], "base": one.base, "device": one.device, "ratio": _ends(one.ratio)}
            for one in found.device_ratios
        ],
    }


def _ends(estimate: Estimate | None) -> list[float | str] | None:
    """The value and its interval; or the value and why there is none."""
    if estimate is None:
        return None
    return [estimate.value, *([estimate.low, estimate.high] if estimate.has_interval else [estimate.why_no_interval])]


def _case(number: int, result: CaseResult, row: Row, most_samples: int) -> dict[str, Any]:
    case = result.case
    found: dict[str, Any] = {
        "id": number,
        "label": case.label(),
        "model": case.model,
        "domain": row["domain"] or "",
        **{axis.name: row[axis.name] for axis in AXES},
        "device_name": row["device_name"],
        "kind": case.comparison_group(),
        "outcome": result.status,
        "passes": result.passed,
        "reason": result.reason,
        "command": result.command,
        "notes": remarks_of(result.measured),
        "search": f"{case.label()} {row['domain'] or ''} {result.status} {result.reason}".lower(),
        "lines": [],
    }
    if result.figures is None:
        return found
    found["lines"] = [[label, *cells] for label, cells in figure_lines(result.figures, result.figures.variants)]
    found["memory"] = {
        name: [row[f"eager_{column}"], row[column] if result.has_candidate else None]
        for name, column in (
            ("device", "device_peak_allocated_bytes"),
            ("host", "host_peak_rss_bytes"),
            ("unique", "host_uss_bytes"),
        )
    }
    found["samples"] = _samples(result, most_samples)
    if row["speedup"] is not None:
        found["speedup_text"] = "" if result.figures.speedup is None else units.speedup(result.figures.speedup)
        found["ratios"] = [digits(row[name]) for name in ("time_ratio", "host_memory_ratio", "device_memory_ratio")]
        found["compile"] = [digits(row[name]) for name in ("first_step_s", "first_step_cpu_s", "compile_s")]
    shares = {
        variant: [digits(row[f"{prefix}{part}_share"]) for part in ("active", "movement", "idle")]
        for variant, prefix in ((EAGER_VARIANT, "eager_"), (CANDIDATE_VARIANT, ""))
        if row[f"{prefix}active_share"] is not None and (variant == EAGER_VARIANT or result.has_candidate)
    }
    if shares:
        found["shares"] = shares
    return found


def _samples(result: CaseResult, most: int) -> dict[str, Any]:
    """Step times in milliseconds of each variant, in the order they ran, and quartiles over all of them."""
    import numpy as np

    found = {}
    for variant, each_s in steps_s(result).items():
        each_ms = shown_ms = 1e3 * np.array(each_s)
        if len(each_ms) > most:  # evenly spaced ones
            shown_ms = each_ms[np.linspace(0, len(each_ms) - 1, most).round().astype(int)]
        quartiles_ms = np.quantile(each_ms, [0, 0.25, 0.5, 0.75, 1])
        found[variant] = {
            "of": len(each_ms),
            "ms": [digits(one) for one in shown_ms.tolist()],
            "quartiles": [digits(one) for one in quartiles_ms.tolist()],
        }
    return found
