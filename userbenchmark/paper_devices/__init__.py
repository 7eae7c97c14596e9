"""One device against another: how many times faster the same models run.

The question of Figure 5 of the TorchBench paper (Hao et al., 2023, arXiv:2304.14226), which has two vendors' GPUs. Run
this study on each machine, then write the document from both runs: `torchzoo study paper_devices --from RUN RUN`. The
first run is the base.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.compare import HardwareMean, HardwareRatio, ProcessPair, hardware_means, hardware_ratio
from torchzoo.analysis.means import CaseRatio, geomean_of, quotient
from torchzoo.analysis.run_figures import shown_variant
from torchzoo.analysis.totals import ALL, ratio_of
from torchzoo.case import EAGER, Axes, Case, Mode, Precision
from torchzoo.machine.differences import machine_names
from torchzoo.record import Measured
from torchzoo.report import units
from torchzoo.report.beside import Row
from torchzoo.report.document import Block, Heading, table
from torchzoo.report.dots import DotRow, Panel, Value
from torchzoo.run.plan import DEFAULT
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import Choice, by_domain_and_mode, not_measured

SEVERAL_MACHINES = True
TABLE = "Figure 5, time on the first machine over time on the second"
TWO_RUNS = "it needs two runs, of different machines (--from RUN RUN)"

READING = """## How to read it, and where it can mislead

The times are those of separate runs, so nothing is paired: what differs between processes, hosts and software is part
of the ratio. The ratio of a case is that of the two times. Its interval holds if the interval of each time does, so at
90% where each holds at 95%. From one process on each machine it shows the noise within these two processes alone. The
mean over many models also includes how the models differ. A ratio of a model that the host bounds tells about the host.
Both machines run the same batch. A case counts only if it passed on both.

*The device's work alone* compares the time in which the device works in one step, which a few profiled steps show. How
fast the host hands over work is not part of it. A case's ratio has no interval, and is missing if one of the runs ended
before it was known.
"""


def plan(choice: Choice) -> RunRequest:
    """Eager in both modes at FP32 and TF32, on the paper's 84 models, at the default batches, not tuned ones."""
    return RunRequest(
        patterns=choice.patterns,
        suites=choice.suites_or("torchbench"),
        models_dirs=choice.models_dirs,
        axes=Axes(
            modes=(Mode.TRAIN, Mode.EVAL),
            devices=(),
            backends=(EAGER,),
            precisions=(Precision.FP32, Precision.TF32),
            batch_sizes=(DEFAULT,),
        ),
        settings=Settings(time_limit_s=2.0),
    )


def _anywhere(case: Case) -> Case:
    return msgspec.structs.replace(case, device="")


def _passed(run: Run) -> dict[Case, CaseResult]:
    return {_anywhere(result.case): result for result in case_results(run) if result.passed}


def pairs(base: Run, other: Run) -> list[ProcessPair]:
    """The cases that passed in both runs, with device names ignored."""
    there = _passed(other)
    return [(case, result.measured, there[case].measured) for case, result in _passed(base).items() if case in there]


def rows(*runs: Run) -> list[Row]:
    """The mean by precision, mode and domain of each machine against the first one."""
    if len(runs) < 2:
        return [Row(table=TABLE, figure="all", measured=None, missing=TWO_RUNS)]
    base, *others = runs
    found = []
    for name, other in zip(_ratio_names(runs), others, strict=True):
        for one in hardware_means(pairs(base, other), {**base.manifest.domains, **other.manifest.domains}):
            figure = f"{name}: {one.axes}, {one.mode}, {one.domain}"
            note = "1 case" if one.cases == 1 else f"{one.cases} cases"
            found.append(Row(table=TABLE, figure=figure, measured=one.ratio, note=note))
        found += _work_rows(name, pairs(base, other))
    return found or [Row(table=TABLE, figure="all", measured=None, missing="no case passed on both machines")]


def _work_rows(name: str, on_both: Sequence[ProcessPair]) -> list[Row]:
    """The ratio of the devices' time of work in a step, by precision and mode."""
    groups: dict[str, list[CaseRatio]] = {}
    for pair in on_both:
        if (ratio := work_ratio(pair)) is not None:
            groups.setdefault(f"{pair[0].axes_label()}, {pair[0].mode}, {ALL}", []).append(ratio)
    return [
        Row(
            table=TABLE,
            figure=f"{name}: {group}, the device's work alone",
            measured=geomean_of(ratios),
            note="1 case" if len(ratios) == 1 else f"{len(ratios)} cases",
        )
        for group, ratios in sorted(groups.items())
    ]


def work_ratio(pair: ProcessPair) -> CaseRatio | None:
    """The time in which the first device works in a step over that of the other; None if either is not known."""
    case, *sides = pair
    found = [[_work_s(measured) for measured in side] for side in sides]
    if any(work_s is None for side in found for work_s in side):
        return None
    was, now = (ratio_of(case, [[work_s] for work_s in side if work_s]) for side in found)
    return quotient(was, now)


def _work_s(measured: Measured) -> float | None:
    return measured.variants[shown_variant(measured)].device_active_s or None


def _ratio_names(runs: Sequence[Run]) -> list[str]:
    """The names of the ratios, `NVIDIA A100's time over NVIDIA H200's`, for each machine but the first."""
    base, *others = machine_names(runs)
    return [f"{base}'s time over {other}'s" for other in others]


def panels(*runs: Run) -> list[Panel]:
    """The charts of Figure 5 for each machine but the first, and precision: the ratio of each case."""
    base, *others = runs
    found = []
    for name, other in zip(_ratio_names(runs), others, strict=True):
        on_both = pairs(base, other)
        ratios = [hardware_ratio(*one) for one in on_both]
        means = list(hardware_means(on_both, {**base.manifest.domains, **other.manifest.domains}))
        for axes in dict.fromkeys(one.axes for one in means):
            some = [(one.case, one) for one in ratios if one.case.axes_label() == axes]
            rows = by_domain_and_mode(base, some)
            of_row = {(one.domain.replace("_", " "), one.mode): one for one in means if one.axes == axes}
            groups = tuple(_group(of_row[row], values) for row, values in rows.items())
            axis = "right of 1x the second machine is faster"
            found.append(Panel(title=f"{name}, {axes} (Figure 5)", axis=axis, groups=groups))
    return found


def _group(mean: HardwareMean, some: Sequence[HardwareRatio]) -> DotRow:
    values = tuple(Value(name=one.case.label(), value=one.ratio.value) for one in some)
    name = mean.domain.replace("_", " ")
    return DotRow(name=name, mode=mean.mode, values=values, mean=mean.ratio, count=mean.cases)


def report(*runs: Run) -> list[Block | str]:
    """The report: the time of each case on both machines and the ratio, the largest ratio first."""
    base, *others = runs
    base_name, *other_names = machine_names(runs)
    lines: list[Block | str] = []
    for name, of_ratio, other in zip(other_names, _ratio_names(runs), others, strict=True):
        ratios = [(hardware_ratio(*pair), work_ratio(pair)) for pair in pairs(base, other)]
        ratios.sort(key=lambda both: -both[0].ratio.value)
        cells = [
            [
                one.case.label(),
                *map(units.latency, (one.base_s, one.candidate_s)),
                units.speedup(one.ratio),
                f"{work.own.value:.2f}x" if work is not None else "",
            ]
            for one, work in ratios
        ]
        headings = ("case", f"a step on {base_name}", f"a step on {name}", of_ratio, "the device's work alone")
        lines.append(Heading(f"Each case, {of_ratio}"))
        lines.append(table(headings, cells) if cells else "No case passed on both.")
    if not others:
        lines.append(f"No ratio yet: {TWO_RUNS}.\n")
    names = enumerate(machine_names(runs), start=1)
    unmeasured = (
        not_measured(run, f"machine {number}, {name}") for run, (number, name) in zip(runs, names, strict=True)
    )
    return [*lines, READING, *(block for blocks in unmeasured for block in blocks)]
