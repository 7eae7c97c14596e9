"""The A/A noise floor of a run: how far its cases' figures move when nothing changes, between processes and within."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median, stdev
from typing import Any

import msgspec

from torchzoo import stats
from torchzoo.compare import is_device_bound, shown_variant, times_s
from torchzoo.record import Case, Measured, Record
from torchzoo.report import units
from torchzoo.report.markdown import provenance, table
from torchzoo.report.rows import by_case, measured_of
from torchzoo.store import Run

HEADINGS = ("case", "latency", "processes", "between processes", "noise floor", "within a process", "bound by")

EXPLAINED = (
    "Between processes: the standard deviation of their medians. Noise floor: a difference between two such runs, of "
    "as many processes each, that no change at all exceeds 5 times in 100 (Student's t, for one case). Within a "
    "process: half of the 95% interval of its median. Bound by: the device, where the host hands it a step's work in "
    "half of the step's time, else the host, whose own speed then counts."
)
ADVICE = "no repeats, so that noise between processes is not known: measure again with `torchzoo run --repeats 5`"


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """Of one case; shares of its latency. What needs several processes is None where there is one."""

    case: Case
    latency_s: float
    processes: int
    between: float | None  # standard deviation of the processes' medians (of their logarithms)
    floor: float | None  # of the ratio of two runs of as many processes: what 95 in 100 stay below
    within: float | None  # half-width of a process's own interval, the median over processes; None for one sample
    is_device_bound: bool
    medians_s: tuple[float, ...]


def noise_of(records: Sequence[Record]) -> tuple[Noise, ...]:
    """The noise of each measured case."""
    found = []
    for case, group in by_case(records).items():
        measured = measured_of(group)
        if measured:
            found.append(_noise(case, measured))
    return tuple(found)


def _noise(case: Case, measured: Sequence[Measured]) -> Noise:
    own = [stats.latency_s(one.blocks, shown_variant(one)) for one in measured]
    widths = [estimate.relative_half_width for estimate in own if estimate.count > 1]
    between, floor = None, None
    if len(own) > 1:
        between = stdev(math.log(estimate.value) for estimate in own)
        t = stats.t_quantile(stats.STATED_CONFIDENCE, len(own) - 1)
        floor = math.expm1(min(t * between * math.sqrt(2 / len(own)), 700.0))
    return Noise(
        case=case,
        latency_s=stats.processes_estimate(times_s(measured)).value,
        processes=len(own),
        between=between,
        floor=floor,
        within=median(widths) if widths else None,
        is_device_bound=all(map(is_device_bound, measured)),
        medians_s=tuple(estimate.value for estimate in own),
    )


def _cells(noise: Noise) -> tuple[str, ...]:
    return (
        noise.case.label(),
        units.seconds(noise.latency_s),
        str(noise.processes),
        _percent(noise.between),
        _percent(noise.floor),
        _percent(noise.within),
        "device" if noise.is_device_bound else "host",
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _missing(noises: Sequence[Noise]) -> list[str]:
    single = [noise.case.label() for noise in noises if noise.floor is None]
    if not single:
        return []
    which = "all cases have" if len(single) == len(noises) else f"{', '.join(single)}: these have"
    return [f"{which} {ADVICE}"]


def terminal(run: Run) -> Any:
    """For the terminal, 80 columns wide, the noisiest first: a line for the case, one for its figures."""
    from rich.text import Text

    noises = _noisiest_first(noise_of(run.records))
    headings = ("latency", "processes", "between", "noise floor", "within", "bound by")
    lines = ["".join(f"{heading:>13}" for heading in headings)]
    for noise in noises:
        label, *cells = _cells(noise)
        lines += [label, "".join(f"{cell:>13}" for cell in cells)]
    return Text("\n".join([*lines, "", EXPLAINED, *_missing(noises)]))


def markdown(run: Run) -> str:
    """The same under machine, versions and date."""
    noises = _noisiest_first(noise_of(run.records))
    lines = [*provenance(run.manifest), "", *table(HEADINGS, map(_cells, noises)), "", EXPLAINED]
    for line in _missing(noises):
        lines += ["", line]
    return "\n".join(lines) + "\n"


def as_json(run: Run) -> str:
    """All of it, unrounded, in the run's order."""
    return msgspec.json.format(msgspec.json.encode(noise_of(run.records)), indent=1).decode() + "\n"


def _noisiest_first(noises: Sequence[Noise]) -> list[Noise]:
    return sorted(noises, key=lambda noise: -(noise.floor if noise.floor is not None else noise.within or 0.0))
