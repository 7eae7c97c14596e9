"""The charts of the page: their sections, and the data from which `page.js` draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from torchzoo.analysis.cases import CaseResult, ReportData
from torchzoo.analysis.frame import Row
from torchzoo.analysis.step_times import step_times
from torchzoo.analysis.totals import DeviceRatio, Overview
from torchzoo.case import AXES
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.report.html.case_table import speedup_text
from torchzoo.report.one_case import figure_lines
from torchzoo.report.remarks import remarks_of
from torchzoo.stats import Estimate

#: How many step times the file may hold; each takes about six bytes.
SAMPLES = 400_000
SAMPLES_PER_VARIANT = (50, 2000)


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """The section of a chart. `page.js` has a function with the name `id` that draws it."""

    id: str
    short: str  # in the page's navigation
    title: str
    text: str


TOTALS = Chart(
    id="totals",
    short="Speedups",
    title="Speedups by group",
    text="Geometric means of the cases' paired speedups. The filters do not change them.",
)
RATIOS = Chart(
    id="ratios",
    short="Ratios",
    title="Time, CPU memory and GPU memory against eager",
    text="Candidate over eager, per model, on a logarithmic scale; below 1 the candidate needs less (T, CM and GM of "
    "the TorchBench paper, arXiv:2304.14226). CPU memory is the process's peak resident size.",
)
BREAKDOWN = Chart(
    id="breakdown",
    short="Breakdown",
    title="Where a step's time goes",
    text="Shares of a profiled step's wall time: the device computes, only moves data, or idles. On the CPU, active is "
    "time inside operators and idle is Python and the framework.",
)
DEVICES = Chart(
    id="devices",
    short="Devices",
    title="One device against another",
    text="Latency on the first device over latency on another, for the same model, mode, backend, precision and batch "
    "size. The interval goes from the least to the greatest ratio that the two latencies' intervals allow.",
)
MEMORY = Chart(
    id="memory",
    short="Memory",
    title="Peak memory",
    text="Peaks over a few steady steps, measured in a pass of their own. The scale is logarithmic.",
)
COMPILE = Chart(
    id="compile",
    short="Compile time",
    title="First step, compilation included",
    text="Cases that are prepared at the same time make each other's wall time longer, unless the run was exclusive. "
    "They do not change the CPU time.",
)


def figures(rows: Sequence[Row], found: Overview) -> list[Chart]:
    """The charts for which there is something to draw."""
    has_ratios = any(total.passing for total in found.sections[0].totals)
    wanted = {
        TOTALS: has_ratios,
        RATIOS: has_ratios,
        BREAKDOWN: any(row["eager_active_share"] is not None for row in rows),
        DEVICES: bool(found.device_ratios),
        MEMORY: any(row["eager_host_peak_rss_bytes"] is not None for row in rows),
        COMPILE: any(row["graphs"] is not None for row in rows),
    }
    return [figure for figure, is_wanted in wanted.items() if is_wanted]


def chart_data(data: ReportData, rows: Sequence[Row], found: Overview, ids: dict[int, int]) -> dict[str, Any]:
    """What `page.js` reads: the cases, the totals and the device ratios.

    Args:
        data: the report.
        rows: a row of `analysis.frame` for each case.
        found: the overview of the cases.
        ids: the number of each case, by the `id()` of its result.
    """
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
        "devices": [_device(one, ids) for one in found.device_ratios],
    }


def _device(one: DeviceRatio, ids: dict[int, int]) -> dict[str, Any]:
    return {
        "id": ids[id(one.result)],
        "base": one.base,
        "device": one.device,
        "ratio": _ends(one.ratio),
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
        found["speedup_text"] = speedup_text(result)
        found["ratios"] = [_digits(row[name]) for name in ("time_ratio", "host_memory_ratio", "device_memory_ratio")]
        found["compile"] = [_digits(row[name]) for name in ("first_step_s", "first_step_cpu_s", "compile_s")]
    shares = {
        variant: [_digits(row[f"{prefix}{part}_share"]) for part in ("active", "movement", "idle")]
        for variant, prefix in ((EAGER_VARIANT, "eager_"), (CANDIDATE_VARIANT, ""))
        if row[f"{prefix}active_share"] is not None and (variant == EAGER_VARIANT or result.has_candidate)
    }
    if shares:
        found["shares"] = shares
    return found


def _samples(result: CaseResult, most: int) -> dict[str, Any]:
    """Step times in milliseconds of each variant, in the order they ran, and quartiles over all of them."""
    return {
        variant: {
            "of": times.count,
            "ms": [_digits(step_ms) for step_ms in times.shown_ms],
            "quartiles": [_digits(each_ms) for each_ms in times.quartiles_ms],
        }
        for variant, times in step_times(result, most).items()
    }


def _digits(value: float | None) -> float | None:
    """Five significant digits: enough for a chart."""
    return None if value is None else float(f"{value:.5g}")
