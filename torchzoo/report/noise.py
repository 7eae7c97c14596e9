"""The A/A noise floor of a run: how much its cases' figures vary when nothing changes, between processes and within."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median, stdev
from typing import NamedTuple

import msgspec

from torchzoo import stats
from torchzoo.analysis.bound import Bound, bound_of
from torchzoo.analysis.cases import case_results
from torchzoo.analysis.judge import judge, pairs_of
from torchzoo.analysis.run_figures import Metric, run_figures, shown_variant, times_s
from torchzoo.case import Case
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Measured
from torchzoo.report import units
from torchzoo.report.document import Block, Column, Fold, Marked, Text, table
from torchzoo.report.markdown import provenance
from torchzoo.report.text import json_text
from torchzoo.settings import Settings
from torchzoo.store import Run

# --- figures ---


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """The noise of one case, as shares of its latency. Figures that need several processes are None if there is one."""

    case: Case
    latency_s: float
    processes: int
    between: float | None  # standard deviation of the processes' medians (of their logarithms)
    floor: float | None  # of the ratio of two runs of as many processes: what 95 in 100 stay below
    within: float | None  # half-width of a process's own interval, the median over processes; None for one sample
    sees: float | None  # the least difference of the latency that a comparison with such a run would find
    sees_over_eager: float | None  # the same of the time over eager's; None where it is not compared
    bound: Bound | None  # what bounds the shown variant's step; of several processes, the first that is not the device
    medians_s: tuple[float, ...]


#: More than so many times the rounds are not proposed.
MOST_MORE = 4


class MoreTime(NamedTuple):
    """The time that one process took, and about how narrow its interval would be with another time limit."""

    rounds: int
    took_s: float
    limit_s: float
    half_width: float  # relative to the figure


def more_time(measured: Measured) -> MoreTime | None:
    """Return the time limit that would narrow the interval to the target, or by half; None for a single round."""
    values, took_s = _values(measured), _took_s(measured)
    if len(values) < 2:
        return None
    enough = (stats.expected_half_width(values, 1) / Settings().target_half_width) ** 2
    rounds = max(stats.VALUES_FOR_95, min(math.ceil(enough), MOST_MORE * len(values)))
    limit_s = took_s / len(values) * rounds
    unit_s = 10 ** (math.floor(math.log10(limit_s)) - 1)  # two digits
    return MoreTime(
        rounds=len(values),
        took_s=took_s,
        limit_s=math.ceil(limit_s / unit_s) * unit_s,
        half_width=stats.expected_half_width(values, rounds),
    )


class NeededTime(NamedTuple):
    """The time that one process took, and about what it needs until its interval has the width that was asked for."""

    took_s: float
    needed_s: float

    @property
    def is_wide(self) -> bool:
        """Whether the interval is wider than that, or does not hold at 95%."""
        return self.needed_s > self.took_s


def needed_time(measured: Measured, half_width: float) -> NeededTime:
    """Return the time that a process needs for an interval of this relative half-width."""
    took_s = _took_s(measured)
    return NeededTime(took_s, stats.time_to_reach(half_width, _values(measured), took_s))


def _values(measured: Measured) -> list[float]:
    """The values of which the stopping rule looks at the median."""
    is_paired = CANDIDATE_VARIANT in measured.variants
    return stats.quad_ratios(measured.blocks) if is_paired else stats.block_times_s(measured.blocks, EAGER_VARIANT)


def _took_s(measured: Measured) -> float:
    return sum(sum(block.samples_s) for block in measured.blocks)


def noise_of(run: Run) -> tuple[Noise, ...]:
    """Return the noise of each measured case, from the run compared with itself."""
    results = [result for result in case_results(run) if result.measured]
    figures = {result.case: run_figures(result.case, result.measured) for result in results}
    findings = judge([pair for case, some in figures.items() for pair in pairs_of(case, some, some)])
    sees = {(one.case, one.metric): one.sees for one in findings if one.base_processes > 1}
    return tuple(_noise(result.case, result.measured, sees) for result in results)


def _noise(case: Case, measured: Sequence[Measured], sees: Mapping[tuple[Case, Metric], float | None]) -> Noise:
    own = [stats.latency_s(one.blocks, shown_variant(one)) for one in measured]
    widths = [estimate.relative_half_width for estimate in own if estimate.has_interval]
    between, floor = None, None
    if len(own) > 1:
        between = stdev(math.log(estimate.value) for estimate in own)
        t = stats.t_quantile(stats.STATED_CONFIDENCE, len(own) - 1)
        floor = math.expm1(min(t * between * math.sqrt(2 / len(own)), 700.0))
    bounds = [bound_of(one, shown_variant(one)) for one in measured]
    return Noise(
        case=case,
        latency_s=stats.processes_estimate(times_s(measured)).value,
        processes=len(own),
        between=between,
        floor=floor,
        within=median(widths) if widths else None,
        sees=sees.get((case, Metric.LATENCY)),
        sees_over_eager=sees.get((case, Metric.OVER_EAGER)),
        bound=next((bound for bound in bounds if bound is not Bound.DEVICE), Bound.DEVICE),
        medians_s=tuple(estimate.value for estimate in own),
    )


# --- document ---

COLUMNS = (
    Column("case"),
    Column("latency", is_number=True),
    Column("processes", is_number=True),
    Column("between processes", short="between", is_number=True),
    Column("noise floor", is_number=True),
    Column("compare finds", short="finds", is_number=True),
    Column("over eager's time", short="over eager", is_number=True),
    Column("within a process", short="within", is_number=True),
    Column("bound by", is_number=True),
)
EXPLAINED = Marked(
    "Between processes: the standard deviation of the processes' medians. Noise floor: without any change, two such "
    "runs with as many processes each differ by more than this only 5 times in 100 (Student's t, for one case). "
    "Compare finds: the least difference that `torchzoo compare` would find between two such runs of all these cases. "
    "Over eager's time: the same for the time over that of eager, which is compared where the host bounds a step. "
    "Within a process: half of the width of the 95% interval of its median. Bound by: what a step waits for, the "
    "device, the host (then the host's own speed counts) or both."
)
NOTHING = "no case of this run was timed, so that nothing is known of noise"
ADVICE = "no repeats, so that noise between processes is not known: measure again with `torchzoo run --repeats 5`"


def _cells(noise: Noise) -> tuple[str, ...]:
    shares = (noise.between, noise.floor, noise.sees, noise.sees_over_eager, noise.within)
    return (
        noise.case.label(),
        units.seconds(noise.latency_s),
        str(noise.processes),
        *("-" if share is None else units.difference(share) for share in shares),
        noise.bound or "-",
    )


def document(run: Run) -> list[Block]:
    """Return the figures of each case, the noisiest first, under the machine, versions and date."""
    noises = sorted(noise_of(run), key=lambda one: -(one.floor if one.floor is not None else one.within or 0.0))
    about = Fold((provenance(run.manifest),))
    if not noises:
        return [about, Text(NOTHING)]
    single = [noise.case.label() for noise in noises if noise.floor is None]
    which = "all cases have" if len(single) == len(noises) else f"{', '.join(single)}: these have"
    advice = [Text(f"{which} {ADVICE}")] if single else []
    return [about, table(COLUMNS, map(_cells, noises), notes=[EXPLAINED]), *advice]


def as_json(run: Run) -> str:
    """Return all figures as JSON, unrounded, in the run's order."""
    return json_text(noise_of(run), indent=1) + "\n"
